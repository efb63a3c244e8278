"""Compiles the pieces of C++ and CUDA that a skill shows, in the sandbox's build role.

Owns: which way of compiling a piece counts, and where in the skill its first error stands. Does not own: the
ways (fragments.py), or the compiler: the caller hands in a function that builds a project.
Invariant: code is called wrong only when every way to compile it failed by the code's own fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from harness.outcome import Cause
from harness.records import BuildResult, Project, Target
from harness.skills.blocks import CodeBlock
from harness.skills.facts import fact_findings
from harness.skills.findings import SkillFinding, error
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
    message: str


def compile_block(block: CodeBlock, companions: Mapping[str, str], build: Build) -> Tried:
    """Try the ways to compile `block` until one succeeds. Raises SandboxError and HarnessBug.

    What is known not to build is not tried: torch/extension.h alone costs minutes.
    """
    known = next((f for f in fact_findings(block.file, block.text) if f.severity == "error"), None)
    if known is not None:
        return Tried(finding=error(block.file, block.line + (known.line or 1), known.message))
    failures: list[_Failure] = []
    for attempt in attempts(block, companions):
        result = build(attempt.project, attempt.target)
        if result.finding is None or result.finding.cause in _COMPILED:
            return Tried()
        if result.finding.cause in _OURS:
            return Tried(unavailable=result.finding.message)
        failures.append(_failure(block, attempt, result))
    worst = max(failures, key=lambda failure: (failure.line, failure.helped))
    what = "this code does not compile for sm_90" if attempt.target == "cuda" else "this C++ does not compile"
    return Tried(finding=error(block.file, worst.line, f"{what}: {worst.message}"))


def _failure(block: CodeBlock, attempt: Attempt, result: BuildResult) -> _Failure:
    """The first error, at its line of the skill."""
    assert result.finding is not None
    helped = attempt.before > 0
    own = [d for d in result.diagnostics if d.file == attempt.path and d.line is not None]
    first = next(iter(own or result.diagnostics), None)
    if first is None:
        return _Failure(block.text_line, helped, result.finding.message.partition("\n")[0])
    message = first.message if first.advice is None else f"{first.message}: {first.advice}"
    if first.file != attempt.path or first.line is None:
        where = "" if first.file is None else f"{first.file}:{first.line or 1}: "
        return _Failure(block.text_line, helped, where + message)
    inside = first.line - attempt.before
    last = block.text.rstrip("\n").count("\n") + 1
    return _Failure(block.text_line - 1 + min(max(inside, 1), last), helped, message)
