"""Grades one project on one task: build -> load -> check -> time -> Grade.

Each stage returns a finding, whose cause has a verdict; only here it is decided which finding ends a grade.
A Grade never relies on a worker's claims alone. Infrastructure failures are raised as InfraError.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

import torch

from harness.builder.build import Built, build
from harness.builder.diagnostics import load_failure
from harness.builder.toolchain import Toolchain
from harness.device.emulated.engine import Engine
from harness.device.health import DeviceHealth, HealthGuard, HostHealth, device_errors
from harness.device.machine import Cores, Phases, QuietLock, judge_and_worker_cpus
from harness.device.telemetry import Conditions, Telemetry
from harness.errors import UsageError
from harness.files import builds, temporary_files, watching
from harness.grading.emulation import Emulation
from harness.grading.instrumentation import Instrumentation, Seen, flags_beside, unsanitized
from harness.grading.load import (
    cannot_run_cuda,
    load_refusal,
    no_operators,
    unresolved_symbols,
    wants_gpu,
    why_not_imported,
    with_note,
    with_symbol_names,
)
from harness.grading.workers import GradeSettings, Workers, frozen, project_source
from harness.judge.candidates import Candidates, reference_source
from harness.judge.check import check, problems
from harness.judge.keystream import Seed
from harness.judge.measurement import Session, time_project
from harness.judge.physical_limits import board_of
from harness.judge.problem import Problem
from harness.judge.usable_gpu import Gpu
from harness.judge.worker_client import Failed, Killed, Source, WorkerClient
from harness.kernelbench.rules import score
from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    BuildResult,
    CheckResult,
    Finding,
    Grade,
    KernelBenchScore,
    MachineFacts,
    Place,
    Project,
    Provenance,
    Target,
    TimingResult,
)
from harness.records.grade import KNOWN_SEED, REPEATED, SCALED
from harness.skills.overlap import provenance
from harness.suite.catalogue import LoadedTask
from sandboxes.job import Sandbox

StageObserver = Callable[[str], None]
_T = TypeVar("_T")


class StageEnded(Exception):
    """Ends a grade at a stage, with the finding that gives the verdict. Raised for success too: PASSED."""

    def __init__(self, stage: Stage, finding: Finding) -> None:
        super().__init__(finding.message)
        self.stage = stage
        self.finding = finding


class StudentWorker(NamedTuple):
    """A worker that has loaded a student's package, and what it loaded."""

    worker: WorkerClient
    source: Source


@dataclass
class GradeInProgress:
    """One project on its way through the stages, with the result of each stage that it has reached."""

    loaded: LoadedTask
    project: Project | None
    log: Path | None = None
    observer: StageObserver = lambda stage: None
    seed: bytes | None = None
    """Given for the check; None: it draws a secret one."""
    started: float = field(default_factory=time.monotonic)
    provenance: Provenance | None = None
    built: Built | None = None
    source: Source | None = None
    """What workers load; None until the check is due."""
    check: CheckResult | None = None
    seen: Seen = field(default_factory=Seen)
    timing: TimingResult | None = None
    repeated: bool = False
    """A worker was killed, perhaps from outside; the next such death is the student's."""

    def twice(self, work: Callable[[], _T]) -> _T:
        """Once more where a worker may have been killed from outside: without its results, but the build."""
        with suppress(Killed):
            return work()
        self.repeated = True
        self.check, self.timing, self.seen = None, None, Seen()
        return work()

    @property
    def build(self) -> BuildResult | None:
        return None if self.built is None else self.built.result


class Grader:
    """Grades projects. Thread-safe; close it when done."""

    def __init__(
        self,
        settings: GradeSettings,
        sandbox: Sandbox,
        toolchain: Toolchain,
        machine: MachineFacts,
        health: DeviceHealth | None = None,
        gpu: Gpu | None = None,
        cores: Cores | None = None,
    ) -> None:
        """`gpu`: the opened GPU of `settings.device`, closed with the grader; without it, CUDA projects are
        only built. `health`: replaces the health check of the GPU or host. `cores`: by default chosen here.

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
        # Builds disturb who is timed on the CPU, but not a GPU whose judge and workers have their own cores.
        self._building = QuietLock(settings.cache / "locks", "cpu")
        self._judge_cpus, worker_cpus = judge_and_worker_cpus() if cores is None else cores[:2]
        self._gpu = gpu
        # A GPU grades one project at a time, so that a lost device can be attributed.
        self._gpu_lock: AbstractContextManager[object] = nullcontext() if gpu is None else threading.Lock()
        transport = None if gpu is None else gpu.transport
        self._workers = Workers(settings, sandbox, toolchain, worker_cpus, transport)
        self._instrumentation = Instrumentation(settings, self._workers, toolchain)
        engine = Engine(settings.cache / "emulated", sandbox, toolchain)
        self._emulation = Emulation(engine, self._workers, settings.protocol)
        self._board = board_of(machine.gpu, settings.device)
        usual = HostHealth(settings.cache) if gpu is None else gpu.health
        self._guard = HealthGuard(usual if health is None else health)

    @property
    def target(self) -> Target:
        return self._settings.target

    @property
    def device_bytes(self) -> int | None:
        """Memory of the GPU that projects run on; None where there is none."""
        return None if self._gpu is None else self._gpu.memory_bytes

    @property
    def no_device(self) -> str | None:
        """Why this machine's GPU cannot be used; None where it can, or there is none."""
        return self._settings.no_device

    @property
    def truth_device(self) -> torch.device | None:
        """Where inputs and truth are computed; None where projects are only built."""
        return self._workers.transport.device if self._runs else None

    @property
    def _runs(self) -> bool:
        return self.target == "cpu" or self._settings.device is not None

    def grade(
        self,
        project: Project,
        loaded: LoadedTask,
        *,
        log: Path | None = None,
        observer: StageObserver = lambda stage: None,
        seed: bytes | None = None,
    ) -> Grade:
        """Grade a project. `log` receives the build log; `seed`: of the check's shapes and inputs (default: a
        secret one). Raises InfraError and its kinds."""
        work = GradeInProgress(loaded, project, log, observer, seed)
        with watching(temporary_files(), builds(self._settings.cache)):
            if self._gpu is not None:
                self._built(work, project)  # beside what the GPU does for other projects
            with self._gpu_lock:
                ended = self._guard.watch(project.digest, partial(self._run, work, project))
        if isinstance(ended, Grade):
            return self._with_emulation(ended, work)
        checked = work.check is not None and work.check.finding is None
        return self._record(work, StageEnded(Stage.TIME if checked else Stage.CHECK, ended))

    def _with_emulation(self, grade: Grade, work: GradeInProgress) -> Grade:
        """A grade that no GPU measured, with the check on the emulated GPU where that is wanted."""
        unmeasured = grade.verdict is Verdict.NOT_MEASURED and grade.compiled
        if not self._settings.emulate or not unmeasured or work.built is None:
            return grade
        work.observer("check on the emulated GPU")
        torch.set_num_threads(1)  # others would spin on the cores that the worker uses
        with self._quiet.shared():
            emulated = self._emulation.check(work.built, work.loaded, work.seed)
        return grade.model_copy(update={"emulated": emulated, "wall_s": time.monotonic() - work.started})

    def no_project(self, finding: Finding, loaded: LoadedTask) -> Grade:
        return self._record(GradeInProgress(loaded, None), StageEnded(Stage.PROJECT, finding))

    def lost_a_device(self, project: str) -> None:
        """Count a device lost under that project (digest) in an earlier session: its retry is spent."""
        self._guard.remember(project)

    def close(self) -> None:
        self._workers.close()
        if self._gpu is not None:
            self._gpu.close()

    def _run(self, work: GradeInProgress, project: Project) -> Grade:
        """All stages, repeated once where a worker may have been killed from outside."""
        with device_errors():
            grade = work.twice(lambda: self._stages(work, project))
            task = work.loaded.task
            converted = task.also is not None and not task.scaled(self.target)
            if work.source is None or not converted or not self._settings.timed:
                return grade
            work.observer("KernelBench's rules")
            kernelbench = work.twice(partial(self._kernelbench, work, work.source))
            return grade.model_copy(update={"kernelbench": kernelbench})

    def _stages(self, work: GradeInProgress, project: Project) -> Grade:
        """Build, load, check and time: the grade where the first of them ends it."""
        try:
            with self._phases.work():
                built = self._built(work, project)
                _end_on(Stage.BUILD, built.result.finding)
                _end_on(Stage.LOAD, load_refusal(built.result, work.loaded.task))
                # A worker that does not go on to be timed is killed before anybody may measure.
                with self._quiet.shared(), ExitStack() as ending, ExitStack() as starting:
                    ending.callback(self._sandbox.settle)
                    student = starting.enter_context(self._load(work, built))
                    if self._settings.timed and self._gpu is None:
                        self._workers.expect(reference_source(work.loaded))
                    torch.set_num_threads(1)
                    seed, protocol = Seed(work.seed), self._settings.protocol
                    work.check = check(student.worker, work.loaded, self.target, protocol, seed=seed)
                    _end_on(Stage.CHECK, work.check.finding)
                    with self._set_aside(student.worker):
                        work.seen = self._instrumentation.inspect(
                            student.source, project, work.loaded, built.result
                        )
                    _end_on(Stage.CHECK, work.seen.finding)
                    life = starting.pop_all()
            with life:
                if not self._settings.timed:
                    said = "correct; speed not asked for"
                    raise StageEnded(Stage.CHECK, Finding(cause=Cause.PASSED, message=said))
                work.observer("time")
                work.timing = self._time(work.loaded, student)
            _end_on(Stage.TIME, work.timing.finding)
            raise StageEnded(Stage.TIME, Finding(cause=Cause.PASSED, message="correct on every workload"))
        except StageEnded as ended:
            return self._record(work, ended)

    def _built(self, work: GradeInProgress, project: Project) -> Built:
        """The build, and what the project shares with experts: once in a grade."""
        if work.built is not None:
            return work.built
        work.observer("build")
        with self._building.shared(), ExitStack() as ending:
            ending.callback(self._sandbox.settle)  # no process may start while another project is measured
            if self._runs and self._gpu is None:  # a GPU may be measuring another project
                self._workers.expect(Source("null"))
            work.provenance = provenance(project, work.loaded)
            work.built = build(
                project,
                self.target,
                sandbox=self._sandbox,
                toolchain=self._toolchain,
                cache=self._settings.cache / "builds",
                log=work.log,
                wall_s=self._settings.build_wall_s,
            )
        return work.built

    @contextmanager
    def _load(self, work: GradeInProgress, built: Built) -> Iterator[StudentWorker]:
        """A worker with the package loaded. Raises StageEnded; always where CUDA cannot run."""
        cannot = cannot_run_cuda(self._machine, built.result, self._settings.no_device)
        if not self._runs:
            self._end_without_gpu(built.result, cannot)
        work.observer("check" if self._runs else "load")
        source = replace(project_source(built, work.loaded.task), repeatable=not work.repeated)
        work.source = source if self._runs else None
        with self._workers.start(source) as worker:
            failure: Finding | None = None
            try:
                worker.load()
            except Failed as failed:
                failure = with_symbol_names(failed.finding, built.result)
            if not self._runs:
                unregistered = None if worker.operators else no_operators(source.namespace)
                _end_after_import(cannot, failure or unregistered)
            _end_on(Stage.LOAD, failure)
            yield StudentWorker(worker, source)

    def _set_aside(self, worker: WorkerClient) -> AbstractContextManager[None]:
        """Stop a student's worker while others of the same project run. On a GPU it is ended: it may hold
        memory without which another worker could not even start."""
        if self._settings.device is None:
            return frozen(worker)
        worker.close()
        return nullcontext()

    def _end_without_gpu(self, build: BuildResult, cannot: Finding) -> None:
        """Raises StageEnded where a CUDA package cannot even be imported here."""
        if build.jit:
            raise StageEnded(Stage.LOAD, cannot)
        _end_on(Stage.LOAD, unresolved_symbols(build))
        if self._toolchain.torch_cuda is None:
            raise StageEnded(Stage.LOAD, with_note(cannot, why_not_imported(build)))

    def _time(self, loaded: LoadedTask, student: StudentWorker) -> TimingResult:
        """Time a correct project against its references; ends its worker."""
        # `full` compares processes; and on a device, what a frozen process started goes on.
        stays = not self._workers.numbers.fresh_processes and self._settings.device is None
        if stays:
            student.worker.freeze(True)  # waiting for the machine does not count against its wall-clock limit
        else:
            student.worker.close()
        with self._phases.timing(), self._quiet.exclusive():
            if stays:
                student.worker.freeze(False)
            keep = False
            try:
                result = time_project(*self._session(loaded, student, stays))
                keep = self._gpu is None  # a GPU's next health check allows no process but the judge's
                return result
            finally:
                if not keep:
                    self._workers.discard_trusted()

    def _session(
        self, loaded: LoadedTask, student: StudentWorker, stays: bool
    ) -> tuple[Candidates, list[Problem], Session]:
        workers, gpu = self._workers, self._gpu
        device, kernels = workers.transport.device, workers.transport.kernels
        timed = problems(loaded, self.target, timed_only=True, device=device, kernels=kernels)
        candidates = workers.candidates(student.source, loaded, timed[0], student.worker if stays else None)
        conditions = Conditions(Telemetry(), around_turns=True)
        if gpu is not None:
            conditions = Conditions(gpu.telemetry, len(candidates.resident), doubt=gpu.speed.doubt)
        gap_cpus = frozenset(os.sched_getaffinity(0)) if self._settings.device is None else frozenset()
        session = Session(
            workers.numbers, workers.transport, conditions, self._judge_cpus, gap_cpus, self._board
        )
        return candidates, timed, session

    def _kernelbench(self, work: GradeInProgress, source: Source) -> KernelBenchScore:
        """Score by KernelBench's rules, which also count projects that are wrong by ours."""
        workers = self._workers
        (problem,) = problems(work.loaded, self.target, device=workers.transport.device)
        student, eager = replace(source, repeatable=not work.repeated), reference_source(work.loaded)
        with self._phases.timing(), self._quiet.exclusive():
            return score(problem, partial(workers.start, student), partial(workers.start, eager))

    def _record(self, work: GradeInProgress, ended: StageEnded) -> Grade:
        """The grade of what was reached."""
        settings, task = self._settings, work.loaded.task
        return Grade(
            task=task.id,
            task_digest=task.digest,
            project=None if work.project is None else work.project.digest,
            target=settings.target,
            protocol=settings.protocol,
            verdict=ended.finding.verdict,
            stage=ended.stage,
            finding=ended.finding,
            flags=self._flags(work),
            build=_diagnosed(work, ended),
            check=work.check,
            timing=work.timing,
            evidence=work.seen.evidence,
            provenance=work.provenance,
            sanitizers=work.seen.sanitizers or unsanitized(settings, ended.finding),
            sandbox=self._sandbox.name,
            sandbox_facts=self._sandbox.facts(),
            machine=self._machine.digest,
            place=self._place(),
            wall_s=time.monotonic() - work.started,
        )

    def _place(self) -> Place:
        uuid, machine = self._settings.device, self._machine
        device = machine.cpu if self.target == "cpu" else machine.gpu
        return Place(node=platform.node(), gpu_uuid=uuid, driver=machine.driver, device=device)

    def _flags(self, work: GradeInProgress) -> tuple[str, ...]:
        task = work.loaded.task
        timing = () if work.timing is None else work.timing.flags
        repeated = (REPEATED,) if work.repeated else ()
        known = () if work.seed is None else (KNOWN_SEED,)
        scaled = (SCALED,) if task.scaled(self.target) else ()
        beside = flags_beside(work.build, task, work.seen, work.provenance)
        return tuple(dict.fromkeys((*beside, *timing, *repeated, *scaled, *known)))


def _end_after_import(cannot: Finding, failure: Finding | None) -> None:
    """Raises StageEnded: a CUDA package was imported, or not, and this machine cannot run it."""
    if failure is None:
        raise StageEnded(Stage.CHECK, with_note(cannot, "it imports, and its operators are registered"))
    if wants_gpu(failure):
        raise StageEnded(Stage.LOAD, with_note(cannot, f"its import asks for one: {failure.message}"))
    raise StageEnded(Stage.LOAD, failure)


def _end_on(stage: Stage, finding: Finding | None) -> None:
    if finding is not None:
        raise StageEnded(stage, finding)


def _diagnosed(work: GradeInProgress, ended: StageEnded) -> BuildResult | None:
    """The build, with diagnostics of its binding where the library could not be loaded."""
    failed = ended.stage is Stage.LOAD and ended.finding.verdict in {Verdict.LOAD_FAILED, Verdict.CRASHED}
    if work.build is None or work.project is None or not failed:
        return work.build
    files = {file.path: file.text for file in work.project.files}
    return work.build.model_copy(update={"diagnostics": load_failure(ended.finding.message, files)})
