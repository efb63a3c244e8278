"""Where keys and tables stand in a TOML text.

Never raises; what the scanner does not understand ends it, and later keys then have no line.
"""

from __future__ import annotations

import contextlib
import re
from bisect import bisect_right
from typing import Final

Path = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SCALAR = re.compile(r"[^,\]}\r\n#]*")
# Longest first; an escaped quote does not end a basic string.
_STRINGS: Final = (
    re.compile(r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}', re.S),
    re.compile(r"'''.*?'{3,5}", re.S),
    re.compile(r'"(?:[^"\\\n]|\\.)*"'),
    re.compile(r"'[^'\n]*'"),
)
_DEPTH: Final = 50  # of arrays and inline tables; no build.toml needs more than three


class _Lost(Exception):
    """The text is not as expected."""


def positions(text: str) -> dict[Path, int]:
    """1-based line by path, such as ("kernel", "a", "src", 0); a header stands for its table."""
    scanner = _Scanner(text)
    with contextlib.suppress(_Lost):
        scanner.scan()
    return scanner.found


class _Scanner:
    def __init__(self, text: str) -> None:
        self.found: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._ends = [i for i, character in enumerate(text) if character == "\n"]

    def scan(self) -> None:
        table: Path = ()
        counts: dict[Path, int] = {}
        self._skip(_GAP)
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                double = self._text.startswith("[[", self._at)
                line = self._line()
                self._at += 2 if double else 1
                table = self._key()
                self._expect("]]" if double else "]")
                if double:
                    counts[table] = counts.get(table, -1) + 1
                    table = (*table, counts[table])
                self.found.setdefault(table, line)
            else:
                self._pair(table, 0)
            self._skip(_GAP)

    # --- pieces --------------------------------------------------------------------------------

    def _line(self) -> int:
        return bisect_right(self._ends, self._at - 1) + 1

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _Lost
        self._at = match.end()
        return match[0]

    def _expect(self, mark: str) -> None:
        self._skip(_BLANK)
        if not self._text.startswith(mark, self._at):
            raise _Lost
        self._at += len(mark)

    def _key(self) -> Path:
        parts: list[str | int] = []
        while True:
            self._skip(_BLANK)
            quote = self._text[self._at : self._at + 1]
            parts.append(self._string()[1:-1] if quote in ("'", '"') else self._skip(_BARE))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return tuple(parts)
            self._at += 1

    def _string(self) -> str:
        for pattern in _STRINGS:
            match = pattern.match(self._text, self._at)
            if match is not None:
                self._at = match.end()
                return match[0]
        raise _Lost

    def _pair(self, table: Path, depth: int) -> None:
        self._skip(_BLANK)
        line = self._line()
        path = (*table, *self._key())
        self.found.setdefault(path, line)
        self._expect("=")
        self._value(path, depth)

    def _value(self, path: Path, depth: int) -> None:
        if depth > _DEPTH:
            raise _Lost
        self._skip(_BLANK)
        first = self._text[self._at : self._at + 1]
        if first == "[":
            self._sequence("]", path, depth)
        elif first == "{":
            self._sequence("}", path, depth)
        elif first in ("'", '"'):
            self._string()
        else:
            self._skip(_SCALAR)

    def _sequence(self, end: str, path: Path, depth: int) -> None:
        """An array, or an inline table where `end` is a brace."""
        self._at += 1
        index = 0
        while True:
            self._skip(_GAP)
            if self._text.startswith(end, self._at):
                self._at += 1
                return
            before = self._at
            if end == "]":
                self.found.setdefault((*path, index), self._line())
                self._value((*path, index), depth + 1)
            else:
                self._pair(path, depth + 1)
            index += 1
            self._skip(_GAP)
            if self._text.startswith(",", self._at):
                self._at += 1
            if self._at == before:
                raise _Lost
