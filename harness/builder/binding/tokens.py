"""C++ source text as tokens.

What stands under `#if 0` or in a macro's body is not there.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, Literal, NamedTuple

Kind = Literal["word", "string", "number", "mark", "if", "else", "endif"]

# A comment or raw string that never ends runs to the end of the file, or each start of one in a hostile
# file would be searched from again.
_TOKEN: Final = re.compile(
    r"""(?P<blank>\s++|//[^\n]*+|/\*.*?(?:\*/|\Z)|\\\n)
    | (?P<directive>\#(?:[^\n\\]|\\.)*+)
    | (?P<raw>(?:u8|[uUL])?R"(?P<fence>[^()\\\s"]{0,16})\((?P<body>.*?)(?:\)(?P=fence)"|\Z))
    | (?P<string>(?:u8|[uUL])?"(?P<text>(?:[^"\\\n]|\\.)*+)"?)
    | (?P<number>\.?\d(?:[eEpP][+-]|'\w|[\w.])*+)
    | (?P<char>'(?:[^'\\\n]|\\.)*+'?)
    | (?P<word>[A-Za-z_]\w*+)
    | (?P<mark>::|->|.)""",
    re.X | re.S | re.A,
)
_DIRECTIVE: Final = re.compile(r"\#\s*(if|ifdef|ifndef|elif|elifdef|elifndef|else|endif)\b\s*(\w*)", re.A)
_INCLUDE: Final = re.compile(r"^[ \t]*\#[ \t]*include[ \t]*[\"<]([^\">\n]{1,400})[\">]", re.M)


class Token(NamedTuple):
    """A word, a mark or a literal; or the border of a conditional part."""

    kind: Kind
    text: str
    """Of a string what stands between its quotes."""
    line: int
    """1-based."""


def tokens(text: str) -> list[Token]:
    """All tokens outside `#if 0`."""
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    found: list[Token] = []
    left_out = 0
    """How many conditionals deep we are in `#if 0`."""
    for match in _TOKEN.finditer(text):
        kind = str(match.lastgroup)
        if kind == "blank":
            continue
        line = bisect_right(starts, match.start())
        if match["directive"] is not None:
            directive = _DIRECTIVE.match(match[0])
            if directive is None:
                continue
            name = _border(directive[1])
            if left_out:
                left_out += {"if": 1, "endif": -1}.get(name, 0)
                if left_out > 1 or (left_out == 1 and name != "else"):
                    continue
                left_out = 0
            found.append(Token(name, match[0], line))
            left_out = int(directive[1] == "if" and directive[2] == "0")
        elif not left_out:
            found.append(_token(match, line))
    return found


def _border(directive: str) -> Literal["if", "else", "endif"]:
    if directive == "endif":
        return "endif"
    return "if" if directive in ("if", "ifdef", "ifndef") else "else"


def _token(match: re.Match[str], line: int) -> Token:
    if match["raw"] is not None:
        return Token("string", match["body"], line)
    if match["string"] is not None:
        return Token("string", match["text"], line)
    if match["word"] is not None:
        return Token("word", match[0], line)
    if match["mark"] is not None:
        return Token("mark", match[0], line)
    return Token("number", match[0], line)


def included(text: str) -> Iterator[str]:
    """The paths of all includes, as they are written."""
    return (match[1] for match in _INCLUDE.finditer(text))
