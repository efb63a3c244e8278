"""What builds and grades on this machine: a sandbox, a toolchain, and a grader that uses both."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain
from harness.grading.grade import Grader
from harness.records import BuildResult, MachineFacts, Project, Target
from sandboxes.pool import StoppableSandbox


@dataclass(frozen=True)
class Workshop:
    """Where projects are built."""

    sandbox: StoppableSandbox
    toolchain: Toolchain
    """The tools that jobs find in the sandbox."""
    cache: Path

    def build(self, project: Project, target: Target, *, wall_s: float = 600.0) -> Built:
        """Build a project, or take the build from the cache; safe for threads."""
        return build(
            project,
            target,
            sandbox=self.sandbox,
            toolchain=self.toolchain,
            cache=self.cache / "builds",
            wall_s=wall_s,
        )

    def result(self, project: Project, target: Target) -> BuildResult:
        """The record of a build."""
        return self.build(project, target).result

    def close(self) -> None:
        """End everything that runs in the sandbox."""
        self.sandbox.stop()


@dataclass(frozen=True)
class Bench(Workshop):
    """Where projects are graded, too."""

    grader: Grader
    machine: MachineFacts

    def close(self) -> None:
        """End the grader and everything that runs in the sandbox."""
        self.grader.close()
        self.sandbox.stop()
