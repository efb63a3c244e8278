"""Turns a student's reply into a project, or into the reason why it is none.

Owns: reading fenced files out of Markdown, path safety and size caps.
Does not own: whether the project builds. Invariant: every path of a returned project is relative,
free of `..`, and unique; a reply never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from harness.outcome import Cause
from harness.records import Finding, Project, ProjectFile, Reply

MAX_FILES = 64
MAX_BYTES = 1 << 20
_NAMING_LIMIT = 1_000
"""Longer lines name no file; the patterns below take quadratic time on them."""

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<marks>`{3,}|~{3,})(?P<info>[^\n]*)$")
# A path has a suffix or is one of the known bare names; directories and words are no paths.
_PATH = r"[\w.+@~\\/-]*[\w+-]\.(?:toml|cpp|cc|cxx|c|cu|cuh|h|hpp|hxx|py|pyi|md|txt|nix|lock|inl)"
_PATH_WORD = re.compile(rf"(?<![\w./\\-])({_PATH})(?![\w/\\-])")
_COMMENT = re.compile(
    rf"^\s*(?://|\#|/\*|--|<!--)\s*(?:file(?:name)?\s*[:=]\s*)?`?({_PATH})`?\s*(?:\*/|-->)?\s*$", re.I
)
_HEADING = re.compile(r"^\s*(?:#{1,6}\s+|\*\*|`|-\s+|\d+[.)]\s+|file(?:name)?\s*:)", re.I)


@dataclass(frozen=True)
class Block:
    """A fenced block: info string, contents, 1-based line of the fence, and the line of text above."""

    info: str
    text: str
    line: int
    above: str
    closed: bool = True
    """False: no closing fence, so it runs to the end of the text."""
    inner: int | None = None
    """1-based line of the first fence inside it that begins a block: the closing one is missing above."""


def fenced_blocks(markdown: str) -> Iterator[Block]:
    """All fenced code blocks, in order; a block that is never closed runs to the end."""
    lines = markdown.splitlines()
    index, above = 0, ""
    while index < len(lines):
        opening = _FENCE.match(lines[index])
        if opening is None:
            above = lines[index] if lines[index].strip() else above
            index += 1
            continue
        marks, indent, start = opening["marks"], len(opening["indent"]), index
        body: list[str] = []
        inner: int | None = None
        index += 1
        while index < len(lines) and not _closes(lines[index], marks):
            line = lines[index]
            body.append(line[indent:] if line[:indent].isspace() else line)
            index += 1
            if inner is None and _opens(line, marks):
                inner = index
        closed = index < len(lines)
        index += 1
        yield Block(opening["info"].strip(), "\n".join(body) + "\n", start + 1, above, closed, inner)
        above = ""


def _opens(line: str, marks: str) -> bool:
    """Whether a line inside a block of such marks would begin one, and close none: it has an info string."""
    found = _FENCE.match(line)
    if found is None or not found["marks"].startswith(marks):
        return False
    return found["info"].strip() != "" and "`" not in found["info"]


def _closes(line: str, marks: str) -> bool:
    stripped = line.strip()
    return len(stripped) >= len(marks) and set(stripped) == {marks[0]}


def _path_of(block: Block) -> tuple[str, str] | None:
    """The block's path and its contents: from the info string, the text above, or a first comment."""
    in_info = _PATH_WORD.search(block.info[:_NAMING_LIMIT])
    if in_info:
        return in_info[1], block.text
    if len(block.above) <= _NAMING_LIMIT and _HEADING.match(block.above):
        in_heading = _PATH_WORD.findall(block.above)
        if len(in_heading) == 1:
            return in_heading[0], block.text
    first, _, rest = block.text.partition("\n")
    comment = _COMMENT.match(first[:_NAMING_LIMIT])
    if comment:
        return comment[1], rest
    return None


def unsafe_path(path: str) -> str | None:
    """Why a path may not be used, or None."""
    if "\\" in path or "\0" in path:
        return "has a backslash or a NUL"
    pure = PurePosixPath(path)
    if pure.is_absolute() or path.startswith("~"):
        return "is absolute"
    if ".." in pure.parts:
        return "leaves the project"
    if len(path) > 200:
        return "is longer than 200 characters"
    return None


def _refused(cause: Cause, message: str) -> Finding:
    return Finding(cause=cause, message=message)


def _no_files(reply: Reply) -> Finding:
    if reply.stop == "refusal":
        return _refused(Cause.REFUSAL, "the model refused")
    if reply.stop == "length":
        return _refused(
            Cause.TRUNCATED, "the reply was cut at the output limit before a project was complete"
        )
    if not reply.text.strip():
        return _refused(Cause.EMPTY_REPLY, "the reply is empty")
    return _refused(Cause.NO_FILES, "the reply holds no fenced file named build.toml")


def parse_reply(reply: Reply) -> Project | Finding:
    """The project in a reply; a later block with the same path replaces an earlier one."""
    found: dict[str, str] = {}
    for block in fenced_blocks(reply.text):
        named = _path_of(block)
        if named is None:
            continue
        path, text = named
        reason = unsafe_path(path)
        if reason:
            return _refused(Cause.UNSAFE_PATH, f"the path {path!r} (line {block.line}) {reason}")
        found[PurePosixPath(path).as_posix()] = text
    found = _strip_common_root(found)
    if "build.toml" not in found:
        return _no_files(reply)
    size = sum(len(text.encode()) for text in found.values())
    if len(found) > MAX_FILES:
        return _refused(Cause.TOO_LARGE, f"{len(found)} files; at most {MAX_FILES} are allowed")
    if size > MAX_BYTES:
        return _refused(Cause.TOO_LARGE, f"{size} bytes of files; at most {MAX_BYTES} are allowed")
    return Project(files=tuple(ProjectFile(path=p, text=found[p]) for p in sorted(found)))


def _strip_common_root(found: dict[str, str]) -> dict[str, str]:
    """`my-kernel/build.toml` and all else under my-kernel/ is the same project one level up."""
    roots = {PurePosixPath(p).parts[0] for p in found}
    if "build.toml" in found or len(roots) != 1 or f"{next(iter(roots))}/build.toml" not in found:
        return found
    return {p.split("/", 1)[1]: text for p, text in found.items()}
