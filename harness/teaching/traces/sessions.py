"""Turns JSON records into events: sessions of Claude Code and Codex, messages of OpenAI and Anthropic.

Any JSON is accepted: a record that gives no event is one that is known to hold no text, or is counted as
unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from harness.teaching.traces.events import Collector, Role

_ROLES: Final[dict[str, Role]] = {
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
# Records without text, and Codex's `event_msg`, which repeats its response items.
_BOOKKEEPING_WORDS: Final = """
summary file-history-snapshot queue-operation progress attachment last-prompt custom-title ai-title
permission-mode stream_event rate_limit_event agent-name pr-link system result
session_meta turn_context compacted event_msg ghost_snapshot file_change todo_list web_search
thread.started turn.started turn.completed item.started item.updated
"""
_BOOKKEEPING: Final = frozenset(_BOOKKEEPING_WORDS.split())
_SILENT: Final = frozenset(
    ("image", "image_url", "input_image", "input_audio", "file", "document", "redacted_thinking")
)
_TEXT_KEYS: Final = ("text", "content", "output", "stdout", "stderr", "error", "message")


class SessionReader:
    """Reads the records of one session into a collector."""

    def __init__(self, out: Collector) -> None:
        self.out = out
        self._seen: set[str] = set()

    def document(self, value: Any, place: str = "") -> None:
        """A record, a list of records, or an object with a list `messages`, or lists `input` and `output`."""
        if isinstance(value, list):
            for index, entry in enumerate(value):
                self.record(entry, f"{place}[{index}]")
            return
        if isinstance(value, dict) and "call_id" not in value:  # a call's output may be a list too
            keys = ("messages",) if isinstance(value.get("messages"), list) else ("input", "output")
            lists = [key for key in keys if isinstance(value.get(key), list)]
            for key in lists:
                self.document(value[key], f"{place}.{key}" if place else key)
            if lists:
                return
        self.record(value, place or "document")

    def record(self, value: Any, place: str) -> None:
        """One record: a line of JSONL, or a member of a list."""
        before = len(self.out.events)
        if not self._known(value, place) and len(self.out.events) == before:
            self.out.unknown[_type_of(value)] += 1

    def _known(self, value: Any, place: str) -> bool:
        """Whether the record is of a known type, even if it holds no text."""
        if not isinstance(value, dict):
            return False
        identity = value.get("uuid")
        if isinstance(identity, str):
            if identity in self._seen:  # a resumed session repeats its records
                return True
            self._seen.add(identity)
        inner = value.get("message")
        if isinstance(inner, dict):
            return self._message(inner, place)
        if str(value.get("type")) in _BOOKKEEPING:
            return True
        item = next((value[key] for key in ("payload", "item") if isinstance(value.get(key), dict)), value)
        if str(item.get("role")) in _ROLES:
            return self._message(item, place)
        return self._item(item, place)

    def _message(self, value: Mapping[str, Any], place: str) -> bool:
        """A message: its reasoning, its content, its calls. False without a known role."""
        role = _ROLES.get(str(value.get("role")))
        if role is None:
            return False
        self.out.say("assistant", value.get("reasoning_content"), f"{place}.reasoning", thinking=True)
        if role == "tool":
            self.out.returned(flat(value.get("content")), f"{place}.content", call=value.get("tool_call_id"))
        else:
            self._content(value.get("content"), role, f"{place}.content")
        calls = value.get("tool_calls")
        for index, call in enumerate(calls if isinstance(calls, list) else ()):
            function = call.get("function") if isinstance(call, dict) else None
            if isinstance(function, dict):
                where = f"{place}.tool_calls[{index}]"
                self.out.called(function.get("name"), function.get("arguments"), where, call=call.get("id"))
        return True

    def _content(self, value: Any, role: Role, place: str) -> None:
        """The content of a message: text, one part, or a list of both."""
        if isinstance(value, list):
            for index, item in enumerate(value):
                self._content(item, role, f"{place}[{index}]")
        elif isinstance(value, dict):
            self._part(value, role, place)
        else:
            self.out.say(role, value, place)

    def _part(self, part: Mapping[str, Any], role: Role, place: str) -> None:
        kind = str(part.get("type") or "")
        if kind == "thinking":
            self.out.say("assistant", part.get("thinking"), place, thinking=True)
        elif kind.endswith("tool_use"):
            self.out.called(part.get("name"), part.get("input"), place, call=part.get("id"))
        elif kind.endswith("tool_result"):
            text, failed = flat(part.get("content")), bool(part.get("is_error"))
            self.out.returned(text, place, call=part.get("tool_use_id"), is_error=failed)
        elif isinstance(part.get("text"), str):
            self.out.say(role, part["text"], place)
        elif kind not in _SILENT:
            self.out.unknown[f"part {kind or 'without a type'}"] += 1

    def _item(self, item: Mapping[str, Any], place: str) -> bool:
        """An item of the Responses API or of Codex. False when its type is unknown."""
        out, call = self.out, item.get("call_id") or item.get("id")
        match str(item.get("type") or ""):
            case "reasoning":
                text = next((t for k in ("summary", "text", "content") if (t := flat(item.get(k)))), "")
                out.say("assistant", text, place, thinking=True)
            case "agent_message":
                out.say("assistant", item.get("text"), place)
            case "function_call" | "custom_tool_call" | "local_shell_call" | "mcp_tool_call" as kind:
                name = item.get("name") or item.get("tool") or kind.removesuffix("_call")
                arguments = next((item[k] for k in ("arguments", "input", "action") if k in item), None)
                out.called(name, arguments, place, call=call)
                if item.get("result") or item.get("error"):
                    text, failed = flat(item.get("error") or item.get("result")), bool(item.get("error"))
                    out.returned(text, f"{place}.result", call=call, is_error=failed)
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                text, code = _output(item.get("output"))
                out.returned(_with_code(text, code), f"{place}.output", call=call, is_error=bool(code))
            case "command_execution":
                text, code = flat(item.get("aggregated_output")), item.get("exit_code")
                out.called("shell", {"command": item.get("command")}, place, call=call)
                out.returned(_with_code(text, code), f"{place}.output", call=call, is_error=bool(code))
            case "error":
                out.returned(flat(item.get("message")), place, is_error=True)
            case kind:
                return kind in _BOOKKEEPING
        return True


def _type_of(value: Any) -> str:
    """The types of a record and of the item in it."""
    if not isinstance(value, dict):
        return type(value).__name__
    inner = value.get("payload")
    names = (value.get("type"), inner.get("type") if isinstance(inner, dict) else None)
    return "/".join(name for name in names if isinstance(name, str))[:60] or "without a type"


def _output(value: Any) -> tuple[str, object]:
    """Text and exit code of a command; Codex puts both as JSON into the output's text."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict) or not isinstance(parsed.get("output"), str):
        return flat(value), None
    facts = parsed.get("metadata")
    return parsed["output"], facts.get("exit_code") if isinstance(facts, dict) else None


def _with_code(text: str, code: object) -> str:
    return f"{text.rstrip()}\n[exit code {code}]".lstrip("\n") if code else text


def flat(value: Any) -> str:
    """All text in a value that should be text, but may be parts or an error."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(flat, value)))
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    if str(value.get("type")) in _SILENT:
        return ""
    found = [text for key in _TEXT_KEYS if (text := flat(value.get(key)))]
    return "\n".join(found) or (json.dumps(value, ensure_ascii=False) if value else "")
