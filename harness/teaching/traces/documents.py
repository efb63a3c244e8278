"""Turns whole JSON records into events: a line of JSONL, or a document with messages somewhere inside.

A record that gives no event is bookkeeping we know, or it is counted as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from harness.teaching.traces.collector import Collector
from harness.teaching.traces.messages import content, flat, is_message, message, part, role_of

_BOOKKEEPING_WORDS: Final = """
summary file-history-snapshot queue-operation progress attachment last-prompt custom-title ai-title
permission-mode stream_event rate_limit_event agent-name pr-link session_meta turn_context compacted
token_count task_started task_complete turn_aborted thread.started turn.started turn.completed
item.started item.updated exec_command_begin exec_command_output_delta patch_apply_begin turn_diff
agent_message_delta agent_reasoning_delta agent_reasoning_section_break context_compacted
thread_name_updated mcp_tool_call_begin web_search_begin item_started ghost_snapshot step_start
step_finish session.created session.updated session.idle session.status message.updated file.edited
"""
_BOOKKEEPING: Final = frozenset(_BOOKKEEPING_WORDS.split())
_TIERS: Final = (
    ("messages",),
    ("history",),
    ("contents",),
    ("conversation", "conversations"),
    ("samples",),
    ("trajectory", "turns", "steps"),
    ("input", "output"),
)
"""Where messages lie in a document; the first tier that gives events wins, as others repeat them."""
_DEPTH_LIMIT: Final = 24


def record(out: Collector, value: Any, place: str, depth: int = 0) -> None:
    """One line of JSONL."""
    before = len(out.events)
    known = _record(out, value, place, depth)
    if not known and len(out.events) == before:
        out.unknown[_name(value)] += 1


def _name(value: Any) -> str:
    if not isinstance(value, dict):
        return type(value).__name__
    inner = value.get("payload")
    names = (value.get("type"), inner.get("type") if isinstance(inner, dict) else None)
    return "/".join(name for name in names if isinstance(name, str))[:60] or "without a type"


def _record(out: Collector, value: Any, place: str, depth: int) -> bool:
    """True when the record is one we know, even if it holds no text."""
    if not isinstance(value, dict):
        document(out, value, place, depth + 1)
        return False
    if not out.first_sight(value.get("uuid")):
        return True
    kind = str(value.get("type") or "")
    payload = next((value[k] for k in ("payload", "msg", "item") if isinstance(value.get(k), dict)), None)
    if payload is not None and kind not in _BOOKKEEPING:
        return _item(out, payload, place, echo=kind == "event_msg" or "msg" in value)
    properties = value.get("properties")
    piece = value.get("part") or (properties.get("part") if isinstance(properties, dict) else None)
    if isinstance(piece, dict):
        part(out, piece, "assistant", place, echo=True)
        return True
    inner = value.get("message")
    if isinstance(inner, dict):
        message(out, inner, place, default=role_of(value))
        return True
    if kind == "result" and isinstance(value.get("result"), str):  # Claude Code's stream ends with one
        out.say("assistant", value["result"], place, echo=True)
        return True
    if is_message(value):
        message(out, value, place)
        return True
    return kind in _BOOKKEEPING or _item(out, value, place) or _members(out, value, place, depth)


def document(out: Collector, value: Any, place: str, depth: int = 0) -> bool:
    """A document of any shape; true when it gave events."""
    before = len(out.events)
    if depth > _DEPTH_LIMIT:
        return False
    if isinstance(value, list):
        for index, entry in enumerate(value):
            if isinstance(entry, dict) and _is_record(entry):
                record(out, entry, f"{place}[{index}]", depth + 1)
            else:
                document(out, entry, f"{place}[{index}]", depth + 1)
    elif isinstance(value, dict):
        if _is_record(value):
            record(out, value, place or "document", depth + 1)
        else:
            _members(out, value, place, depth)
    return len(out.events) > before


def _members(out: Collector, value: Mapping[str, Any], place: str, depth: int) -> bool:
    """What lies in the members of a map; true when it gave events."""
    before = len(out.events)
    for tier in _TIERS:
        for key in tier:
            if isinstance(value.get(key), (list, dict)):
                document(out, value[key], _join(place, key), depth + 1)
        if len(out.events) > before:
            break
    else:
        for key, inner in value.items():
            document(out, inner, _join(place, key), depth + 1)
    failure = value.get("error")
    if isinstance(failure, dict) and len(out.events) > before:  # inspect_ai: the sample's own failure
        out.returned(flat(failure), _join(place, "error"), is_error=True)
    return len(out.events) > before


def _join(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def _is_record(value: Mapping[str, Any]) -> bool:
    wrapped = any(isinstance(value.get(k), dict) for k in ("payload", "part"))
    claude = isinstance(value.get("message"), dict) and role_of(value) is not None
    return wrapped or claude or is_message(value) or str(value.get("type")) in _ITEMS


_ITEMS: Final = frozenset(
    (
        "message",
        "reasoning",
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
        "command_execution",
    )
)


def _item(out: Collector, item: Mapping[str, Any], place: str, *, echo: bool = False) -> bool:
    """An item of the Responses API, or an event of Codex; false when its type is unknown."""
    kind = str(item.get("type") or "")
    call = item.get("call_id") or item.get("id")
    match kind:
        case "message":
            content(out, item.get("content"), role_of(item) or "system", f"{place}.content", echo=echo)
        case "reasoning" | "agent_reasoning" | "agent_reasoning_raw_content":
            text = flat(item.get("summary")) or flat(item.get("text")) or flat(item.get("content"))
            out.say("assistant", text, place, thinking=True, echo=echo)
        case "agent_message" | "AgentMessage" | "user_message" | "UserMessage":
            text = next((t for k in ("message", "text", "content") if (t := flat(item.get(k)))), "")
            out.say("user" if kind.lower().startswith("user") else "assistant", text, place, echo=True)
        case "function_call" | "custom_tool_call" | "local_shell_call" | "mcp_tool_call" | "web_search_call":
            keys = ("arguments", "input", "action", "query")
            arguments = next((item[k] for k in keys if k in item), None)
            name = item.get("name") or item.get("tool") or kind.removesuffix("_call")
            out.called(name, arguments, place, call=call)
            result = item.get("result") or item.get("error")
            if result:
                failed = bool(item.get("error"))
                out.returned(flat(result), f"{place}.result", call=call, is_error=failed)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
            text, failed = _output(item.get("output"))
            out.returned(text, f"{place}.output", call=call, is_error=failed)
        case "command_execution" | "CommandExecution" | "exec_command_end":
            _command(out, item, place, call)
        case "error" | "stream_error":
            out.returned(flat(item.get("message")) or flat(item), place, is_error=True)
        case "item_completed":
            inner = item.get("item")
            return isinstance(inner, dict) and _item(out, inner, place, echo=True)
        case "file_change" | "patch_apply_end" | "mcp_tool_call_end" | "web_search_end":
            pass  # the call beside it says the same
        case _:
            return kind in _BOOKKEEPING
    return True


def _command(out: Collector, item: Mapping[str, Any], place: str, call: object) -> None:
    """A command with its output in one record; Codex writes it beside the call, which then is enough."""
    if out.knows_call(item.get("call_id")):
        return
    out.called("shell", {"command": item.get("command")}, place, call=call)
    keys = ("aggregated_output", "formatted_output", "output", "stdout", "stderr")
    text = next((t for k in keys if (t := flat(item.get(k)))), "")
    code = item.get("exit_code")
    out.returned(_with_code(text, code), f"{place}.output", call=call, is_error=_is_failure(code))


def _output(value: Any) -> tuple[str, bool]:
    """Codex wraps a command's output and exit code into JSON inside the output's text."""
    if isinstance(value, str) and value.lstrip().startswith("{"):
        try:
            parsed = json.loads(value)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict) and isinstance(parsed.get("output"), str):
            facts = parsed.get("metadata")
            code = facts.get("exit_code") if isinstance(facts, dict) else None
            return _with_code(parsed["output"], code), _is_failure(code)
    failed = isinstance(value, dict) and value.get("success") is False
    return flat(value), failed


def _is_failure(code: object) -> bool:
    return isinstance(code, int) and code != 0


def _with_code(text: str, code: object) -> str:
    return f"{text.rstrip()}\n[exit code {code}]".lstrip("\n") if _is_failure(code) else text
