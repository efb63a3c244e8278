"""What a trace is once it has been read: a list of events.

Events stand in the order of the file, `index` counts them from 0, and none is empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["user", "assistant", "tool", "system"]
Kind = Literal["text", "code", "tool_call", "tool_result", "thinking"]


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that was said, called or returned."""

    index: int
    role: Role
    kind: Kind
    text: str
    """Of a call: its command, or its arguments as JSON."""
    place: str
    """`line 12`, or a path such as `messages[3].content[0]`."""
    tool: str | None = None
    """Name of the tool; None for what is no call and no result."""
    is_error: bool = False
    """The trace itself says that this result is a failure."""
    call: str | None = None
    """Joins a result to its call; None where the trace does not say."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of a call, as recorded; of code, `path` where the trace names one."""
    line: int | None = None
    """1-based line of the file at which the text begins; None where it is inside a JSON string."""

    def place_of(self, offset: int) -> str:
        """Where the text's line `offset` (from 0) stands."""
        if self.line is not None:
            return f"line {self.line + offset}"
        return f"{self.place}, its line {offset + 1}" if offset else self.place


@dataclass(frozen=True)
class Trace:
    """A whole trace."""

    source: str
    """The file or folder, as it was named."""
    format: str
    """`jsonl`, `json`, `markdown`, `log` or `run folder`."""
    characters: int
    """All that was read, after decoding."""
    events: tuple[Event, ...]
    torn: int = 0
    """Lines (or documents) that should have been JSON and are not."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """JSON records that gave no event, by their type; bookkeeping that holds no text is not among them."""

    @property
    def task(self) -> Event:
        """The task: the first message of the user that the agent's own program did not put there."""
        said = [e for e in self.events if e.role == "user" and e.kind in ("text", "code")]
        own = (e for e in said if not e.text.lstrip().startswith(_INJECTED))
        return next(own, said[0] if said else self.events[0])

    @property
    def faults(self) -> tuple[str, ...]:
        """What could not be read, in words; empty when all could."""
        found = [f"torn or malformed JSON records that were skipped: {self.torn:,}"] if self.torn else []
        if self.unknown:
            kinds = ", ".join(f"{name} ({count:,})" for name, count in sorted(self.unknown.items())[:_NAMED])
            more = f" and {len(self.unknown) - _NAMED} kinds more" if len(self.unknown) > _NAMED else ""
            found.append(f"records of unknown kinds that were skipped: {kinds}{more}")
        return tuple(found)


_NAMED = 6
# What Codex and Claude Code send in the user's name.
_INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "<system-reminder>",
    "<command-",
    "<local-command-",
    "<permissions",
    "# AGENTS.md instructions",
    "Caveat: The messages below",
)
