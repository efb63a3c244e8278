"""Takes Markdown apart into prose and fenced code.

Joined in order, the pieces hold every line but those of the fences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from harness.fences import fenced_blocks

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


def code_path(info: str, above: str) -> str | None:
    """The file that a block shows, by its info string (`cpp a/b.cpp`) or the line above it, or None."""
    words = info.split()
    named = _PATH.match(words[1]) if len(words) > 1 and len(info) <= _LINE_LIMIT else None
    if named is None and len(above) <= _LINE_LIMIT:
        named = _NAMING.match(above)
    return named[1] if named is not None else None


def pieces(text: str) -> Iterator[Piece]:
    """Prose and blocks in order; a block that is never closed runs to the end."""
    lines = text.split("\n")
    start = 1
    for block in fenced_blocks(text):
        if block.line > start:
            yield Piece(None, "\n".join(lines[start - 1 : block.line - 1]), start)
        yield Piece(block.info, block.text.removesuffix("\n"), block.line + 1, block.above)
        start = block.end
    if start <= len(lines):
        yield Piece(None, "\n".join(lines[start - 1 :]), start)
