"""What builds and grades projects on this machine: sandbox, toolchain, cache and grader."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain
from harness.records import BuildResult, MachineFacts, Project, Target
from sandboxes.pool import SandboxPool

if TYPE_CHECKING:  # torch
    from harness.grading.grade import Grader


@dataclass(frozen=True)
class BuildSetup:
    """A sandbox and a toolchain: builds projects."""

    sandbox: SandboxPool
    toolchain: Toolchain
    cache: Path

    def build(self, project: Project, target: Target, *, wall_s: float = 600.0) -> Built:
        """Build a project, or reuse its build in the cache. Thread-safe."""
        return build(
            project,
            target,
            sandbox=self.sandbox,
            toolchain=self.toolchain,
            cache=self.cache / "builds",
            wall_s=wall_s,
        )

    def result(self, project: Project, target: Target) -> BuildResult:
        return self.build(project, target).result

    def close(self) -> None:
        self.sandbox.stop()


@dataclass(frozen=True)
class GradingSetup(BuildSetup):
    """Builds projects, and grades them on this machine."""

    grader: Grader
    machine: MachineFacts

    def close(self) -> None:
        self.grader.close()
        self.sandbox.stop()
