"""Puts a trace into few tokens for a teacher, and says what that leaves out.

The text stays within the budget by `estimate_tokens`; the same trace and budget give the same text; every
cut says how much is missing; no key is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from harness.errors import UsageError
from harness.records import Record
from harness.teaching.traces.clipping import clipped
from harness.teaching.traces.event import Event, Trace
from harness.teaching.traces.lessons import Lesson, Mined, mine
from harness.teaching.traces.notes import Note
from harness.teaching.traces.secrets import IN_ITS_PLACE, without_secrets
from harness.text import BYTES_PER_TOKEN, estimate_tokens

SMALLEST_BUDGET: Final = 500
_HEAD_BYTES: Final = 900
"""Kept free for title and accounting."""
_TASK_SHARE, _LESSON_SHARE, _NOTE_SHARE, _FILE_SHARE = 0.20, 0.65, 0.30, 0.60
"""Of what is free when the part's turn comes: what one part leaves is the next one's."""
_TASK_BYTES: Final = 12_000
_OUTLINE_BYTES: Final = 240
_FILE_BYTES: Final = 400
"""Less of a file is not worth its heading."""


class Condensed(Record):
    """A trace in few words, and what they cover."""

    text: str
    budget_tokens: int
    tokens: int
    """By `estimate_tokens`; at most the budget."""
    characters: int
    """Of the trace, all of them read."""
    events: int
    errors: int
    """Occurrences."""
    groups: int
    """Different errors."""
    kept: int
    """Of the groups those that the text names."""
    in_full: int
    """Of those the ones with context, and with their fix where there is one."""
    secrets: int
    """Words that look like API keys or tokens, each replaced by `[secret]`."""

    @property
    def summary(self) -> str:
        """The accounting in one line."""
        return (
            _summary(self.characters, self.events, self.errors, (self.groups, self.kept, self.in_full))
            + f", {self.tokens:,} of {self.budget_tokens:,} tokens (estimated)"
        )


def condense(trace: Trace, budget_tokens: int) -> Condensed:
    """The trace in at most `budget_tokens`. Raises UsageError for a budget too small to say anything."""
    if budget_tokens < SMALLEST_BUDGET:
        raise UsageError(f"a trace needs at least {SMALLEST_BUDGET} tokens; {budget_tokens:,} were given")
    mined = mine(trace)
    page = _Page(int(budget_tokens * BYTES_PER_TOKEN) - _HEAD_BYTES)
    task = clipped(trace.task.text.strip(), min(int(page.free * _TASK_SHARE), _TASK_BYTES))
    page.part(f"Task ({trace.task.place})", [task])
    kept, in_full = _lessons(page, mined.lessons)
    _notes(page, mined.notes)
    _files(page, mined)
    _outline(page, trace.events)
    groups = (len(mined.lessons), kept, in_full)
    counted = _summary(trace.characters, len(trace.events), mined.errors, groups)
    head = ["# A trace, condensed", "", f"Format: {trace.format}. {counted[0].upper()}{counted[1:]}."]
    head += [f"{fault[0].upper()}{fault[1:]}." for fault in trace.faults]
    told = without_secrets(page.text)
    secrets = told.count(IN_ITS_PLACE)  # those that a cut would have halved are out already
    head += [f"Taken out: {_number(secrets, 'word')} that may be a key or token."] if secrets else []
    text = clipped("\n".join(head), _HEAD_BYTES - 2) + "\n\n" + told
    return Condensed(
        text=text,
        budget_tokens=budget_tokens,
        tokens=estimate_tokens(text),
        characters=trace.characters,
        events=len(trace.events),
        errors=mined.errors,
        groups=len(mined.lessons),
        kept=kept,
        in_full=in_full,
        secrets=secrets,
    )


def _summary(characters: int, events: int, errors: int, groups: tuple[int, int, int]) -> str:
    number, kept, in_full = groups
    if not number:
        return f"{_number(characters, 'character')} read, {_number(events, 'event')}, no error found"
    which = f"all {number:,} kept" if kept == number else f"{kept:,} kept, {number - kept:,} left out"
    return (
        f"{_number(characters, 'character')} read, {_number(events, 'event')}, "
        f"{_number(errors, 'error')} in {_number(number, 'group')}, "
        f"{which} ({in_full:,} in full)"
    )


def _number(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class _Page:
    """Text that grows within a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self._parts: list[str] = []
        self.free = limit_bytes

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def part(self, title: str, blocks: Sequence[str]) -> None:
        """A part with its heading; blocks that are empty are left out, and so is a part without any."""
        shown = [block for block in blocks if block]
        text = f"## {title}\n\n" + "\n\n".join(shown) + "\n\n"
        if shown and len(text.encode()) <= self.free:
            self._parts.append(text)
            self.free -= len(text.encode())


def _lessons(page: _Page, lessons: Sequence[Lesson]) -> tuple[int, int]:
    """Every error by its headline first, as far as there is room; then details in the same order."""
    if not lessons:
        return 0, 0
    room = int(page.free * _LESSON_SHARE) - 120
    shown: list[str] = []
    for number, lesson in enumerate(lessons, 1):
        line = _headline(number, lesson)
        size = len(line.encode()) + 2
        if size > room:
            break
        room -= size
        shown.append(line)
    in_full = 0
    for index, lesson in enumerate(lessons[: len(shown)]):
        details = _details(lesson)
        size = len(details.encode())
        if size > room:
            details = clipped(details, room) if room > 300 else ""
            room = 0
        if not details:
            break
        in_full += room > 0
        room = max(0, room - size)
        shown[index] += details
    left_out = len(lessons) - len(shown)
    more = f"[{left_out:,} more groups of errors left out]" if left_out else ""
    page.part("Errors, and what became of them", [*shown, more])
    return len(shown), in_full


def _headline(number: int, lesson: Lesson) -> str:
    state = "resolved" if lesson.resolved else "not resolved"
    where = lesson.last if lesson.count == 1 else f"{lesson.first} to {lesson.last}"
    return f"{number}. [{lesson.category}, {lesson.count}x, {state}] {lesson.error} ({where})"


def _details(lesson: Lesson) -> str:
    command = f"\nCommand: `{lesson.command}`" if lesson.command else ""
    fix = f"\nFix:\n{_fenced(lesson.fix)}" if lesson.fix else ""
    return f"{command}\n{_fenced(lesson.context)}{fix}"


def _fenced(text: str) -> str:
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}\n{text}\n{marks}"


def _notes(page: _Page, notes: Sequence[Note]) -> None:
    """Half of the room for each kind; where there are too many, an even sample that ends with the last."""
    titles = {"measured": "Measured", "decided": "Decided"}
    room = int(page.free * _NOTE_SHARE) // 2
    for kind, title in titles.items():
        lines = [f"- {note.text} ({note.place})" for note in notes if note.kind == kind]
        page.part(title, ["\n".join(_sample(lines, room - 100, "lines"))] if lines else [])


def _files(page: _Page, mined: Mined) -> None:
    """Every file in an equal share, the small ones' rest given to the larger; the last changed come first."""
    room = int(page.free * _FILE_SHARE) - 60
    files = sorted(mined.files, key=lambda f: len(f.text))
    sizes: dict[str, int] = {}
    for index, file in enumerate(files):
        share = room // (len(files) - index) - len(file.path.encode()) - 160
        sizes[file.path] = min(len(file.text.encode()), max(0, share))
        room -= sizes[file.path] + len(file.path.encode()) + 160 if share > 0 else 0
    blocks = []
    left_out = 0
    for file in reversed(mined.files):
        size = sizes[file.path]
        if size < min(_FILE_BYTES, len(file.text.encode())):
            left_out += 1
            continue
        later = f", {file.unapplied} later changes not known in full" if file.unapplied else ""
        heading = f"### {file.path} ({file.changes} changes, last at {file.place}{later})"
        blocks.append(f"{heading}\n{_fenced(clipped(file.text.rstrip(), size))}")
    more = f"[{left_out:,} more files left out]" if left_out else ""
    page.part("Files as they were left", [*blocks, more])


def _outline(page: _Page, events: Sequence[Event]) -> None:
    """A line for each event, or an even sample over the whole trace where there is no room for all."""
    lines = [_line(event) for event in events]
    page.part("Outline", ["\n".join(_sample(lines, page.free - 80, "events"))])


def _line(event: Event) -> str:
    who = f"{event.role} {event.kind}" + (f" {event.tool}" if event.tool else "")
    text = " ".join(event.text[: _OUTLINE_BYTES * 4].split())
    cut = clipped(text, _OUTLINE_BYTES) if len(event.text) <= _OUTLINE_BYTES * 4 else ""
    if not cut:
        cut = f"{text[: _OUTLINE_BYTES // 2]} … ({len(event.text):,} characters)"
    return f"- {event.place}: {who}: {cut}"


def _sample(lines: Sequence[str], room: int, noun: str) -> list[str]:
    """As many lines as fit, evenly over all of them and with the last; says how many are missing."""
    sizes = [len(line.encode()) + 1 for line in lines]
    if sum(sizes) <= room:
        return list(lines)
    count = len(lines)
    low, high = 0, count
    while low < high:  # the most that fit
        middle = (low + high + 1) // 2
        if sum(sizes[i] for i in _even(count, middle)) + 60 <= room:
            low = middle
        else:
            high = middle - 1
    if not low:
        return []
    return [*(lines[i] for i in _even(count, low)), f"[{count - low:,} of {count:,} {noun} left out, evenly]"]


def _even(count: int, wanted: int) -> list[int]:
    """`wanted` indices below `count`, evenly spread; the last is always among them."""
    return [count - 1 - (i * count) // wanted for i in range(wanted - 1, -1, -1)]
