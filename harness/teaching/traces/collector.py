"""Gathers events while a trace is read.

An event without text is never added.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any, Final

from harness.teaching.traces.event import Event, Kind, Role
from harness.teaching.traces.fences import code_path, pieces

_COMMAND_KEYS: Final = ("command", "cmd", "script")
_ECHO_WINDOW: Final = 16
"""Codex writes a message twice, a few records apart."""


class Collector:
    """The events so far, and what could not be read."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.unknown: Counter[str] = Counter()
        self.torn = 0
        self._tools: dict[str, str] = {}
        self._seen: set[str] = set()
        self._said: deque[tuple[Role, Kind, str, bool]] = deque(maxlen=_ECHO_WINDOW)

    def first_sight(self, identity: object) -> bool:
        """False for a record that an earlier one has already given (a resumed session repeats them)."""
        if not isinstance(identity, str) or identity not in self._seen:
            self._seen.add(str(identity))
            return True
        return False

    def knows_call(self, call: object) -> bool:
        """Whether the call with this id has been added."""
        return isinstance(call, str) and call in self._tools

    def say(
        self, role: Role, text: object, place: str, *, thinking: bool = False, echo: bool = False
    ) -> None:
        """Text of a message; an assistant's fenced code becomes events. `echo`: may be a repeat."""
        if not isinstance(text, str) or not text.strip():
            return
        kind: Kind = "thinking" if thinking else "text"
        if any(said[:3] == (role, kind, text) and (echo or said[3]) for said in self._said):
            return
        self._said.append((role, kind, text, echo))
        if role != "assistant" or thinking or "```" not in text:
            self.add(role, kind, text, place)
            return
        for piece in pieces(text):
            path = code_path(piece.info, piece.above) if piece.info is not None else None
            self.add(
                role,
                "text" if piece.info is None else "code",
                piece.text,
                f"{place}, its line {piece.line}" if piece.line > 1 else place,
                arguments={"path": path} if path else {},
            )

    def called(self, name: object, arguments: object, place: str, *, call: object = None) -> None:
        """A tool call; its arguments may be an object, or JSON or other text."""
        tool = name if isinstance(name, str) and name else "tool"
        if isinstance(arguments, str):
            try:
                parsed = json.loads(arguments)
            except (ValueError, RecursionError):
                parsed = None
            arguments = parsed if isinstance(parsed, dict) else {"input": arguments}
        known: Mapping[str, Any] = arguments if isinstance(arguments, dict) else {}
        if isinstance(call, str):
            self._tools[call] = tool
        text = command_of(known) or json.dumps(known, ensure_ascii=False) if known else tool
        self.add("assistant", "tool_call", text, place, tool=tool, call=call, arguments=known)

    def returned(
        self, text: str, place: str, *, call: object = None, tool: object = None, is_error: bool = False
    ) -> None:
        """What a tool gave back; a failure without any words stays an event."""
        name = (
            tool if isinstance(tool, str) and tool else self._tools.get(call if isinstance(call, str) else "")
        )
        if is_error and not text.strip():
            text = "[failed without output]"
        self.add("tool", "tool_result", text, place, tool=name, call=call, is_error=is_error)

    def add(
        self,
        role: Role,
        kind: Kind,
        text: str,
        place: str,
        *,
        tool: str | None = None,
        call: object = None,
        is_error: bool = False,
        arguments: Mapping[str, Any] | None = None,
        line: int | None = None,
    ) -> None:
        """Add one event, unless it is blank."""
        if not text.strip():
            return
        if not text.isascii():  # JSON may hold half of a surrogate pair, which no file can
            text = text.encode("utf-8", "replace").decode()
        joined = call if isinstance(call, str) else None
        self.events.append(
            Event(len(self.events), role, kind, text, place, tool, is_error, joined, arguments or {}, line)
        )


def command_of(arguments: Mapping[str, Any]) -> str:
    """The shell command among a call's arguments; empty when there is none."""
    for key in _COMMAND_KEYS:
        value = arguments.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            # `bash -lc "..."`: what counts is the script
            return value[-1] if len(value) > 2 and value[1].startswith("-") else " ".join(value)
    return ""
