"""Reads transcripts written as Markdown, and plain logs.

Every line that is not blank is in one event, or says who speaks.
"""

from __future__ import annotations

import re
from itertools import groupby
from typing import Final

from harness.teaching.traces.events import Collector, Kind, Piece, Role, pieces

_SHELL: Final = frozenset(("bash", "sh", "shell", "zsh", "console", "terminal", "powershell", "cmd"))
_OUTPUT: Final = frozenset(("", "text", "txt", "output", "log", "plaintext", "stdout", "stderr", "pytb"))
_SPEAKERS: Final[dict[str, tuple[Role, Kind]]] = {
    **dict.fromkeys(("user", "human", "you", "prompt"), ("user", "text")),
    **dict.fromkeys(("assistant", "claude", "codex", "model", "agent", "ai"), ("assistant", "text")),
    **dict.fromkeys(("thinking", "reasoning"), ("assistant", "thinking")),
    **dict.fromkeys(("system", "developer"), ("system", "text")),
    **dict.fromkeys(("tool call", "tool use", "tool input"), ("assistant", "tool_call")),
    **dict.fromkeys(("tool", "tool result", "tool output", "observation"), ("tool", "tool_result")),
}
_NAMES: Final = "|".join(sorted((w.replace(" ", "[ _]") for w in _SPEAKERS), key=len, reverse=True))
# Emoji, numbers and brackets may precede the name; a model's name or a time may follow it.
_HEADING = re.compile(
    rf"^#{{1,6}}\s+[^\w\n]{{0,8}}(?:\d+[.)]\s*)?[^\w\n]{{0,8}}({_NAMES})\b(?:\s*\([^)\n]{{0,80}}\))?"
    r"\s*(?:[:\u2013\u2014-]\s*(?P<rest>.{0,200}))?\W*$",
    re.I,
)
_BOLD = re.compile(
    rf"^\W{{0,4}}(?:\*\*|__)[^\w*]{{0,4}}({_NAMES})(?:\s*[(\[][^*\n]{{0,60}}[)\]])?\s*"
    r"(?:(?:\*\*|__)\s*:?|:\s*(?:\*\*|__)|:\s*(?=\w+\s*(?:\*\*|__)\s*$))\s*(?P<rest>.*)$",
    re.I,
)
_PLAIN = re.compile(r"^(User|Human|Assistant|System|Tool|Claude|AI)\s*:\s?(?P<rest>.*)$")
_TOOL_NAME = re.compile(r"[`*_]*([\w.:-]{1,60}?)[`*_]*")
_MARKER_LIMIT: Final = 400
_LONG: Final = 16_000
"""A blank line ends an event of more characters."""


class MarkdownReader:
    """Reads one text into a collector."""

    def __init__(self, out: Collector) -> None:
        self._out = out
        self._role: Role = "assistant"
        self._kind: Kind = "text"
        self._tool: str | None = None
        self._lines: list[str] = []
        self._start = 1
        self._size = 0
        self.is_log = True
        """No line names a speaker, and there is no fenced block."""

    def read(self, text: str) -> None:
        """The whole text."""
        for piece in pieces(text):
            if piece.block is not None:
                self.is_log = False
                self._flush()
                self._block(piece)
                continue
            for number, line in enumerate(piece.text.split("\n"), piece.line):
                if not self._marker(line, number):
                    self._take(line, number)
        self._flush()

    def _take(self, line: str, number: int) -> None:
        if not self._lines:
            self._start = number
        self._lines.append(line)
        self._size += len(line)
        if self._size > _LONG and not line.strip():
            self._flush()

    def _marker(self, line: str, number: int) -> bool:
        """Whether the line says who speaks from here on."""
        if not line.strip() or len(line) > _MARKER_LIMIT:
            return False
        named = _HEADING.match(line) if line[0] == "#" else _BOLD.match(line) or _PLAIN.match(line)
        if named is None:
            return False
        self._flush()
        self.is_log = False
        self._role, self._kind = _SPEAKERS[named[1].lower().replace("_", " ")]
        self._tool, rest = None, (named["rest"] or "").strip()
        if self._kind in ("tool_call", "tool_result") and (tool := _TOOL_NAME.fullmatch(rest)) is not None:
            self._tool, rest = tool[1], ""
        if rest:
            self._take(rest, number)
        return True

    def _add(self, role: Role, kind: Kind, text: str, line: int) -> None:
        of_tool = kind in ("tool_call", "tool_result")
        arguments = {"command": text} if kind == "tool_call" else {}
        tool = self._tool if of_tool else None
        self._out.add(role, kind, text, f"line {line}", tool=tool, arguments=arguments, line=line)

    def _flush(self) -> None:
        self._add(self._role, self._kind, "\n".join(self._lines), self._start)
        self._lines, self._size = [], 0

    def _block(self, piece: Piece) -> None:
        """A fenced block: a command, its output, or code, by its language and by who speaks."""
        language = (piece.block.info.split() or [""])[0].lower() if piece.block else ""
        if self._role == "user" or self._kind == "thinking":
            self._add(self._role, self._kind, piece.text, piece.line)
        elif self._kind == "tool_result" or language in _OUTPUT:
            self._add("tool", "tool_result", piece.text, piece.line)
        elif self._kind == "tool_call" and piece.text.lstrip().startswith("{"):  # arguments as JSON
            self._out.called(self._tool, piece.text, f"line {piece.line}")
        elif self._kind == "tool_call" or language in _SHELL:
            self._commands(piece)
        else:
            place, arguments = f"line {piece.line}", piece.arguments
            self._out.add("assistant", "code", piece.text, place, arguments=arguments, line=piece.line)

    def _commands(self, piece: Piece) -> None:
        """Commands; where some begin with `$ `, the lines below those are their output."""
        lines = list(enumerate(piece.text.split("\n"), piece.line))
        prompted = any(line.startswith("$ ") for _, line in lines)
        for is_command, group in groupby(lines, lambda x: not prompted or x[1].startswith("$ ")):
            numbers, texts = zip(*group, strict=True)
            text = "\n".join(line.removeprefix("$ ") if is_command else line for line in texts)
            if is_command:
                self._add("assistant", "tool_call", text, numbers[0])
            else:
                self._add("tool", "tool_result", text, numbers[0])
