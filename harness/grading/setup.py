"""What builds and grades projects on this machine: sandbox, toolchain, cache and grader."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from harness.builder.build import Built, build
from harness.builder.toolchain import Toolchain, find_toolchain, toolchain_of_image
from harness.errors import SandboxError, UsageError
from harness.records import BuildResult, Finding, Grade, MachineFacts, Project, Target
from harness.suite.catalogue import LoadedTask
from sandboxes.cgroups import Cgroups
from sandboxes.orphans import remove_orphans
from sandboxes.pool import SandboxPool
from sandboxes.registry import LOCAL_WARNING, choose_sandbox


class ProjectGrader(Protocol):
    """Grades projects: here, in processes of this machine, or on others. Thread-safe."""

    @property
    def device_bytes(self) -> int | None:
        """Memory of the GPU that projects run on; None where there is none."""

    def grade(
        self,
        project: Project,
        loaded: LoadedTask,
        *,
        log: Path | None = None,
        observer: Callable[[str], None] = lambda stage: None,
    ) -> Grade:
        """Grade a project. `log` receives the build log. Raises InfraError and its kinds."""

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        """The grade of a reply without a project."""

    def lost_a_device(self, project: str) -> None:
        """Count a device lost under that project (digest) in an earlier session: its retry is spent."""

    def close(self) -> None:
        """End everything."""


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
    """Builds projects, and grades them."""

    grader: ProjectGrader
    machine: MachineFacts
    at_once: int = 1
    """Trials that must be under way at once to keep all graders busy."""

    def noting(self, note: Callable[[str], None]) -> AbstractContextManager[None]:
        """Has `note` called when something happens to a grader, for the report."""
        return nullcontext()

    def stop(self) -> None:
        """Kill running jobs; nothing can be graded afterwards."""
        self.sandbox.stop()

    def close(self) -> None:
        self.grader.close()
        self.stop()


def open_build_setup(
    sandbox: str, cache: Path, say: Callable[[str], None], target: Target | None = None
) -> BuildSetup:
    """The sandbox of that name; `say` is told which it is and why, and warned if nothing isolates.

    Removes what killed runs have left. Raises UsageError when there is no such sandbox, or what builds for
    `target` need is missing.
    """
    try:
        remove_orphans(groups=Cgroups.find())
    except SandboxError as error:
        say(f"warning: something of an earlier run is left: {error}")
    choice = choose_sandbox(sandbox)
    say(f"sandbox {choice.sandbox.name}: {choice.why}")
    if choice.sandbox.name == "local":
        say(f"warning: {LOCAL_WARNING}")
    image = choice.sandbox.image
    if image is None:
        toolchain = find_toolchain()
    else:
        toolchain = toolchain_of_image(image.description(), image.view(cache))
    missing = None if target is None else toolchain.missing(target)
    if missing is not None:
        raise UsageError(f"cannot build for {target}: {missing}")
    return BuildSetup(choice.sandbox, toolchain, cache)
