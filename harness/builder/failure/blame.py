"""Whose fault a failed run of ninja is, and what it says.

Owns: the Finding and the Diagnostics of one run. Does not own: running (compiling.py), formats and
kinds (log.py, diagnostics.py). Invariant: a Finding is the project's fault, or this machine's for lack
of a tool (NO_TOOLCHAIN); what is ours is raised. An error in a file outweighs a limit met later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from harness.builder.failure.diagnostics import diagnose, stopped, unfinished_sources, unfinished_text
from harness.builder.failure.log import (
    Failure,
    Step,
    failed_steps,
    failure_of,
    finished_outputs,
    missing_header,
    toolkit_gap,
)
from harness.builder.flags import library_path, object_path
from harness.builder.layout import SOURCE, Layout
from harness.builder.toolchain import Toolchain
from harness.errors import SandboxError
from harness.outcome import Cause
from harness.records import Diagnostic, DiagnosticKind, Finding
from sandboxes.job import ExitFacts

_NO_ERROR_LINE: Final = "the compiler failed without an error line"
_GENERATED: Final = "torch-ext/registration.h"
"""Ours: an error in its macros belongs to whoever used them."""
_LIMITS: Final[dict[str, tuple[Cause, DiagnosticKind, str]]] = {
    "wall_timeout": (Cause.BUILD_TIMEOUT, "timeout", "the build was stopped after {wall:.0f} s"),
    "cpu_timeout": (Cause.BUILD_TIMEOUT, "timeout", "the build was stopped after {wall:.0f} s"),
    "oom": (Cause.BUILD_LIMIT, "out_of_memory", "the build went over its memory limit"),
    "disk_limit": (Cause.BUILD_LIMIT, "other", "the build went over its disk limit"),
    "output_limit": (Cause.BUILD_LIMIT, "other", "the build went over its output limit"),
}


@dataclass(frozen=True)
class Run:
    """One run of ninja that has ended."""

    facts: ExitFacts
    ninja_log: str
    """Untrusted, as is the output in `facts`."""
    layout: Layout
    toolchain: Toolchain
    sees: Callable[[str], bool]
    """Whether a compiler in the sandbox finds a header of the toolchain's."""

    def finding(self) -> Finding | None:
        """Why it failed, as the project's fault; None when it did not. Raises SandboxError for ours."""
        facts, limit = self.facts, _LIMITS.get(self.facts.status)
        if facts.status == "ok":
            return None
        if limit is None and facts.status != "nonzero":
            tail = facts.output[-500:].strip()
            raise SandboxError(f"the build ended with {facts.status} (signal {facts.signal}): {tail}")
        failures = [failure_of(step) for step in self._failed]
        # A file that does not compile is the project's fault whatever became of the others.
        real = next((f for f in failures if not f.limit and not f.message.startswith(_NO_ERROR_LINE)), None)
        if limit is not None and real is None:
            return Finding(cause=limit[0], message=self._limit_message())
        if not failures:
            raise SandboxError(f"ninja failed before any step: {facts.output[-500:].strip()}")
        return self._tool_failure(real or failures[0])

    def diagnostics(self, finding: Finding | None) -> tuple[Diagnostic, ...]:
        """The first error of each file, and what a limit cut off; `finding` is this run's."""
        if finding is None:
            return ()
        texts = {f.path: f.text for f in self.layout.tree if f.path.startswith(f"{SOURCE}/")}
        files = {path.removeprefix(f"{SOURCE}/"): text for path, text in texts.items()}
        files.pop(_GENERATED, None)
        found = diagnose(self._failed, files, self._sources)
        limit = _LIMITS.get(self.facts.status)
        if limit is not None:
            found = (*found, stopped(limit[1], self._limit_message(), self._unfinished))
        if not found:
            kind: DiagnosticKind = "linker" if finding.cause is Cause.LINK_ERROR else "other"
            found = (stopped(kind, finding.message, ()),)
        return found

    # --- parts ---------------------------------------------------------------------------------

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return {object_path(unit): unit.source for unit in self.layout.units.units}

    @cached_property
    def _failed(self) -> list[Step]:
        """In the order of linking, so that the first is the same whoever was faster."""
        order = [*self._sources, library_path(self.layout)]
        return failed_steps(self.facts.output, self.toolchain, order)

    @cached_property
    def _unfinished(self) -> tuple[str, ...]:
        failed = [step for step in self._failed if not failure_of(step).limit]
        return unfinished_sources(self._sources, finished_outputs(self.ninja_log), failed)

    def _limit_message(self) -> str:
        text = _LIMITS[self.facts.status][2].format(wall=self.facts.wall_s)
        return f"{text}; {unfinished_text(self._unfinished)}"

    def _tool_failure(self, failure: Failure) -> Finding:
        # The exit code too, since a message of the project's may imitate ninja's line.
        not_started = failure.not_started and self.facts.code in {126, 127}
        if not_started or self._hidden(failure):
            raise SandboxError(f"the sandbox hides part of the toolchain: {failure.message[:500]}")
        if failure.limit:
            return Finding(cause=Cause.BUILD_LIMIT, message=failure.message)
        gap = toolkit_gap(failure.message, self.toolchain) if self.layout.target == "cuda" else None
        header = missing_header(failure.message)
        # Asked again here too: a header that is there is no gap, whatever a message says.
        if gap is not None and (header is None or not self.sees(header)):
            message = f"this machine cannot build it: {gap}\n{failure.message}"
            return Finding(cause=Cause.NO_TOOLCHAIN, message=message)
        cause = Cause.LINK_ERROR if failure.linking else Cause.COMPILE_ERROR
        return Finding(cause=cause, message=failure.message)

    def _hidden(self, failure: Failure) -> bool:
        """A header of the toolchain's was not found, though it is there and should be seen."""
        header, tools = missing_header(failure.message), self.toolchain
        if header is None or ".." in header or tools.torch_root is None:
            return False
        places = [tools.torch_root / "include", tools.python_include]
        if self.layout.target == "cuda" and tools.cuda is not None:
            places.append(tools.cuda.include)
        places += [place for found in tools.headers for place in found.include]
        there = any((tools.local(place) / header).is_file() for place in places if place is not None)
        # Asked again without the project: #line can make any text look like this error.
        return there and not self.sees(header)
