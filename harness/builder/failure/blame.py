"""What a failed run of ninja means: its Finding and its Diagnostics.

Whose failure it is follows from sandboxes/job.py alone. What the tools printed is the project's own text
as soon as it wants it to be, so it decides only which of the student's causes is told, and which words.
An error in a file outweighs a limit met later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
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
from harness.builder.flags import library_path, object_path, system_directories
from harness.builder.layout import SOURCE, Layout
from harness.builder.toolchain import Toolchain
from harness.errors import SandboxError
from harness.outcome import Cause
from harness.records import Diagnostic, DiagnosticKind, Finding
from sandboxes.job import ExitFacts, raise_if_infra

_NO_ERROR_LINE: Final = "the compiler failed without an error line"
_GENERATED: Final = "torch-ext/registration.h"
"""Ours: an error in its macros belongs to whoever used them."""
_LIMITS: Final[dict[str, tuple[Cause, DiagnosticKind, str]]] = {
    "wall_timeout": (Cause.BUILD_TIMEOUT, "timeout", "the build was stopped after {wall:.0f} s"),
    "cpu_timeout": (Cause.BUILD_TIMEOUT, "timeout", "the build used up its CPU time in {wall:.0f} s"),
    "oom": (Cause.BUILD_LIMIT, "out_of_memory", "the build went over its memory limit"),
    "disk_limit": (Cause.BUILD_LIMIT, "other", "the build went over its disk limit"),
    "output_limit": (Cause.BUILD_LIMIT, "other", "the build went over its output limit"),
    "signal": (Cause.BUILD_LIMIT, "other", "the build was killed by signal {signal}"),
}


@dataclass(frozen=True)
class Run:
    """One run of ninja that has ended."""

    facts: ExitFacts
    ninja_log: str
    """Untrusted, as is the output in `facts`."""
    layout: Layout
    toolchain: Toolchain
    trouble: Callable[[], str | None]
    """Why a build of our own fails too, in the same sandbox; None where it does not."""

    def finding(self) -> Finding | None:
        """Why it failed, as the project's fault; None when it did not. Raises SandboxError for ours."""
        facts, limit = self.facts, _LIMITS.get(self.facts.status)
        if facts.status == "ok":
            return None
        raise_if_infra(facts, "building")
        failures = [failure_of(step) for step in self._failed]
        # A file that does not compile is the project's fault whatever became of the others.
        real = [f for f in failures if not f.limit and not f.message.startswith(_NO_ERROR_LINE)]
        if limit is not None and not real:
            return Finding(cause=limit[0], message=self._limit_message())
        trouble = self.trouble()
        if trouble is not None:
            raise SandboxError(f"this machine does not build a project of our own either: {trouble}")
        if not failures:
            # Warnings of other files can fill all of the output that is kept.
            said = f"{_NO_ERROR_LINE}\n{facts.output[-500:].strip()}"
            return Finding(cause=Cause.COMPILE_ERROR, message=said)
        return self._lacking(failures) or self._tool_failure((real or failures)[0])

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
        facts = self.facts
        text = _LIMITS[facts.status][2].format(wall=facts.wall_s, signal=facts.signal)
        return f"{text}; {unfinished_text(self._unfinished)}"

    def _lacking(self, failures: list[Failure]) -> Finding | None:
        """What every failed step needs and this machine has not; None where one failed for another reason."""
        gaps = [self._gap(failure.message) for failure in failures]
        if not all(gaps):
            return None
        message = f"this machine cannot build it: {gaps[0]}\n{failures[0].message}"
        return Finding(cause=Cause.NO_TOOLCHAIN, message=message)

    def _gap(self, message: str) -> str | None:
        tools, header = self.toolchain, missing_header(message)
        gap = toolkit_gap(message, tools) if self.layout.target == "cuda" else None
        if gap is None or header is None:
            return gap
        # Asked of the machine: a message may imitate any line.
        places = [Path(place) for place in system_directories(self.layout, tools)]
        there = any((tools.local(p) / header).is_file() for p in places if p.is_absolute())
        return None if there else gap

    @staticmethod
    def _tool_failure(failure: Failure) -> Finding:
        if failure.limit:
            return Finding(cause=Cause.BUILD_LIMIT, message=failure.message)
        cause = Cause.LINK_ERROR if failure.linking else Cause.COMPILE_ERROR
        return Finding(cause=cause, message=failure.message)
