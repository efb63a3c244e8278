"""One project on one task: build -> check -> time -> Grade. The only place that decides a verdict.

A Grade never rests on what a worker said of itself; InfraError, not a Grade, is what comes out when
something of ours failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harness.builder.build import Built, build
from harness.builder.diagnostics import load_failure
from harness.builder.toolchain import Toolchain
from harness.device.health import DeviceHealth, HealthGuard, HostHealth, device_errors
from harness.device.machine import Phases, QuietLock, judge_and_worker_cpus
from harness.errors import HarnessBug, UsageError
from harness.files import builds, temporary_files, watching
from harness.grading.import_stage import ImportStage
from harness.grading.instrumentation import Examination, Seen, flags_beside, unsanitized
from harness.grading.load import (
    explained,
    forbidden_calls,
    wrong_package,
)
from harness.grading.workers import GradeSettings, Workers, project_source
from harness.judge.physics import board_of
from harness.outcome import POLICY, Cause, Stage, Verdict
from harness.records import (
    BuildResult,
    CheckResult,
    Finding,
    Grade,
    KernelBenchScore,
    MachineFacts,
    Project,
    Provenance,
    Target,
    TimingResult,
)
from harness.records.grade import REPEATED, SCALED
from harness.skills.overlap import provenance
from harness.suite.catalogue import LoadedTask
from sandboxes.job import Sandbox

if TYPE_CHECKING:
    import torch

    from harness.device.telemetry import Conditions
    from harness.judge.candidates import Candidates
    from harness.judge.gpu import Gpu
    from harness.judge.worker_client import WorkerClient
    from harness.judge.worker_job import Source

GRADER_VERSION = "5"
"""Part of every grading key: raise it when the same project may be graded differently."""

StageObserver = Callable[[str], None]
T = TypeVar("T")


class Grader:
    """Grades projects; safe to use from several threads. Close it when done."""

    def __init__(
        self,
        settings: GradeSettings,
        sandbox: Sandbox,
        toolchain: Toolchain,
        machine: MachineFacts,
        health: DeviceHealth | None = None,
        gpu: Gpu | None = None,
    ) -> None:
        """`health`: of what projects run on (default: that of `gpu`, or of this host). `gpu`: the one that
        settings.device names, closed with the grader; without it projects for CUDA are only built.

        Raises UsageError when this machine cannot build for the target.
        """
        missing = toolchain.missing(settings.target)
        if missing is not None:
            raise UsageError(f"cannot build for {settings.target}: {missing}")
        self._settings = settings
        self._sandbox = sandbox
        self._toolchain = toolchain
        self._machine = machine
        self._phases = Phases()
        self._quiet = QuietLock(settings.cache / "locks", settings.device or "cpu")
        self._judge_cpus, worker_cpus = judge_and_worker_cpus()
        self._gpu = gpu
        # One project at a time has a GPU: whose fault a lost device was could not be told otherwise.
        self._turn: AbstractContextManager[object] = nullcontext() if gpu is None else threading.Lock()
        transport = None if gpu is None else gpu.transport
        self._workers = Workers(settings, sandbox, toolchain, worker_cpus, transport)
        self._examination = Examination(settings, self._workers, toolchain)
        self._importing = ImportStage(
            self._workers, toolchain, machine, settings.no_device, self._quiet.shared
        )
        self._board = board_of(machine.gpu, settings.device)
        usual = HostHealth(settings.cache) if gpu is None else gpu.health
        self._guard = HealthGuard(usual if health is None else health)

    @property
    def target(self) -> Target:
        """What it grades for."""
        return self._settings.target

    @property
    def device_bytes(self) -> int | None:
        """Memory of the GPU that projects run on; None where there is none."""
        return None if self._gpu is None else self._gpu.memory_bytes

    @property
    def truth_device(self) -> torch.device | None:
        """Where inputs and truth are made; None where projects of this target are only built."""
        return self._workers.transport.device if self._runs else None

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
        with watching(temporary_files(), builds(self._settings.cache)):
            return _Grading(self, loaded, project, time.monotonic()).run(log, observer)

    def lost_a_device(self, project: str) -> None:
        """In an earlier session a device was lost under that project (digest): it has had its retry."""
        self._guard.remember(project)

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        """The grade of a reply that held no project."""
        return _Grading(self, loaded, None, time.monotonic()).ended(Stage.PROJECT, finding)

    def _build(self, project: Project, log: Path | None) -> Built:
        settings = self._settings
        with self._quiet.shared():
            if self._runs:
                self._workers.expect()
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

    @property
    def _runs(self) -> bool:
        """Whether projects of this target are run here, and not only built."""
        return self.target == "cpu" or self._settings.device is not None

    def _conditions(self, contenders: Candidates) -> Conditions:
        """What a measurement of these looks at."""
        from harness.device.telemetry import HostConditions

        return HostConditions() if self._gpu is None else self._gpu.conditions(len(contenders.resident))

    def close(self) -> None:
        """End the workers that are kept between grades, and let go of the GPU."""
        self._workers.close()
        if self._gpu is not None:
            self._gpu.close()


class _Grading:
    """One grade in the making."""

    def __init__(self, grader: Grader, loaded: LoadedTask, project: Project | None, start: float) -> None:
        self._grader = grader
        self._loaded = loaded
        self._project = project
        self._start = start
        self._build: BuildResult | None = None
        self._check: CheckResult | None = None
        self._seen = Seen()
        self._provenance: Provenance | None = None
        self._timing: TimingResult | None = None
        self._source: Source | None = None
        self._built: Built | None = None
        self._repeated = False

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
            flags=self._flags(),
            build=self._diagnosed(stage, finding),
            check=self._check,
            timing=self._timing,
            evidence=self._seen.evidence,
            provenance=self._provenance,
            sanitizers=self._seen.sanitizers or unsanitized(settings, finding),
            sandbox=grader._sandbox.name,
            sandbox_facts=grader._sandbox.facts(),
            machine=grader._machine.digest,
            wall_s=time.monotonic() - self._start,
        )

    def _flags(self) -> tuple[str, ...]:
        """Of all stages, each once."""
        timing = () if self._timing is None else self._timing.flags
        beside = flags_beside(self._build, self._loaded.task, self._seen, self._provenance)
        repeated = (REPEATED,) if self._repeated else ()
        scaled = (SCALED,) if self._loaded.task.scaled(self._grader.target) else ()
        return tuple(dict.fromkeys((*beside, *timing, *repeated, *scaled)))

    def _diagnosed(self, stage: Stage, finding: Finding) -> BuildResult | None:
        """The build; where its library could not be loaded, with what that says of the binding."""
        failed = stage is Stage.LOAD and finding.verdict in {Verdict.LOAD_FAILED, Verdict.CRASHED}
        if self._build is None or self._project is None or not failed:
            return self._build
        files = {file.path: file.text for file in self._project.files}
        return self._build.model_copy(update={"diagnostics": load_failure(finding.message, files)})

    def run(self, log: Path | None, observer: StageObserver) -> Grade:
        """All stages, until one ends it."""
        project = self._project
        if project is None:
            raise HarnessBug("nothing to build")
        with self._grader._turn:
            ended = self._grader._guard.watch(project.digest, lambda: self._stages(project, log, observer))
        if isinstance(ended, Grade):
            return ended
        checked = self._check is not None and self._check.finding is None
        return self.ended(Stage.TIME if checked else Stage.CHECK, ended)

    def _stages(self, project: Project, log: Path | None, observer: StageObserver) -> Grade:
        with device_errors():
            grade = self._once_more(lambda: self._own_stages(project, log, observer))
            source, task, settings = self._source, self._loaded.task, self._grader._settings
            theirs = task.also is not None and not task.scaled(settings.target)
            if source is None or not theirs or not settings.timed:
                return grade
            observer("KernelBench's rules")
            score = self._once_more(
                lambda: self._by_kernelbench(replace(source, repeatable=not self._repeated))
            )
            return grade.model_copy(update={"kernelbench": score})

    def _once_more(self, work: Callable[[], T]) -> T:
        """Work, repeated where a worker was perhaps killed from outside: once in a grade."""
        from harness.judge.worker_client import Killed

        try:
            return work()
        except Killed:
            self._repeated = True
            self._check, self._timing, self._seen = None, None, Seen()
            return work()

    def _by_kernelbench(self, source: Source) -> KernelBenchScore:
        """Whatever our verdict is: theirs may differ, and their rates count every project that was built."""
        from harness.judge.candidates import trusted_sources
        from harness.judge.check import problems
        from harness.kernelbench.rules import score

        grader, workers = self._grader, self._grader._workers
        (problem,) = problems(self._loaded, grader.target, device=workers.transport.device)
        eager = trusted_sources(self._loaded, problem, compiled=False)["eager"]
        with grader._phases.timing(), grader._quiet.exclusive():
            return score(problem, lambda: workers.start(source), lambda: workers.start(eager))

    def _own_stages(self, project: Project, log: Path | None, observer: StageObserver) -> Grade:
        with self._grader._phases.work():
            ready = self._prepare(project, log, observer)
            if not isinstance(ready, Grade):
                ready = self._examine(*ready)
        if isinstance(ready, Grade):
            return ready
        if self._grader._settings.timed:
            return self._time(*ready, observer)
        ready[0].close()
        return self.ended(Stage.CHECK, Finding(cause=Cause.PASSED, message="correct; speed not asked for"))

    def _prepare(
        self, project: Project, log: Path | None, observer: StageObserver
    ) -> Grade | tuple[WorkerClient, Source]:
        """Build, load and check: a grade, or a student that is ready to be timed."""
        observer("build")
        with self._grader._quiet.shared():
            self._provenance = provenance(project, self._loaded)
        built = self._built or self._grader._build(project, log)
        self._built, self._build = built, built.result
        if built.result.finding is not None:
            return self.ended(Stage.BUILD, built.result.finding)
        task = self._loaded.task
        finding = wrong_package(built.result, task) or forbidden_calls(built.result, task)
        if finding is not None:
            return self.ended(Stage.LOAD, finding)
        if not self._grader._runs:
            repeatable = not self._repeated
            return self.ended(*self._grader._importing.end(built, task, observer, repeatable))
        observer("check")
        self._source = replace(project_source(built, task), repeatable=not self._repeated)
        return self._load_and_check(self._source)

    def _load_and_check(self, source: Source) -> Grade | tuple[WorkerClient, Source]:
        from harness.judge.worker_client import Failed

        grader = self._grader
        with grader._quiet.shared():
            student = grader._workers.start(source)
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

    def _examine(self, student: WorkerClient, source: Source) -> Grade | tuple[WorkerClient, Source]:
        """A traced call and the sanitizers, where they are due: only what a task forbids ends a grade."""
        with self._grader._quiet.shared():
            if self._project is None:
                raise HarnessBug("nothing to examine")
            examine = self._grader._examination.examine
            self._seen = examine(student, source, self._loaded, self._build, self._project)
        if self._seen.finding is None:
            return student, source
        student.close()
        return self.ended(Stage.CHECK, self._seen.finding)

    def _time(self, student: WorkerClient, source: Source, observer: StageObserver) -> Grade:
        observer("time")
        stays = not self._fresh_processes
        if not stays:
            student.close()
        try:
            # Waiting for the machine is not the student's time.
            if stays:
                student.freeze(True)
            with self._grader._phases.timing(), self._grader._quiet.exclusive():
                if stays:
                    student.freeze(False)
                self._timing = self._run_timing(student if stays else None, source)
        finally:
            if stays:
                student.close()
        if self._timing.finding is not None:
            return self.ended(Stage.TIME, self._timing.finding)
        return self.ended(Stage.TIME, Finding(cause=Cause.PASSED, message="correct on every workload"))

    @property
    def _fresh_processes(self) -> bool:
        """Whether the process that was checked ends before anything is timed: the full protocol compares
        processes, and on a device what a frozen process has started goes on."""
        grader = self._grader
        return grader._workers.numbers.fresh_processes or grader._settings.device is not None

    def _run_check(self, student: WorkerClient) -> CheckResult:
        import torch

        from harness.judge.check import check

        torch.set_num_threads(1)
        settings = self._grader._settings
        return check(student, self._loaded, settings.target, settings.protocol)

    def _run_timing(self, student: WorkerClient | None, source: Source) -> TimingResult:
        from harness.judge.check import problems
        from harness.judge.measurement import Session
        from harness.judge.timing import time_project

        grader = self._grader
        workers, target = grader._workers, grader._settings.target
        timed = problems(self._loaded, target, timed_only=True, device=workers.transport.device)
        stay = False
        try:
            contenders = workers.contenders(source, self._loaded, timed[0], student)
            conditions = grader._conditions(contenders)
            session = Session(
                workers.numbers, workers.transport, conditions, grader._judge_cpus, grader._board
            )
            result = time_project(contenders, timed, session)
            # The next check of a GPU finds nobody on it but the judge.
            stay = grader._gpu is None
        finally:
            if not stay:
                # The measurement broke off in the middle: start afresh next time.
                workers.discard_trusted()
        return result
