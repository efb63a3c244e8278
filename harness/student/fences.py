"""Fenced code blocks of a Markdown text, in lists and quotations too, and the files that they show."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_block.fence import fence
from markdown_it.token import Token

_INDENTED_CODE: Final = 4
_HEADING: Final = re.compile(r"^\s*(?:#{1,6}\s+|\*\*|`|-\s+|\d+[.)]\s+|file(?:name)?\s*:)", re.I)
_NAMING_LIMIT: Final = 1_000
"""Longest line that may name a file; the patterns take quadratic time."""
# A suffix begins with a letter: `python3.11` and `v1.2` are not paths.
ANY_PATH: Final = r"[\w.+@~\\/-]*[\w+-]\.[A-Za-z]\w{0,9}|Makefile|Dockerfile|LICENSE"


@dataclass(frozen=True)
class Block:
    """A fenced block: info string, contents and place."""

    info: str
    text: str
    line: int
    end: int
    above: str
    """The last line of text above it, after the block before."""
    closed: bool = True
    """False: no closing fence, so it runs to the end of the text or quotation."""


def fenced_blocks(markdown: str) -> list[Block]:
    """All fenced code blocks, in order; `\\r\\n` is read as `\\n`."""
    if "```" not in markdown and "~~~" not in markdown:
        return []
    source = markdown.replace("\r\n", "\n")
    source += "" if source.endswith("\n") else "\n"
    state = _State(source, _PARSER, {}, [])
    _PARSER.block.tokenize(state, state.line, state.lineMax)
    return list(_blocks(state.tokens, source.split("\n")))


def fenced(text: str, info: str = "", *, least: int = 3) -> str:
    """text as a fenced block, with at least `least` marks and more than any run of them in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(least, longest + 1)
    return "\n".join([f"{marks}{info}", text.removesuffix("\n"), marks])


class FileNames:
    """Finds the path of the file that a block shows."""

    def __init__(self, path: str, *, quoted: bool = False) -> None:
        """`path`: a regular expression; `quoted`: in the line above, a path in backticks is enough."""
        self._quoted = quoted
        self._word = re.compile(rf"(?<![\w./\\-])({path})(?![\w/\\-])")
        self._comment = re.compile(
            rf"^\s*(?://|\#|/\*|--|<!--)\s*(?:file(?:name)?\s*[:=]\s*)?`?({path})`?\s*(?:\*/|-->)?\s*$", re.I
        )

    def find(self, block: Block) -> tuple[str, str] | None:
        """Path and text; the path is in the info string, the line above, or a first comment."""
        in_info = self._word.search(block.info[:_NAMING_LIMIT])
        if in_info:
            return in_info[1], block.text
        above = self._in_line(block.above) if len(block.above) <= _NAMING_LIMIT else []
        if len(above) == 1:
            return above[0], block.text
        first, _, rest = block.text.partition("\n")
        comment = self._comment.match(first[:_NAMING_LIMIT])
        return (comment[1], rest) if comment else None

    def _in_line(self, line: str) -> list[str]:
        """The paths in a line above a block, if it is a heading."""
        words = re.findall(r"`([^`]+)`", line) if self._quoted else []
        found = [match[1] for word in words if (match := self._word.fullmatch(word.strip()))]
        return found or (self._word.findall(line) if _HEADING.match(line) else [])


class _State(StateBlock):
    """Keeps no token but fences: those of a list of 1 MiB would take a gigabyte."""

    def push(self, ttype: str, tag: str, nesting: Literal[-1, 0, 1]) -> Token:
        token = super().push(ttype, tag, nesting)
        if ttype != "fence":
            self.tokens.pop()
        return token


def _fence(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """As in CommonMark, but for text in a list that is indented less than the list: it is still the block's.

    Models often indent the fences alone.
    """
    indent = state.blkIndent
    if state.sCount[first] - indent >= _INDENTED_CODE:
        return False
    state.blkIndent = 0
    try:
        return fence(state, first, last, silent)
    finally:
        state.blkIndent = indent


def _parser() -> MarkdownIt:
    parser = MarkdownIt("zero").enable(["fence", "list", "blockquote"])
    parser.block.ruler.at("fence", _fence, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    return parser


_PARSER: Final = _parser()


def _blocks(fences: Sequence[Token], lines: Sequence[str]) -> Iterator[Block]:
    end = 0
    for token in fences:
        assert token.map is not None
        first, (start, end) = end, token.map
        text = token.content or "\n"
        above = next((lines[n] for n in range(start - 1, first - 1, -1) if lines[n].strip()), "")
        yield Block(
            info=token.info.strip(),
            text=text,
            line=start + 1,
            end=end + 1,
            above=above.lstrip(" >") if above.lstrip().startswith(">") else above,
            closed=end - start - 1 > token.content.count("\n"),
        )
