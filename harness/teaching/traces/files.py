"""Follows the files that an agent writes, to the state in which it left them.

A file is called complete only when its whole contents follow from the trace; a change that a trace marks as
failed is not applied.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from harness.records import Record
from harness.teaching.traces.commands import Change, changes
from harness.teaching.traces.event import Event

_DIFF_LINES: Final = 2_000
"""Longer files are not compared: the time grows with the square."""


class FinalFile(Record):
    """A file as the agent left it."""

    path: str
    """As the trace names it."""
    text: str
    """The last version that is known in full, with all later changes that could be applied."""
    complete: bool
    """Every later change could be applied."""
    unapplied: int = 0
    """Changes after the last full version whose place in the file is not known."""
    changes: int
    """How often it was changed in all."""
    place: str
    """Of the last change."""


@dataclass
class _State:
    text: str | None = None
    unapplied: int = 0
    changes: int = 0
    place: str = ""
    index: int = 0


def follow(events: Sequence[Event]) -> tuple[tuple[FinalFile, ...], dict[int, str]]:
    """The files as they were left, in order of their last change; and by event what it changed, as a diff."""
    failed = {e.call for e in events if e.kind == "tool_result" and e.is_error and e.call is not None}
    states: dict[str, _State] = {}
    told: dict[int, str] = {}
    for event in events:
        if event.call in failed and event.tool not in ("shell", "bash", "Bash", "exec_command"):
            continue
        made = changes(event)
        if made:
            told[event.index] = "\n".join(_applied(states, change, event) for change in made)
    left = sorted(states.items(), key=lambda item: item[1].index)
    files = tuple(
        FinalFile(
            path=path,
            text=state.text,
            complete=state.unapplied == 0,
            unapplied=state.unapplied,
            changes=state.changes,
            place=state.place,
        )
        for path, state in left
        if state.text is not None
    )
    return files, told


def _applied(states: dict[str, _State], change: Change, event: Event) -> str:
    """Apply one change; returns what it changed."""
    state = states.setdefault(change.path, _State())
    before = state.text
    state.changes += 1
    state.place, state.index = event.place, event.index
    after = _after(before, change)
    if change.how == "delete":
        states.pop(change.path)
        return f"{change.path}: deleted"
    if after is None:
        state.unapplied += 1
    else:
        state.text = after
        state.unapplied = 0 if change.how == "write" else state.unapplied
    return f"{change.path}:\n{_difference(before, after, change)}"


def _after(before: str | None, change: Change) -> str | None:
    """The new contents; None when they do not follow."""
    if change.how == "write":
        return change.text
    if before is None:
        return None
    if change.how == "replace" and change.old in before:
        return before.replace(change.old, change.text, -1 if change.everywhere else 1)
    if change.how == "patch":
        return _patched(before, change.text)
    return None


def _patched(before: str, patch: str) -> str | None:
    """Codex's hunks: each replaces the lines that its context and removals spell."""
    text, position = before, 0
    for hunk in _hunks(patch):
        old = "".join(f"{line[1:]}\n" for line in hunk if not line.startswith("+"))
        new = "".join(f"{line[1:]}\n" for line in hunk if not line.startswith("-"))
        whole = text if text.endswith("\n") else text + "\n"
        found = whole.find(old, position)
        if not old or found < 0 or (found and whole[found - 1] != "\n"):
            return None
        text = whole[:found] + new + whole[found + len(old) :]
        position = found + len(new)
    return text


def _hunks(patch: str) -> list[list[str]]:
    hunks: list[list[str]] = [[]]
    for line in patch.split("\n"):
        if line.startswith("@@"):
            hunks.append([])
        elif line[:1] in ("+", "-", " "):
            hunks[-1].append(line)
        elif not line and hunks[-1]:
            hunks[-1].append(" ")
    return [_trimmed(hunk) for hunk in hunks if hunk]


def _trimmed(hunk: list[str]) -> list[str]:
    """Without the blank line that ends the patch's text."""
    return hunk[:-1] if hunk[-1] == " " else hunk


def _difference(before: str | None, after: str | None, change: Change) -> str:
    if change.how == "replace":
        removed = "".join(f"-{x}\n" for x in change.old.splitlines())
        return removed + "".join(f"+{x}\n" for x in change.text.splitlines())
    if change.how == "patch" or before is None or after is None:
        return change.text
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _DIFF_LINES:
        return change.text
    lines = list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]
    return "\n".join(lines)
