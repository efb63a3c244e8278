"""What went wrong in a trace, how often, and what fixed it.

An error is `resolved` only where a later run of the same program, that came as far, did not show it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.teaching.traces.events import Event
from harness.teaching.traces.faults import SEVERITY, STAGE, Category, Fault, faults_of, signature
from harness.teaching.traces.files import programs
from harness.text import clip

_CONTEXT_BYTES: Final = 1_200
_FIX_BYTES: Final = 2_400
_COMMAND_BYTES: Final = 200
_LINES_BEFORE, _LINES_AFTER = 2, 8
_NO_ERROR_STAGE: Final = max(STAGE.values()) + 1

Signature = tuple[Category, str]


@dataclass(frozen=True)
class Lesson:
    """One error, and its fix where one was found."""

    category: Category
    error: str
    count: int
    first: str
    last: str
    resolved: bool
    fix: str | None
    """What was changed between the last occurrence and the run without it; None where it was not resolved."""
    context: str
    command: str | None


@dataclass
class _Group:
    """Equal errors: count, and the first and the last."""

    first: tuple[Event, Fault]
    last: tuple[Event, Fault]
    count: int = 0


@dataclass(frozen=True)
class _Run:
    """One run of a program: its result's index, its errors, and how far it came."""

    index: int
    shown: frozenset[Signature]
    stage: int


def lessons(events: Sequence[Event], diffs: Mapping[int, str]) -> list[Lesson]:
    """The errors: unresolved ones first, then by count, then by severity. `diffs`: changes by event index."""
    groups: dict[Signature, _Group] = {}
    runs: dict[str, list[_Run]] = defaultdict(list)
    calls = _calls(events)
    for event in events:
        found = {signature(fault): fault for fault in faults_of(event)}
        for key, fault in found.items():
            group = groups.setdefault(key, _Group((event, fault), (event, fault)))
            group.last = (event, fault)
            group.count += 1
        if event.index in calls:
            stage = min((STAGE[category] for category, _ in found), default=_NO_ERROR_STAGE)
            for program in programs(calls[event.index]):
                runs[program].append(_Run(event.index, frozenset(found), stage))
    order = sorted(groups.items(), key=lambda item: item[1].last[0].index)
    made = [_lesson(key, group, calls, runs, diffs) for key, group in order]
    return sorted(made, key=lambda x: (x.resolved, -x.count, SEVERITY.index(x.category)))


def _calls(events: Sequence[Event]) -> dict[int, Event]:
    """The call of each result: by its id, or the call before it where the trace has no ids."""
    by_id: dict[str, Event] = {}
    found: dict[int, Event] = {}
    recent: Event | None = None
    for event in events:
        if event.kind == "tool_call":
            recent = event
            if event.call is not None:
                by_id[event.call] = event
        elif event.kind == "tool_result":
            call = by_id.get(event.call) if event.call is not None else recent
            if call is not None:
                found[event.index] = call
    return found


def _lesson(
    key: Signature,
    group: _Group,
    calls: Mapping[int, Event],
    runs: Mapping[str, Sequence[_Run]],
    diffs: Mapping[int, str],
) -> Lesson:
    event, fault = group.last
    call = calls.get(event.index)
    clean = None if call is None else _clean_run(key, event.index, call, runs)
    fix = None
    if call is not None and clean is not None:
        edits = [text.rstrip("\n") for index, text in diffs.items() if event.index < index <= clean]
        again = calls[clean].text
        if not edits and again != call.text:
            edits = [f"the command became: {again}"]
        fix = clip("\n".join(edits), _FIX_BYTES) or "nothing that the trace shows"
    first, first_fault = group.first
    return Lesson(
        category=key[0],
        error=fault.headline,
        count=group.count,
        first=first.place_of(first_fault.line),
        last=event.place_of(fault.line),
        resolved=clean is not None,
        fix=fix,
        context=_context(event, fault),
        command=None if call is None else clip(" ".join(call.text.split()), _COMMAND_BYTES),
    )


def _clean_run(key: Signature, last: int, call: Event, runs: Mapping[str, Sequence[_Run]]) -> int | None:
    """The first later run of one of the call's programs that came as far without the error."""
    found = []
    for program in programs(call):
        history = runs[program]
        later = history[bisect_right(history, last, key=lambda run: run.index) :]
        clean = (run.index for run in later if key not in run.shown and run.stage >= STAGE[key[0]])
        found += [index for index in [next(clean, None)] if index is not None]
    return min(found, default=None)


def _context(event: Event, fault: Fault) -> str:
    lines = event.text.splitlines()
    begin, end = max(0, fault.line - _LINES_BEFORE), min(len(lines), fault.end + 1 + _LINES_AFTER)
    return clip("\n".join(line.rstrip() for line in lines[begin:end]).strip("\n"), _CONTEXT_BYTES)
