"""What a tool call does: which program it runs, which files it changes.

Pure; what is not understood gives no signature and no change, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from harness.teaching.traces.collector import command_of
from harness.teaching.traces.event import Event

_TRIVIAL_WORDS: Final = """
cd ls cat echo mkdir export source set sleep head tail grep rg sed awk pwd which true rm cp mv touch
tee wc printf find chmod git kill ps date test diff less sort uniq clear then do done if fi for
while
"""
_TRIVIAL: Final = frozenset(_TRIVIAL_WORDS.split())
_WRAPPERS: Final = frozenset(("sudo", "time", "nohup", "env", "exec", "command", "stdbuf", "nice"))
_RUNNERS: Final = frozenset(("uv", "poetry", "pipenv", "conda", "pixi"))
_WITH_SUBJECT: Final = re.compile(
    r"^(?:python[\d.]*|bash|sh|zsh|node|nix|cargo|npm|pip[\d.]*|docker|kernel-builder|hf|grade|liftbench)$"
)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)([A-Za-z_]\w*)\1")
_SPLIT = re.compile(r"&&|\|\||;|\||\n|&(?!>)")
_WRITES = re.compile(r"(?:>|\btee\b(?:\s+-\w+)*)\s*(['\"]?)([^\s'\"<>|&;]+)\1")


@dataclass(frozen=True)
class Change:
    """One change to one file, as a call asks for it."""

    path: str
    how: Literal["write", "replace", "patch", "insert", "delete"]
    text: str
    """The whole new contents, the new text, or the lines of a patch."""
    old: str = ""
    """Of a replacement: the text that is replaced."""
    everywhere: bool = False
    """Of a replacement: all occurrences."""


def signatures(event: Event) -> frozenset[str]:
    """The programs that a call runs, such as `python test.py`; the tool and its file where it runs none."""
    command = command_of(event.arguments)
    if command:
        plain, _ = _without_heredocs(command)
        return frozenset(filter(None, (_program(segment) for segment in _SPLIT.split(plain))))
    paths = [c.path for c in changes(event)]
    return frozenset(f"{event.tool} {path}" for path in paths)


def _program(segment: str) -> str:
    words = segment.split()
    while words and (re.match(r"^\w+=", words[0]) or words[0] in _WRAPPERS or words[0] == "timeout"):
        skip = 2 if words[0] == "timeout" else 1
        words = words[skip:]
        while words and (words[0].startswith("-") or re.match(r"^\d+[smh]?$", words[0])):
            words = words[1:]
    if len(words) > 2 and words[0] in _RUNNERS and words[1] == "run":
        words = words[2:]
    if not words:
        return ""
    program = words[0].rpartition("/")[2]
    if program in _TRIVIAL or not re.match(r"^[\w.+-]+$", program):
        return ""
    if not _WITH_SUBJECT.match(program):
        return program
    if "-c" in words[1:2]:
        return f"{program} -c"
    subject = next((w for w in words[1:] if not w.startswith("-") and w not in ("2>&1", ">", "<")), "")
    if words[1:2] == ["-m"]:
        return subject  # `python -m pytest` is pytest
    if program in ("grade", "liftbench"):
        return f"{program} {subject}"
    return f"{program} {subject.rpartition('/')[2]}".strip()


def _without_heredocs(command: str) -> tuple[str, list[tuple[str, str]]]:
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
                body.append(inner)
            documents.append((line, "\n".join(body) + "\n" if body else ""))
    return "\n".join(plain), documents


def changes(event: Event) -> list[Change]:
    """The files that an event changes: by an editing tool, a patch, a here-document, or named code."""
    given = event.arguments
    if event.kind == "code":
        path = given.get("path")
        return [Change(path, "write", event.text + "\n")] if isinstance(path, str) else []
    if event.kind != "tool_call":
        return []
    found = list(_edits(given))
    command = command_of(given)
    for text in (command, *(v for v in given.values() if isinstance(v, str) and v is not command)):
        if "*** Begin Patch" in text:
            return [*found, *_patch(text)]
    if command and not found:
        for line, body in _without_heredocs(command)[1]:
            target = _WRITES.search(line.replace("<<", " << "))
            prints = re.search(r"\b(?:cat|tee)\b", line) is not None and ">>" not in line
            if target is not None and prints:
                found.append(Change(target[2], "write", body))
    return found


def _edits(given: Any) -> Iterator[Change]:
    names = ("file_path", "filePath", "path", "filename", "absolute_path", "target_file")
    path = next((given[k] for k in names if isinstance(given.get(k), str) and given[k]), None)
    if path is None:
        return
    edits = given.get("edits")
    for edit in edits if isinstance(edits, list) else [given]:
        if not isinstance(edit, dict):
            continue
        old = next(
            (edit[k] for k in ("old_string", "old_str", "oldString") if isinstance(edit.get(k), str)), None
        )
        new = next(
            (edit[k] for k in ("new_string", "new_str", "newString") if isinstance(edit.get(k), str)), ""
        )
        if old:
            yield Change(path, "replace", new, old, bool(edit.get("replace_all") or edit.get("replaceAll")))
        elif old is not None:  # an empty old text creates the file
            yield Change(path, "write", new)
    for key in ("content", "file_text", "contents"):
        if isinstance(given.get(key), str) and given.get("command") in (None, "create", "write"):
            yield Change(path, "write", given[key])
            return
    if isinstance(given.get("insert_text"), str):
        yield Change(path, "insert", given["insert_text"])


def _patch(text: str) -> Iterator[Change]:
    """The files of a Codex patch (`*** Add File: ...`)."""
    path, how, lines = "", "patch", list[str]()

    def finished() -> Iterator[Change]:
        if not path:
            return
        if how == "write":
            yield Change(path, "write", "".join(f"{x[1:]}\n" for x in lines if x.startswith("+")))
        elif how == "delete":
            yield Change(path, "delete", "")
        else:
            yield Change(path, "patch", "\n".join(lines))

    for line in text.split("\n"):
        header = re.match(r"^\*\*\* (Add|Update|Delete) File: (.+)$", line)
        if header is not None:
            yield from finished()
            how = {"Add": "write", "Update": "patch", "Delete": "delete"}[header[1]]
            path, lines = header[2].strip(), []
        elif line.startswith("*** End"):
            yield from finished()
            path = ""
        elif path:
            lines.append(line)
