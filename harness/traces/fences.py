"""Takes Markdown apart into prose and fenced code.

Owns: what a fence is, and which file a block shows. Does not own: who speaks (markdown.py).
Invariant: joined in order, the pieces hold every line but those of the fences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_PATH = re.compile(r"(?:path=)?([\w.+/-]*[\w+-]\.\w{1,8})$")
_NAMING = re.compile(
    r"^\s*(?:#{1,6}\s+|\*\*|`|-\s+|\d+[.)]\s+|file\s*:)[^`*]{0,80}?[`*\s]*([\w.+/-]+\.\w{1,8})[`*:\s]*$", re.I
)
_LINE_LIMIT = 300


@dataclass(frozen=True)
class Piece:
    """Prose, or one fenced block."""

    info: str | None
    """What follows the opening fence; None for prose."""
    text: str
    line: int
    """1-based line at which the text begins."""
    above: str = ""
    """The last line of prose before a block."""


def closes(line: str, marks: str) -> bool:
    """Whether the line ends a block that `marks` opened."""
    stripped = line.strip()
    return len(stripped) >= len(marks) and set(stripped) == {marks[0]}


def code_path(info: str, above: str) -> str | None:
    """The file that a block shows, by its info string (`cpp a/b.cpp`) or the line above it, or None."""
    words = info.split()
    named = _PATH.match(words[1]) if len(words) > 1 and len(info) <= _LINE_LIMIT else None
    if named is None and len(above) <= _LINE_LIMIT:
        named = _NAMING.match(above)
    return named[1] if named is not None else None


def pieces(text: str) -> Iterator[Piece]:
    """Prose and blocks in order; a block that is never closed runs to the end."""
    prose: list[str] = []
    block: list[str] = []
    marks, info, above, start = "", "", "", 1
    for number, line in enumerate(text.split("\n"), 1):
        opening = FENCE.match(line) if not marks else None
        if opening is not None:
            if prose:
                yield Piece(None, "\n".join(prose), start)
            above = next((p for p in reversed(prose) if p.strip()), "")
            prose, block, start = [], [], number + 1
            marks, info = opening["marks"], opening["info"].strip()
        elif marks and closes(line, marks):
            yield Piece(info, "\n".join(block), start, above)
            marks, start = "", number + 1
        else:
            (block if marks else prose).append(line)
    if marks:
        yield Piece(info, "\n".join(block), start, above)
    elif prose:
        yield Piece(None, "\n".join(prose), start)
