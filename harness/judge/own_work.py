"""What a traced call means for a grade: flags, and the failure where the task forbids such work.

Nothing is held against a project without its reason; where a task forbids, what could not be traced is
refused, as what cannot be read is.
"""

from __future__ import annotations

from typing import Final

from harness.outcome import Cause
from harness.records import Evidence, Finding, SanitizerRun, Task

_SHOWN: Final = 4


def trace_flags(evidence: Evidence | None, task: Task) -> tuple[str, ...]:
    """What stands beside the grade; nothing where the task allows library calls."""
    return () if evidence is None or task.library_calls == "allow" else evidence.flags


def sanitizer_flags(runs: tuple[SanitizerRun, ...]) -> tuple[str, ...]:
    """One flag for each tool that found something: never a verdict, since tools have false positives."""
    return tuple(f"{run.tool} findings" for run in runs if run.findings)


def forbidden_work(evidence: Evidence | None, task: Task) -> Finding | None:
    """The failure of a project that is seen to dispatch or to load what its task forbids."""
    if evidence is None or task.library_calls != "forbid":
        return None
    if evidence.trouble is not None:
        said = f"the task forbids library calls, and the call could not be traced: {evidence.trouble}"
        return Finding(cause=Cause.LIBRARY_CALLS, message=said)
    lines = []
    if evidence.computing:
        lines += [
            f"the task forbids what the call on {evidence.workload} does: it dispatches PyTorch operators"
        ]
        lines += _named(evidence.computing)
    if evidence.loads:
        lines += ["the task forbids what the package's Python does: it loads code at run time"]
        lines += _named(evidence.loads)
    return Finding(cause=Cause.LIBRARY_CALLS, message="\n".join(lines)) if lines else None


def _named(names: tuple[str, ...]) -> list[str]:
    more = [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return [*(f"  {name}" for name in names[:_SHOWN]), *more]
