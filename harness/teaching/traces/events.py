"""A trace as a list of events, and the collector that the readers of all formats fill."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from harness.student.fences import ANY_PATH, Block, FileNames, fenced_blocks
from harness.text import redact, shorten

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["text", "code", "tool_call", "tool_result", "thinking"]

_KINDS_CHARS: Final = 400
# Codex and Claude Code send these in the user's name.
_INJECTED: Final = (
    "<environment_context>",
    "<user_instructions>",
    "<system-reminder>",
    "<command-",
    "<local-command-",
    "<permissions",
    "# AGENTS.md instructions",
    "Caveat: The messages below",
)
_NAMES: Final = FileNames(ANY_PATH)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was said, called or returned; its text is never blank."""

    index: int
    role: Role
    kind: Kind
    text: str
    """Of a call: its command, or its arguments as JSON."""
    place: str
    """`line 12`, or a path such as `messages[3].content[0]`."""
    tool: str | None = None
    is_error: bool = False
    call: str | None = None
    """Id that joins a result to its call; None where the trace has none."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of a call, as recorded; of code, `path` where the trace names one."""
    line: int | None = None

    def place_of(self, offset: int) -> str:
        """The place of the text's line `offset`, from 0."""
        if self.line is not None:
            return f"line {self.line + offset}"
        return f"{self.place}, its line {offset + 1}" if offset else self.place


@dataclass(frozen=True)
class Trace:
    """A whole trace."""

    format: str
    characters: int
    events: tuple[Event, ...]
    torn: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    """JSON records that gave no event, by type; known records without text are not counted."""

    @property
    def task(self) -> Event:
        """The user's first message that the agent's program did not insert."""
        messages = [e for e in self.events if e.role == "user" and e.kind in ("text", "code")]
        own = (e for e in messages if not e.text.lstrip().startswith(_INJECTED))
        return next(own, messages[0] if messages else self.events[0])

    @property
    def skipped(self) -> tuple[str, ...]:
        """What could not be read, in words."""
        found = [f"torn or malformed JSON records that were skipped: {self.torn:,}"] if self.torn else []
        if self.unknown:
            kinds = ", ".join(f"{name} ({count:,})" for name, count in sorted(self.unknown.items()))
            found.append(f"records of unknown kinds that were skipped: {shorten(kinds, _KINDS_CHARS)}")
        return tuple(found)


class Collector:
    """The events so far, with keys and tokens redacted, and what could not be read."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.unknown: Counter[str] = Counter()
        self.torn = 0
        self._tools: dict[str, str] = {}

    def say(self, role: Role, text: object, place: str, *, thinking: bool = False) -> None:
        """Add the text of a message; an assistant's fenced blocks become events of kind `code`."""
        if not isinstance(text, str):
            return
        if role != "assistant" or thinking:
            self.add(role, "thinking" if thinking else "text", text, place)
            return
        for piece in pieces(text):
            where = f"{place}, its line {piece.line}" if piece.line > 1 else place
            kind: Kind = "text" if piece.block is None else "code"
            self.add(role, kind, piece.text, where, arguments=piece.arguments)

    def called(self, name: object, arguments: object, place: str, *, call: object = None) -> None:
        """Add a tool call; its arguments may be an object, or JSON or other text."""
        tool = name if isinstance(name, str) and name else "tool"
        if isinstance(arguments, str):
            try:
                parsed = json.loads(arguments)
            except (ValueError, RecursionError):
                parsed = None
            arguments = parsed if isinstance(parsed, dict) else {"input": arguments}
        known: Mapping[str, Any] = _clean(arguments) if isinstance(arguments, dict) else {}
        if isinstance(call, str):
            self._tools[call] = tool
        text = command_of(known) or json.dumps(known, ensure_ascii=False) if known else tool
        self.add("assistant", "tool_call", text, place, tool=tool, call=call, arguments=known)

    def returned(self, text: str, place: str, *, call: object = None, is_error: bool = False) -> None:
        """Add the result of a tool; a failure without output is an event too."""
        tool = self._tools.get(call) if isinstance(call, str) else None
        if is_error and not text.strip():
            text = "[failed without output]"
        self.add("tool", "tool_result", text, place, tool=tool, call=call, is_error=is_error)

    def add(
        self,
        role: Role,
        kind: Kind,
        text: str,
        place: str,
        *,
        call: object = None,
        arguments: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> None:
        """Add one event, unless its text is blank; `more` are other fields of it."""
        more |= {"call": call if isinstance(call, str) else None, "arguments": _clean(dict(arguments or {}))}
        if text.strip():
            self.events.append(Event(len(self.events), role, kind, _clean(text), place, **more))


def _clean(value: Any) -> Any:
    """A JSON value without keys, tokens, and lone surrogates, which UTF-8 cannot hold."""
    if isinstance(value, str):
        return redact(value if value.isascii() else value.encode("utf-8", "replace").decode())
    if isinstance(value, dict):
        return {key: _clean(inner) for key, inner in value.items()}
    return [_clean(inner) for inner in value] if isinstance(value, list) else value


def command_of(arguments: Mapping[str, Any]) -> str:
    """The shell command among a call's arguments; empty where there is none."""
    for key in ("command", "cmd", "script"):
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            # `bash -lc "..."`: the script is the command.
            return value[-1] if len(value) > 2 and value[1].startswith("-") else " ".join(value)
    return ""


@dataclass(frozen=True)
class Piece:
    """Prose between fenced blocks, or the contents of one block."""

    text: str
    line: int
    block: Block | None = None

    @property
    def arguments(self) -> dict[str, str]:
        """`path`: the file that a block shows, where it is named."""
        named = None if self.block is None else _NAMES.find(self.block)
        return {} if named is None else {"path": named[0]}


def pieces(text: str) -> Iterator[Piece]:
    """Prose and blocks in order: all lines but the fences. A block without closing fence runs to the end."""
    lines = text.split("\n")
    start = 1
    for block in fenced_blocks(text):
        if block.line > start:
            yield Piece("\n".join(lines[start - 1 : block.line - 1]), start)
        yield Piece(block.text.removesuffix("\n"), block.line + 1, block)
        start = block.end
    if start <= len(lines):
        yield Piece("\n".join(lines[start - 1 :]), start)
