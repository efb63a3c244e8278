"""Compiles the pieces of C++ and CUDA that a skill shows, in the sandbox's build role.

Code is only judged when every way to compile it failed by the code's own fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from harness.outcome import Cause
from harness.records import BuildResult, Project, Target
from harness.skills.blocks import CodeBlock
from harness.skills.certainty import compiler_severity
from harness.skills.facts import unbuildable
from harness.skills.findings import Severity, SkillFinding
from harness.skills.fragments import Attempt, attempts

Build = Callable[[Project, Target], BuildResult]

_OURS: Final = frozenset({Cause.NO_TOOLCHAIN})
"""Causes that lie in this machine."""
_COMPILED: Final = frozenset({Cause.LINK_ERROR})
"""The object was made: that a piece lacks a definition is not held against it."""


class Tried(NamedTuple):
    """What became of compiling a piece: one of `finding` and `unavailable`, or neither where it compiles."""

    finding: SkillFinding | None = None
    unavailable: str | None = None
    """What this machine lacks to compile it."""


class _Failure(NamedTuple):
    """The furthest line is the most telling: a way that does not fit the piece fails at its beginning."""

    line: int
    helped: bool
    """With the usual headers: what is wrong without them is mostly that one is missing."""
    severity: Severity
    message: str


def compile_block(
    block: CodeBlock, companions: Mapping[str, str], build: Build, *, kernel_builder: bool = True
) -> Tried:
    """Try the ways to compile `block` until one succeeds. Raises SandboxError and HarnessBug.

    What is known not to build is not tried: torch/extension.h alone costs minutes.
    """
    known = next(iter(unbuildable(block.file, block.text, kernel_builder=kernel_builder)), None)
    if known is not None:
        return Tried(finding=known.model_copy(update={"line": block.line + (known.line or 1)}))
    failures: list[_Failure] = []
    for attempt in attempts(block, companions):
        result = build(attempt.project, attempt.target)
        if result.finding is None or result.finding.cause in _COMPILED:
            return Tried()
        if result.finding.cause in _OURS:
            return Tried(unavailable=result.finding.message)
        failures.append(_failure(block, attempt, result))
    worst = max(failures, key=lambda failure: (failure.line, failure.helped))
    what = "does not compile for sm_90" if attempt.target == "cuda" else "does not compile as C++"
    told = f"this code {what}: {worst.message}"
    if worst.severity == "note":
        told = f"not judged, as it needs what is not shown: {worst.message}"
    elif worst.severity == "warning":
        told = f"{told} (mark a piece that is not whole with the word `fragment`)"
    return Tried(
        finding=SkillFinding(file=block.file, line=worst.line, severity=worst.severity, message=told)
    )


def _failure(block: CodeBlock, attempt: Attempt, result: BuildResult) -> _Failure:
    """The first error, at its line of the skill."""
    assert result.finding is not None
    helped = attempt.before > 0
    own = [d for d in result.diagnostics if d.file == attempt.path and d.line is not None]
    first = next(iter(own or result.diagnostics), None)
    if first is None:
        return _Failure(block.text_line, helped, "warning", result.finding.message.partition("\n")[0])
    severity = compiler_severity(block, first)
    message = (
        first.message if first.advice is None or severity == "note" else f"{first.message}: {first.advice}"
    )
    if first.file != attempt.path or first.line is None:
        where = "" if first.file is None else f"{first.file}:{first.line or 1}: "
        return _Failure(block.text_line, helped, severity, where + message)
    inside = first.line - attempt.before
    last = block.text.rstrip("\n").count("\n") + 1
    return _Failure(block.text_line - 1 + min(max(inside, 1), last), helped, severity, message)
