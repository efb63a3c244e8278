"""One project on one task: build -> check -> time -> Grade. The only place that decides a verdict.

Owns: the order of stages, when the machine must be quiet, and the verdict. Does not own: any stage.
Invariant: a Grade never rests on what a worker said of itself; InfraError, not a Grade, is what
comes out when something of ours failed.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.builder.build import Built, build
from harness.builder.failure.places import load_failure
from harness.builder.toolchain import Toolchain
from harness.catalogue import LoadedTask
from harness.errors import HarnessBug, UsageError
from harness.load_stage import (
    call_flags,
    cannot_run_cuda,
    explained,
    forbidden_calls,
    no_operators,
    not_imported,
    unmeasured,
    unresolved_symbols,
    wants_gpu,
    wrong_package,
)
from harness.machine import Phases, QuietLock, judge_and_worker_cpus
from harness.outcome import POLICY, Cause, Stage, Verdict
from harness.records import (
    BuildResult,
    CheckResult,
    Finding,
    Grade,
    MachineFacts,
    Project,
    Protocol,
    Target,
    Task,
    TimingResult,
)
from sandboxes.job import Sandbox

if TYPE_CHECKING:
    from harness.judge.contender import Contender
    from harness.judge.trusted import TrustedWorkers
    from harness.judge.worker_job import Source, WorkerPlace

GRADER_VERSION = "2"
"""Part of every grading key: raise it when the same project may be graded differently."""

BUILD_WALL_S = 600.0
WORKER_WALL_S = 300.0
CALL_WALL_S = 30.0
WORKER_MEMORY_BYTES = 6 << 30
CUDA_WORKER_MEMORY_BYTES = 16 << 30
"""Of host memory: CUDA's pinned buffers count. Of address space it may reserve any amount."""
_PR_SET_DUMPABLE = 4

StageObserver = Callable[[str], None]


@dataclass(frozen=True)
class GradeSettings:
    """What a grader is told."""

    target: Target
    protocol: Protocol
    cache: Path
    """Builds and locks."""
    build_wall_s: float = BUILD_WALL_S
    worker_wall_s: float = WORKER_WALL_S
    """Of a student's worker, frozen time excluded."""
    call_wall_s: float = CALL_WALL_S
    """Of one exchange with a worker."""
    worker_memory_bytes: int = WORKER_MEMORY_BYTES


class Grader:
    """Grades projects; safe to use from several threads. Close it when done."""

    def __init__(
        self, settings: GradeSettings, sandbox: Sandbox, toolchain: Toolchain, machine: MachineFacts
    ) -> None:
        """Raises UsageError when this machine cannot build for the target, or the protocol is not there."""
        if settings.protocol == "full":
            raise UsageError("the full protocol is not built yet; use --protocol quick")
        missing = toolchain.missing(settings.target)
        if missing is not None:
            raise UsageError(f"cannot build for {settings.target}: {missing}")
        self._settings = settings
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._machine = machine
        self._phases = Phases()
        self._quiet = QuietLock(settings.cache / "locks", "cpu")
        self._judge_cpus, self._worker_cpus = judge_and_worker_cpus()
        self._trusted: TrustedWorkers | None = None
        # Nobody may read the judge's memory, where inputs and truth are.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)

    @property
    def target(self) -> Target:
        """What it grades for."""
        return self._settings.target

    # --- stages --------------------------------------------------------------------------------

    def grade(
        self,
        project: Project,
        loaded: LoadedTask,
        *,
        log: Path | None = None,
        observer: StageObserver = lambda stage: None,
    ) -> Grade:
        """Grade a project. `log` receives the build log. Raises InfraError and its kinds."""
        return _Grading(self, loaded, project, time.monotonic()).run(log, observer)

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        """The grade of a reply that held no project."""
        return _Grading(self, loaded, None, time.monotonic()).ended(Stage.PROJECT, finding)

    def _build(self, project: Project, log: Path | None) -> Built:
        settings = self._settings
        with self._quiet.shared():
            if self.target == "cpu":  # for cuda nothing is run yet
                self._expect_worker()
            try:
                return build(
                    project,
                    settings.target,
                    sandbox=self._sandbox,
                    toolchain=self._toolchain,
                    cache=settings.cache / "builds",
                    log=log,
                    wall_s=settings.build_wall_s,
                )
            finally:
                self._sandbox.settle()  # nothing may start while somebody measures

    def _place(self) -> WorkerPlace:
        from harness.judge.worker_job import WorkerPlace

        settings, root = self._settings, self._toolchain.torch_root
        if root is None:
            raise HarnessBug("a worker is wanted without torch")
        return WorkerPlace(
            site=(root.parent,),
            python=self._toolchain.python,
            in_image=self._toolchain.in_image,
            memory_bytes=settings.worker_memory_bytes if self.target == "cpu" else CUDA_WORKER_MEMORY_BYTES,
            cpus=self._worker_cpus,
        )

    def _start(self, source: Source, wall_s: float) -> Contender:
        from harness.judge.contender import Contender

        call_s = self._settings.call_wall_s
        return Contender(source, self._sandbox, self._place(), wall_s=wall_s, call_s=call_s)

    def _expect_worker(self) -> None:
        """A student's worker will be wanted: it can import torch while compilers run."""
        from harness.judge.worker_job import Source, worker_job

        source = Source("null")  # as a project's, but for what it loads
        self._sandbox.prepare(worker_job(source, self._place(), self._settings.worker_wall_s))

    def _trusted_workers(self) -> TrustedWorkers:
        """Only called while the machine is held exclusively."""
        from harness.judge.trusted import TrustedWorkers

        if self._trusted is None:
            self._trusted = TrustedWorkers(lambda source: self._start(source, 24 * 3600.0))
        return self._trusted

    def close(self) -> None:
        """End the workers that are kept between grades."""
        if self._trusted is not None:
            self._trusted.close()
            self._trusted = None


class _Grading:
    """One grade in the making."""

    def __init__(self, grader: Grader, loaded: LoadedTask, project: Project | None, start: float) -> None:
        self._grader = grader
        self._loaded = loaded
        self._project = project
        self._start = start
        self._build: BuildResult | None = None
        self._check: CheckResult | None = None
        self._timing: TimingResult | None = None

    def ended(self, stage: Stage, finding: Finding) -> Grade:
        """The grade as it stands."""
        grader, settings = self._grader, self._grader._settings
        return Grade(
            task=self._loaded.task.id,
            task_digest=self._loaded.task.digest,
            project=None if self._project is None else self._project.digest,
            target=settings.target,
            protocol=settings.protocol,
            verdict=POLICY[finding.cause].verdict,
            stage=stage,
            finding=finding,
            flags=() if self._build is None else call_flags(self._build, self._loaded.task),
            build=self._diagnosed(stage, finding),
            check=self._check,
            timing=self._timing,
            sandbox=grader._sandbox.name,
            sandbox_facts=grader._sandbox.facts(),
            machine=grader._machine.digest,
            wall_s=time.monotonic() - self._start,
        )

    def _diagnosed(self, stage: Stage, finding: Finding) -> BuildResult | None:
        """The build; where its library could not be loaded, with what that says of the binding."""
        failed = stage is Stage.LOAD and finding.verdict in {Verdict.LOAD_FAILED, Verdict.CRASHED}
        if self._build is None or self._project is None or not failed:
            return self._build
        files = {file.path: file.text for file in self._project.files}
        return self._build.model_copy(update={"diagnostics": load_failure(finding.message, files)})

    def run(self, log: Path | None, observer: StageObserver) -> Grade:
        """All stages, until one ends it."""
        if self._project is None:
            raise HarnessBug("nothing to build")
        with self._grader._phases.work():
            ready = self._prepare(self._project, log, observer)
        return ready if isinstance(ready, Grade) else self._time(*ready, observer)

    def _prepare(
        self, project: Project, log: Path | None, observer: StageObserver
    ) -> Grade | tuple[Contender, Source]:
        """Build, load and check: a grade, or a student that is ready to be timed."""
        observer("build")
        built = self._grader._build(project, log)
        self._build = built.result
        if built.result.finding is not None:
            return self.ended(Stage.BUILD, built.result.finding)
        task = self._loaded.task
        finding = wrong_package(built.result, task) or forbidden_calls(built.result, task)
        if finding is not None:
            return self.ended(Stage.LOAD, finding)
        if self._grader.target == "cuda":
            return self.ended(*self._import_for_cuda(built, observer))
        observer("check")
        return self._load_and_check(_source(built, task))

    def _import_for_cuda(self, built: Built, observer: StageObserver) -> tuple[Stage, Finding]:
        """Where a CUDA project ends on a machine that cannot run it, and why."""
        grader, result = self._grader, built.result
        cannot = cannot_run_cuda(grader._machine, result)
        if result.jit:
            return Stage.LOAD, cannot
        failure = unresolved_symbols(result)
        if failure is None and grader._toolchain.torch_is_cpu_only:
            return Stage.LOAD, unmeasured(cannot, not_imported(result))
        if failure is None:
            observer("load")
            failure = self._import(_source(built, self._loaded.task))
        if failure is None:
            return Stage.CHECK, unmeasured(cannot, "it imports, and its operators are registered")
        if wants_gpu(failure, grader._machine):
            return Stage.LOAD, unmeasured(cannot, f"its import asks for one: {failure.message}")
        return Stage.LOAD, failure

    def _import(self, source: Source) -> Finding | None:
        """Import the package in a worker that is then ended; why that failed."""
        from harness.judge.contender import Failed

        grader = self._grader
        with grader._quiet.shared():
            worker = grader._start(source, grader._settings.worker_wall_s)
            try:
                worker.load()
            except Failed as failure:
                return explained(failure.finding, self._build)
            finally:
                worker.close()
        return None if worker.operators else no_operators(source.namespace)

    def _load_and_check(self, source: Source) -> Grade | tuple[Contender, Source]:
        from harness.judge.contender import Failed

        grader = self._grader
        with grader._quiet.shared():
            student = grader._start(source, grader._settings.worker_wall_s)
            try:
                student.load()
                self._check = self._run_check(student)
            except Failed as failure:
                student.close()
                return self.ended(Stage.LOAD, explained(failure.finding, self._build))
            except BaseException:
                student.close()
                raise
        if self._check.finding is not None:
            student.close()
            return self.ended(Stage.CHECK, self._check.finding)
        return student, source

    def _time(self, student: Contender, source: Source, observer: StageObserver) -> Grade:
        observer("time")
        try:
            # Waiting for the machine is not the student's time.
            student.freeze(True)
            with self._grader._phases.timing(), self._grader._quiet.exclusive():
                student.freeze(False)
                self._timing = self._run_timing(student, source)
        finally:
            student.close()
        if self._timing.finding is not None:
            return self.ended(Stage.TIME, self._timing.finding)
        return self.ended(Stage.TIME, Finding(cause=Cause.PASSED, message="correct on every workload"))

    def _run_check(self, student: Contender) -> CheckResult:
        import torch

        from harness.judge.check import check

        torch.set_num_threads(1)
        return check(student, self._loaded, self._grader._settings.target)

    def _run_timing(self, student: Contender, source: Source) -> TimingResult:
        from harness.judge.check import problems
        from harness.judge.timing import Contenders, time_project

        grader = self._grader
        timed = problems(self._loaded, grader._settings.target, timed_only=True)
        trusted = grader._trusted_workers()
        contenders = Contenders(
            student=student,
            references=trusted.references(self._loaded, timed[0]),
            null=trusted.null(),
            fresh_student=lambda: grader._start(source, grader._settings.worker_wall_s),
        )
        finished = False
        try:
            result = time_project(contenders, timed, judge_cpus=grader._judge_cpus)
            finished = result.finding is None
        finally:
            if not finished:
                # The measurement broke off in the middle and left workers frozen: start afresh next time.
                trusted.close()
        return result


def _source(built: Built, task: Task) -> Source:
    from harness.judge.worker_job import Source

    if built.directory is None or built.result.variant is None:
        raise HarnessBug("a build that succeeded left no package")
    package = built.directory / built.result.variant / "__init__.py"
    libraries = sorted(package.parent.glob("*.abi3.so"))
    namespace = libraries[0].name.removesuffix(".abi3.so") if libraries else ""
    return Source("project", package, task.module, task.op, jit=built.result.jit, namespace=namespace)
