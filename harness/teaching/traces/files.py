"""What tool calls do: the programs they run, the files they change, and those files as they were left.

A call that is not understood gives no program and no change, never a guess.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from harness.teaching.traces.events import Event, command_of

_TRIVIAL_WORDS: Final = """
cd ls cat echo mkdir export source set sleep head tail grep rg sed awk pwd which true rm cp mv touch
tee wc printf find chmod git kill ps date test diff less sort uniq clear then do done if fi for
while
"""
_TRIVIAL: Final = frozenset(_TRIVIAL_WORDS.split())
_WRAPPERS: Final = frozenset(
    ("sudo", "time", "timeout", "nohup", "env", "exec", "command", "stdbuf", "nice", "uv", "poetry", "conda")
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_SPLIT = re.compile(r"&&|\|\||;|\||\n|&(?!>)")
_WRITES = re.compile(r"(?:>|\btee\b(?:\s+-\w+)*)\s*(['\"]?)([^\s'\"<>|&;]+)\1")
_PATCHED_FILE = re.compile(r"^\*\*\* (Add|Update|Delete) File: (.+)$")
_PATH_KEYS: Final = ("file_path", "path", "filename")
_OLD_KEYS: Final = ("old_string", "old_str")
_NEW_KEYS: Final = ("new_string", "new_str")
_TEXT_KEYS: Final = ("content", "file_text")
_DIFF_LINES: Final = 2_000
"""Longer files are not compared: the time grows with the square."""


@dataclass(frozen=True)
class Change:
    """A change to one file, as a call asks for it."""

    path: str
    new: str | None
    """The new contents, or what replaces `old`; None deletes the file."""
    old: str | None = None
    everywhere: bool = False


@dataclass
class FileState:
    """A file as the agent left it."""

    path: str
    text: str | None = None
    complete: bool = True
    place: str = ""


def follow(events: Sequence[Event]) -> tuple[list[FileState], dict[int, str]]:
    """The files that are known, the last changed last, and by event index what it changed, as a diff.

    A change that the trace marks as failed is not applied.
    """
    failed = {e.call for e in events if e.kind == "tool_result" and e.is_error and e.call is not None}
    states: dict[str, FileState] = {}
    diffs: dict[int, str] = {}
    for event in events:
        # A shell command that failed may have written its files before.
        if event.call in failed and not command_of(event.arguments):
            continue
        made = [_applied(states, change, event.place) for change in changes(event)]
        if made:
            diffs[event.index] = "\n".join(made)
    return [state for state in states.values() if state.text is not None], diffs


def _applied(states: dict[str, FileState], change: Change, place: str) -> str:
    """Apply one change; returns what it changed."""
    state = states.pop(change.path, FileState(change.path))
    if change.new is None:
        return f"{change.path}: deleted"
    before = state.text
    if change.old is None:
        state.text, state.complete = change.new, True
    elif before is not None and change.old in before:
        state.text = before.replace(change.old, change.new, -1 if change.everywhere else 1)
    else:
        state.complete = False
    state.place = place
    states[change.path] = state
    return f"{change.path}:\n{_difference(before, change.new, change.old)}"


def _difference(before: str | None, new: str, old: str | None) -> str:
    if old is not None:
        removed = "".join(f"-{line}\n" for line in old.splitlines())
        return removed + "".join(f"+{line}\n" for line in new.splitlines())
    if before is None or max(before.count("\n"), new.count("\n")) > _DIFF_LINES:
        return new
    return "\n".join(list(difflib.unified_diff(before.splitlines(), new.splitlines(), lineterm="", n=1))[2:])


def changes(event: Event) -> list[Change]:
    """The files that an event changes: by an editing tool, a patch, a here-document, or code with a path."""
    given = event.arguments
    if event.kind == "code":
        return [Change(given["path"], event.text + "\n")] if "path" in given else []
    if event.kind != "tool_call":
        return []
    patch = next((v for v in given.values() if isinstance(v, str) and "*** Begin Patch" in v), None)
    return list(_patched(patch) if patch is not None else [*_edited(given), *_printed(command_of(given))])


def _edited(given: Mapping[str, Any]) -> Iterator[Change]:
    """By the arguments of an editing tool."""
    path = _text(given, _PATH_KEYS)
    if not path:
        return
    edits = given.get("edits")
    for edit in edits if isinstance(edits, list) else [given]:
        if isinstance(edit, dict) and (old := _text(edit, _OLD_KEYS)) is not None:
            # An empty old text creates the file.
            yield Change(path, _text(edit, _NEW_KEYS) or "", old or None, bool(edit.get("replace_all")))
    text = _text(given, _TEXT_KEYS)
    if text is not None:
        yield Change(path, text)


def _text(given: Mapping[str, Any], keys: Sequence[str]) -> str | None:
    return next((given[key] for key in keys if isinstance(given.get(key), str)), None)


def _printed(command: str) -> Iterator[Change]:
    """By here-documents that a command prints into files."""
    for line, text in _heredocs(command)[1]:
        target = _WRITES.search(line.replace("<<", " << "))
        if target is not None and ">>" not in line and re.search(r"\b(?:cat|tee)\b", line):
            yield Change(target[2], text)


def _patched(patch: str) -> Iterator[Change]:
    """By a patch of Codex: each hunk replaces the lines that its context and removals spell."""
    path = action = ""
    hunks: list[list[str]] = []
    for line in [*patch.split("\n"), "*** End Patch"]:
        header = _PATCHED_FILE.match(line)
        if header is not None or line.startswith("*** End"):
            yield from _hunk_changes(path, action, hunks)
            action, path = (header[1], header[2].strip()) if header is not None else ("", "")
            hunks = [[]]
        elif line.startswith("@@"):
            hunks.append([])
        elif action:
            hunks[-1].append(line if line[:1] in ("+", "-", " ") else f" {line}")


def _hunk_changes(path: str, action: str, hunks: Sequence[Sequence[str]]) -> Iterator[Change]:
    if action == "Delete":
        yield Change(path, None)
    elif action == "Add":
        yield Change(path, _side(hunks[0], "-"))
    elif action == "Update":
        for hunk in filter(None, hunks):
            yield Change(path, _side(hunk, "-"), _side(hunk, "+"))


def _side(hunk: Sequence[str], other: str) -> str:
    """A hunk's lines without those of the other side."""
    return "".join(f"{line[1:]}\n" for line in hunk if not line.startswith(other))


def programs(event: Event) -> frozenset[str]:
    """What a call runs, such as `python test.py`; where it runs nothing, the tool and its files."""
    command = command_of(event.arguments)
    if command:
        return frozenset(filter(None, map(_program, _SPLIT.split(_heredocs(command)[0]))))
    return frozenset(f"{event.tool} {change.path}" for change in changes(event))


def _program(segment: str) -> str:
    """The program of a simple command and its first argument, without folders; empty for a trivial one."""
    words = segment.split()
    while words and (re.match(r"^\w+=", words[0]) or words[0] in _WRAPPERS):
        words = words[1:]
        while words and (words[0] == "run" or re.match(r"^-|^\d+[smh]?$", words[0])):
            words = words[1:]
    program = words[0].rpartition("/")[2] if words else ""
    if program in _TRIVIAL or not re.match(r"^[\w.+-]+$", program):
        return ""
    subject = next((w for w in words[1:] if re.match(r"[^-<>\d]", w)), "")
    return f"{program} {subject.rpartition('/')[2]}".strip()


def _heredocs(command: str) -> tuple[str, list[tuple[str, str]]]:
    """The command without its here-documents, and those: the line that begins each, and its text."""
    plain: list[str] = []
    documents: list[tuple[str, str]] = []
    lines = iter(command.split("\n"))
    for line in lines:
        plain.append(line)
        opening = _HEREDOC.search(line)
        if opening is not None:
            body = []
            for inner in lines:
                if inner.strip() == opening[2]:
                    break
                body.append(f"{inner}\n")
            documents.append((line, "".join(body)))
    return "\n".join(plain), documents
