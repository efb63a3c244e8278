"""Reads a whole trace, whatever its format, which is detected from the contents and never from the name."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.teaching.traces.events import Collector, Kind, Piece, Role, Trace, pieces
from harness.teaching.traces.sessions import SessionReader

_FORMATS: Final = (
    "sessions of Claude Code and Codex, JSON or JSONL of chat messages, Markdown transcripts, plain logs"
)
_HEAD_BYTES: Final = 1 << 16


def read_trace(path: Path) -> Trace:
    """The trace in the file at `path`. Raises UsageError when it cannot be read or holds no event."""
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror or fault}") from fault
    if b"\0" in data[:_HEAD_BYTES]:
        raise UsageError(f"{path} is not text: it has NUL bytes. What can be read: {_FORMATS}")
    text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
    out = Collector()
    trace = Trace(_read(out, text), len(text), tuple(out.events), out.torn, dict(out.unknown))
    if not trace.events:
        why = f" ({'; '.join(trace.skipped)})" if trace.skipped else ""
        raise UsageError(f"{path} holds no event of a trace{why}. What can be read: {_FORMATS}")
    return trace


def _read(out: Collector, text: str) -> str:
    """Read JSON, JSONL or else Markdown into `out`; returns the format."""
    first = text.lstrip()[:1]
    records = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    reader = SessionReader(out)
    # The first record may be torn.
    if first == "{" and len(records) > 1 and any(isinstance(_parsed(r), dict) for _, r in records[:2]):
        for number, line in records:
            _document(reader, _parsed(line), f"line {number}")
        return "jsonl"
    if first in ("{", "["):
        value = _parsed(text)
        if value is not None:
            _document(reader, value)
            return "json"
        out.torn += first == "{"
    return _MarkdownReader(out).read(text)


def _parsed(text: str) -> Any:
    """The JSON value; None for anything else."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _document(reader: SessionReader, value: Any, place: str = "") -> None:
    """Read a value; one that is torn or nested too deeply is counted, and what was read of it stays."""
    try:
        if value is not None:
            reader.document(value, place)
            return
    except RecursionError:
        pass
    reader.out.torn += 1


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
_MARKER = re.compile(
    # A heading, bold text, or the bare name; emoji and numbers may precede the name.
    r"^(?:#{1,6}\s|\*\*|__|(?=(?:User|Human|Assistant|System|Tool|Claude|AI)\s*:))"
    rf"[\W\d]{{0,20}}?(?i:({_NAMES}))\b"
    # A model's name or a time may follow it.
    r"(?:\s*[(\[][^)\]]{0,80}[)\]])?(?:\*\*|__)?\s*"
    r"(?:(?::|\s[\u2013\u2014-]\s)\s*(?:\*\*|__)?\s*(?P<rest>.*?)(?:\*\*|__)?|\W*)$"
)
_TOOL_NAME = re.compile(r"[`*_]*([\w.:-]{1,60}?)[`*_]*")
_MARKER_LIMIT: Final = 400
_LONG: Final = 200
"""A blank line ends an event of more lines."""


class _MarkdownReader:
    """Reads one text into a collector."""

    def __init__(self, out: Collector) -> None:
        self._out = out
        self._role: Role = "assistant"
        self._kind: Kind = "text"
        self._tool: str | None = None
        self._lines: list[str] = []
        self._start = 1
        self._is_log = True
        """Nobody is named as a speaker, and there is no fenced block."""

    def read(self, text: str) -> str:
        """Read the whole text; returns the format."""
        for piece in pieces(text):
            if piece.block is not None:
                self._is_log = False
                self._flush()
                self._block(piece)
                continue
            for number, line in enumerate(piece.text.split("\n"), piece.line):
                if not self._marker(line, number):
                    self._take(line, number)
        self._flush()
        if not self._is_log:
            return "markdown"
        self._out.events = [replace(event, role="tool", kind="tool_result") for event in self._out.events]
        return "log"

    def _take(self, line: str, number: int) -> None:
        if not self._lines:
            self._start = number
        self._lines.append(line)
        if len(self._lines) > _LONG and not line.strip():
            self._flush()

    def _marker(self, line: str, number: int) -> bool:
        """Whether the line says who speaks from here on."""
        named = _MARKER.match(line) if len(line) <= _MARKER_LIMIT else None
        if named is None:
            return False
        self._flush()
        self._is_log = False
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
        self._lines = []

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
        """Commands; below one that begins with `$ ` stands its output."""
        number = piece.line
        for part in re.split(r"^(?=\$ )", piece.text, flags=re.MULTILINE):
            prompt, _, output = part.partition("\n") if part.startswith("$ ") else (part, "", "")
            self._add("assistant", "tool_call", prompt.removeprefix("$ "), number)
            self._add("tool", "tool_result", output, number + 1)
            number += part.count("\n")
