"""What went wrong in a trace, how often, and what put it right.

`resolved` is true only where a later run of the same program, that came as far, no longer showed the error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from harness.records import Record
from harness.teaching.traces.clipping import clipped
from harness.teaching.traces.commands import signatures
from harness.teaching.traces.event import Event, Trace
from harness.teaching.traces.faults import Fault, faults_of, signature
from harness.teaching.traces.files import FinalFile, follow
from harness.teaching.traces.notes import Note, notes
from harness.teaching.traces.patterns import REACHED, SEVERITY, Category

_CONTEXT_BYTES: Final = 1_200
_FIX_BYTES: Final = 2_400
_COMMAND_BYTES: Final = 200
_LINES_BEFORE, _LINES_AFTER = 2, 8


class Lesson(Record):
    """One error and what became of it."""

    category: Category
    error: str
    """The line that names it, as it was last printed."""
    count: int
    """How many events show it."""
    first: str
    """Place of the first occurrence."""
    last: str
    last_event: int
    """Index of the event."""
    resolved: bool
    fix: str | None
    """What was changed between the last occurrence and the run without it; None when it was not resolved."""
    context: str
    """The lines around the last occurrence."""
    command: str | None
    """What was run when it last occurred."""


class Mined(Record):
    """Everything that is worth telling of a trace."""

    lessons: tuple[Lesson, ...]
    """Unresolved ones first, then by how often, then by severity."""
    errors: int
    """Occurrences of all of them."""
    notes: tuple[Note, ...]
    files: tuple[FinalFile, ...]


@dataclass
class _Group:
    fault: Fault
    """The last one."""
    first: tuple[Event, Fault]
    last: Event
    count: int = 1


@dataclass
class _Runs:
    """Results of calls, in order, and what each showed."""

    events: list[int] = field(default_factory=list)
    shown: list[frozenset[tuple[Category, str]]] = field(default_factory=list)
    reached: list[int] = field(default_factory=list)
    """How far the run came; past every stage when it showed nothing."""


def mine(trace: Trace) -> Mined:
    """Lessons, notes and final files of a whole trace."""
    groups: dict[tuple[Category, str], _Group] = {}
    runs: dict[str, _Runs] = defaultdict(_Runs)
    calls = _calls(trace.events)
    for event in trace.events:
        found = {signature(fault): fault for fault in faults_of(event)}
        for key, fault in found.items():
            group = groups.setdefault(key, _Group(fault, (event, fault), event, 0))
            group.fault, group.last = fault, event
            group.count += 1
        call = calls.get(event.index)
        for program in signatures(call) if call is not None else ():
            runs[program].events.append(event.index)
            runs[program].shown.append(frozenset(found))
            runs[program].reached.append(
                min((REACHED[c] for c, _ in found), default=max(REACHED.values()) + 1)
            )
    files, told = follow(trace.events)
    edits = sorted(told)
    lessons = [_lesson(trace.events, key, g, calls, runs, edits, told) for key, g in groups.items()]
    lessons.sort(key=lambda x: (x.resolved, -x.count, SEVERITY.index(x.category), x.last_event))
    return Mined(
        lessons=tuple(lessons),
        errors=sum(lesson.count for lesson in lessons),
        notes=notes(trace.events),
        files=files,
    )


def _calls(events: Sequence[Event]) -> dict[int, Event]:
    """For each result its call: by its id, or the call just before it where the trace has no ids."""
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
    events: Sequence[Event],
    key: tuple[Category, str],
    group: _Group,
    calls: dict[int, Event],
    runs: dict[str, _Runs],
    edits: Sequence[int],
    told: dict[int, str],
) -> Lesson:
    call = calls.get(group.last.index)
    clean = _clean_run(key, group.last.index, signatures(call) if call else frozenset(), runs)
    fix = None
    if clean is not None:
        between = edits[bisect_right(edits, group.last.index) : bisect_right(edits, clean)]
        parts = [told[index].rstrip("\n") for index in between]
        again = calls[clean]
        if not parts and call is not None and again.text != call.text:
            parts = [f"the command became: {again.text}"]
        fix = clipped("\n".join(parts), _FIX_BYTES) or "nothing that the trace shows"
    first, fault = group.first
    return Lesson(
        category=key[0],
        error=group.fault.headline,
        count=group.count,
        first=first.place_of(fault.line),
        last=group.last.place_of(group.fault.line),
        last_event=group.last.index,
        resolved=clean is not None,
        fix=fix,
        context=_context(group.last, group.fault),
        command=clipped(" ".join(call.text.split()), _COMMAND_BYTES) if call is not None else None,
    )


def _clean_run(
    key: tuple[Category, str], last: int, programs: frozenset[str], runs: dict[str, _Runs]
) -> int | None:
    """The first later run of one of the programs that came as far and did not show the error."""
    found = []
    for program in programs:
        history = runs[program]
        for at in range(bisect_right(history.events, last), len(history.events)):
            if key not in history.shown[at] and history.reached[at] >= REACHED[key[0]]:
                found.append(history.events[at])
                break
    return min(found, default=None)


def _context(event: Event, fault: Fault) -> str:
    lines = event.text.splitlines()
    begin, end = max(0, fault.line - _LINES_BEFORE), min(len(lines), fault.end + 1 + _LINES_AFTER)
    return clipped("\n".join(line.rstrip() for line in lines[begin:end]).strip("\n"), _CONTEXT_BYTES)
