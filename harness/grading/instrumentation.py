"""Evidence beside check and time: a traced call, compute-sanitizer, and the package's own Python."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from harness.builder.check_project import python_facts
from harness.builder.toolchain import Toolchain
from harness.grading.load import call_flags
from harness.grading.workers import GradeSettings, Workers
from harness.judge.call_trace import forbidden_work, gather, trace_flags, untraced
from harness.judge.check import problems
from harness.judge.sanitizer import absent_runs, find_sanitizer, run_tool, smallest
from harness.judge.worker_client import Failed, Source
from harness.records import BuildResult, Evidence, Finding, Project, Provenance, SanitizerRun, Task
from harness.records.grade import SANITIZER_TOOLS
from harness.suite.catalogue import LoadedTask

IMPORTS_NUMPY = "imports NumPy"
"""Flag: NumPy's work is not in a trace of PyTorch's operators."""
_REASON_CHARS = 300


@dataclass(frozen=True)
class Seen:
    """Result of instrumenting one project."""

    evidence: Evidence | None = None
    sanitizers: tuple[SanitizerRun, ...] = ()
    finding: Finding | None = None
    """The traced call does what the task forbids."""
    imports: tuple[str, ...] = ()
    """Modules that the package's Python imports; empty where it only passes calls on."""


def flags_beside(
    build: BuildResult | None, task: Task, seen: Seen, source: Provenance | None
) -> tuple[str, ...]:
    """Flags of the library's calls, the trace, NumPy, the sanitizers and the source's provenance."""
    calls = () if build is None else call_flags(build, task)
    copied = () if source is None else source.flags
    numpy = (IMPORTS_NUMPY,) if "numpy" in seen.imports and task.library_calls != "allow" else ()
    traced = trace_flags(seen.evidence, task)
    # The library's calls and the trace can raise the same flag.
    sanitized = (f"{run.tool} findings" for run in seen.sanitizers if run.findings)
    return tuple(dict.fromkeys((*calls, *traced, *numpy, *sanitized, *copied)))


def unsanitized(settings: GradeSettings, ended: Finding) -> tuple[SanitizerRun, ...]:
    """`not_measured` for every sanitizer that was requested, for a grade that ended before they ran."""
    if not settings.sanitize:
        return ()
    why = f"not reached: {ended.message}"[:_REASON_CHARS]
    return tuple(SanitizerRun(tool=tool, status="not_measured", message=why) for tool in SANITIZER_TOOLS)


@dataclass(frozen=True)
class Instrumentation:
    """Instruments correct projects; thread-safe. What cannot be measured is recorded with a reason."""

    settings: GradeSettings
    workers: Workers
    toolchain: Toolchain

    def inspect(self, source: Source, project: Project, loaded: LoadedTask, build: BuildResult) -> Seen:
        """Trace a call, then run the sanitizers, each where it is due. Raises InfraError."""
        python = python_facts({f.path: f.text for f in project.files if f.path.endswith(".py")})
        evidence = self.trace(source, loaded, build, thin=python.thin)
        finding = forbidden_work(evidence, loaded.task)
        runs = self._sanitize(source, loaded) if finding is None else ()
        return Seen(evidence, runs, finding, () if python.thin else python.imports)

    def trace(self, source: Source, loaded: LoadedTask, build: BuildResult, *, thin: bool) -> Evidence | None:
        """Trace one call on the smallest timed workload. Raises InfraError.

        `quick` omits it where the task allows library calls, and where the package's Python is `thin`, so
        that it cannot do the work itself, unless the task forbids library calls.
        """
        calls = loaded.task.library_calls
        if self.settings.protocol == "quick" and (calls == "allow" or (thin and calls != "forbid")):
            return None
        device = self.workers.transport.device
        timed = problems(loaded, self.settings.target, timed_only=True, device=device)
        problem = min(timed, key=lambda one: one.size_bytes)
        with self.workers.start(source) as worker:
            try:
                worker.load()
                return gather(worker, problem, build, source.namespace)
            except Failed as failure:
                return untraced(problem, f"it could not be loaded again: {failure.finding.message}")

    def _sanitize(self, source: Source, loaded: LoadedTask) -> tuple[SanitizerRun, ...]:
        """Run every requested tool on the smallest workload that is not trivial. Raises InfraError."""
        if not self.settings.sanitize:
            return ()
        if self.toolchain.in_image:
            return absent_runs("jobs run in an image: its compute-sanitizer is not looked for")
        cuda = self.toolchain.cuda
        found = find_sanitizer(None if cuda is None else cuda.root)
        if isinstance(found, str):
            return absent_runs(found)
        problem = smallest(problems(loaded, self.settings.target, device=self.workers.transport.device))
        start = partial(self.workers.start, source)
        return tuple(run_tool(start, found, tool, problem) for tool in SANITIZER_TOOLS)
