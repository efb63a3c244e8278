"""What is looked at beside check and time: a traced call, and the sanitizers.

Nothing here is a pass: what could not be looked at is recorded with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from harness.builder.toolchain import Toolchain
from harness.builder.validate import python_facts
from harness.errors import HarnessBug
from harness.grading.load import call_flags
from harness.grading.workers import GradeSettings, Workers
from harness.judge.evidence import forbidden_work, sanitizer_flags, trace_flags
from harness.records import BuildResult, Evidence, Finding, Project, Provenance, SanitizerRun, Task
from harness.records.evidence import SANITIZER_TOOLS
from harness.suite.catalogue import LoadedTask

if TYPE_CHECKING:
    from harness.judge.problem import Problem
    from harness.judge.worker_client import WorkerClient
    from harness.judge.worker_job import Source

IMPORTS_NUMPY = "imports NumPy"
"""Which no trace of PyTorch's operators sees."""
_REASON_CHARS = 300


@dataclass(frozen=True)
class Seen:
    """What one examination found."""

    evidence: Evidence | None = None
    sanitizers: tuple[SanitizerRun, ...] = ()
    finding: Finding | None = None
    """The traced call does what the task forbids."""
    imports: tuple[str, ...] = ()
    """Modules that the package's Python imports; empty where it only passes calls on."""


def flags_beside(
    build: BuildResult | None, task: Task, seen: Seen, source: Provenance | None
) -> tuple[str, ...]:
    """What stands beside a verdict: of the library's calls, of the trace, sanitizers and the source."""
    calls = () if build is None else call_flags(build, task)
    copied = () if source is None else source.flags
    numpy = (IMPORTS_NUMPY,) if "numpy" in seen.imports and task.library_calls != "allow" else ()
    traced = trace_flags(seen.evidence, task)
    # The library's calls and the trace share a flag.
    return tuple(dict.fromkeys((*calls, *traced, *numpy, *sanitizer_flags(seen.sanitizers), *copied)))


def unsanitized(settings: GradeSettings, ended: Finding) -> tuple[SanitizerRun, ...]:
    """What stands in the record where the tools were asked for and the grade ended before them."""
    if not settings.sanitize:
        return ()
    why = f"not reached: {ended.message}"[:_REASON_CHARS]
    return tuple(SanitizerRun(tool=tool, status="not_measured", message=why) for tool in SANITIZER_TOOLS)


class Examination:
    """Looks at one correct project; safe to share between threads."""

    def __init__(self, settings: GradeSettings, workers: Workers, toolchain: Toolchain) -> None:
        self._settings = settings
        self._workers = workers
        self._toolchain = toolchain

    def examine(
        self,
        student: WorkerClient,
        source: Source,
        loaded: LoadedTask,
        build: BuildResult | None,
        project: Project,
    ) -> Seen:
        """Everything that is due. `student` waits, frozen: its wall limit does not run. Raises InfraError,
        and has closed it then.
        """
        if build is None:
            raise HarnessBug("a project without a build was checked")
        try:
            student.freeze(True)
            python = python_facts({f.path: f.text for f in project.files if f.path.endswith(".py")})
            evidence = self.trace(source, loaded, build, thin=python.thin)
            finding = forbidden_work(evidence, loaded.task)
            runs = self.sanitize(source, loaded) if finding is None else ()
            student.freeze(False)
        except BaseException:
            student.close()
            raise
        return Seen(evidence, runs, finding, () if python.thin else python.imports)

    def trace(self, source: Source, loaded: LoadedTask, build: BuildResult, *, thin: bool) -> Evidence | None:
        """Trace one call on the smallest timed workload, where that is due. Raises InfraError.

        It costs another worker and a call. `quick` saves them where the package's Python is `thin` and so
        cannot do the work itself, unless the task forbids library calls, and where the task allows them.
        """
        calls = loaded.task.library_calls
        if self._settings.protocol == "quick" and (calls == "allow" or (thin and calls != "forbid")):
            return None
        from harness.judge.evidence import gather, untraced
        from harness.judge.worker_client import Failed

        problem = min(self._problems(loaded, timed_only=True), key=lambda one: one.size_bytes)
        worker = self._workers.start(source)
        try:
            worker.load()
            return gather(worker, problem, build, source.namespace)
        except Failed as failure:
            return untraced(problem, f"it could not be loaded again: {failure.finding.message}")
        finally:
            worker.close()

    def _problems(self, loaded: LoadedTask, *, timed_only: bool) -> list[Problem]:
        from harness.judge.check import problems

        device = self._workers.transport.device
        return problems(loaded, self._settings.target, timed_only=timed_only, device=device)

    def sanitize(self, source: Source, loaded: LoadedTask) -> tuple[SanitizerRun, ...]:
        """Run every tool on the smallest workload that is not trivial, where asked for. Raises InfraError."""
        if not self._settings.sanitize:
            return ()
        from harness.judge.sanitizer import absent_runs, find_sanitizer, sanitize, smallest

        if self._toolchain.in_image:
            return absent_runs("jobs run in an image: its compute-sanitizer is not looked for")
        cuda = self._toolchain.cuda
        found = find_sanitizer(None if cuda is None else cuda.root)
        if isinstance(found, str):
            return absent_runs(found)
        problem = smallest(self._problems(loaded, timed_only=False))
        return sanitize(partial(self._workers.start_under, source), found, problem)
