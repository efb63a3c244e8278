"""Condenses a trace into a budget of tokens for a teacher, errors first, and says what that leaves out.

The same trace and budget give the same text; every cut says how much is missing; no key is passed on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.report.figures import plural
from harness.student.fences import fenced
from harness.teaching.traces.events import Event, Trace
from harness.teaching.traces.faults import Lesson, lessons
from harness.teaching.traces.files import FileState, follow
from harness.text import BYTES_PER_TOKEN, REDACTED, clip, estimate_tokens, redact

_HEAD_BYTES: Final = 900
_TASK_SHARE, _LESSON_SHARE, _FILE_SHARE = 0.20, 0.65, 0.60
"""Of the bytes that the parts before have left."""
_TASK_BYTES: Final = 12_000
_OUTLINE_BYTES: Final = 240
_DETAIL_BYTES: Final = 300
"""Details of an error are not cut to fewer bytes."""
_FILE_BYTES: Final = 400
"""Nor is a file."""


@dataclass(frozen=True)
class Condensed:
    """A condensed trace, and one line on what was read, what was kept and its size."""

    text: str
    summary: str


def condense(trace: Trace, budget_tokens: int) -> Condensed:
    """The trace in at most `budget_tokens`, estimated, which are 500 or more."""
    files, diffs = follow(trace.events)
    found = lessons(trace.events, diffs)
    page = _Page(int(budget_tokens * BYTES_PER_TOKEN) - _HEAD_BYTES)
    task = clip(trace.task.text.strip(), min(int(page.free * _TASK_SHARE), _TASK_BYTES))
    page.part(f"Task ({trace.task.place})", [task])
    kept = _lessons(page, found)
    _files(page, files)
    page.part("Outline", ["\n".join(_sample([_outline(e) for e in trace.events], page.free - 80))])
    body = redact(page.text)
    coverage = _coverage(trace, found, kept)
    head = ["# A trace, condensed", "", f"Format: {trace.format}. {_sentence(coverage)}"]
    head += [_sentence(fault) for fault in trace.skipped]
    if secrets := body.count(REDACTED):
        head.append(f"Redacted: {plural(secrets, 'word')} that may be a key or token.")
    text = clip("\n".join(head), _HEAD_BYTES - 2) + "\n\n" + body
    size = f"{estimate_tokens(text):,} of {budget_tokens:,} tokens (estimated)"
    return Condensed(text, f"{coverage}, {size}")


def _coverage(trace: Trace, found: Sequence[Lesson], kept: int) -> str:
    read = f"{plural(trace.characters, 'character')} read, {plural(len(trace.events), 'event')}"
    if not found:
        return f"{read}, no error found"
    left_out = len(found) - kept
    which = f"{kept:,} kept, {left_out:,} left out" if left_out else f"all {kept:,} kept"
    errors = sum(lesson.count for lesson in found)
    return f"{read}, {plural(errors, 'error')} in {plural(len(found), 'group')}, {which}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


class _Page:
    """Text that grows within a number of bytes."""

    def __init__(self, limit_bytes: int) -> None:
        self.text = ""
        self.free = limit_bytes

    def part(self, title: str, blocks: Sequence[str]) -> None:
        """A part with its heading, where it fits; empty blocks are left out, and a part without any."""
        shown = [block for block in blocks if block]
        text = f"## {title}\n\n" + "\n\n".join(shown) + "\n\n"
        if shown and len(text.encode()) <= self.free:
            self.text += text
            self.free -= len(text.encode())


def _lessons(page: _Page, found: Sequence[Lesson]) -> int:
    """Every error's headline first, as far as there is room; then details in the same order.

    Returns how many errors are named.
    """
    room = int(page.free * _LESSON_SHARE) - 120
    shown: list[str] = []
    for number, lesson in enumerate(found, 1):
        line = _headline(number, lesson)
        if len(line.encode()) + 2 > room:
            break
        room -= len(line.encode()) + 2
        shown.append(line)
    for index, lesson in enumerate(found[: len(shown)]):
        details = clip(_details(lesson), room) if room > _DETAIL_BYTES else ""
        room -= len(details.encode())
        shown[index] += details
    left_out = len(found) - len(shown)
    more = f"[{left_out:,} more groups of errors left out]" if left_out else ""
    page.part("Errors and their fixes", [*shown, more])
    return len(shown)


def _headline(number: int, lesson: Lesson) -> str:
    state = "resolved" if lesson.resolved else "not resolved"
    where = lesson.last if lesson.count == 1 else f"{lesson.first} to {lesson.last}"
    return f"{number}. [{lesson.category}, {lesson.count}x, {state}] {lesson.error} ({where})"


def _details(lesson: Lesson) -> str:
    command = f"\nCommand: `{lesson.command}`" if lesson.command else ""
    fix = f"\nFix:\n{fenced(lesson.fix)}" if lesson.fix else ""
    return f"{command}\n{fenced(lesson.context)}{fix}"


def _files(page: _Page, files: Sequence[FileState]) -> None:
    """The last changed first, each in an equal share of the room; what small ones leave is the others'."""
    room = int(page.free * _FILE_SHARE) - 60
    blocks: dict[str, str] = {}
    by_size = sorted(files, key=lambda file: len(file.text or ""))
    for number, file in enumerate(by_size):
        later = "" if file.complete else ", later changes not known in full"
        heading = f"### {file.path} (last changed at {file.place}{later})\n"
        share = room // (len(files) - number) - len(heading.encode()) - 20
        text = (file.text or "").rstrip()
        if share >= min(_FILE_BYTES, len(text.encode())):
            blocks[file.path] = heading + fenced(clip(text, share))
            room -= len(blocks[file.path].encode()) + 2
    shown = [blocks[file.path] for file in reversed(files) if file.path in blocks]
    left_out = len(files) - len(shown)
    more = f"[{left_out:,} more files left out]" if left_out else ""
    page.part("Files as they were left", [*shown, more])


def _outline(event: Event) -> str:
    who = f"{event.role} {event.kind}" + (f" {event.tool}" if event.tool else "")
    text = " ".join(event.text[: _OUTLINE_BYTES * 4].split())
    if len(event.text) > _OUTLINE_BYTES * 4:
        text = f"{text[: _OUTLINE_BYTES // 2]} … ({len(event.text):,} characters)"
    return f"- {event.place}: {who}: {clip(text, 2 * _OUTLINE_BYTES)}"


def _sample(lines: Sequence[str], room: int) -> list[str]:
    """All lines where they fit, else every n-th and the last; says how many are missing."""
    step, kept = 1, list(lines)
    while kept and sum(len(line.encode()) + 1 for line in kept) + 60 > room:
        step += 1
        kept = list(lines[::-step])[::-1] if step <= len(lines) else []
    left_out = len(lines) - len(kept) if kept else 0
    more = [f"[{left_out:,} of {len(lines):,} events left out, evenly]"] if left_out else []
    return kept + more
