"""Turns one JSON message, or one part of it, into events.

Whatever the JSON holds, reading it raises nothing; a part of an unknown type is counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from harness.teaching.traces.collector import Collector
from harness.teaching.traces.event import Role

_ROLES: Final[dict[str, Role]] = {
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "model", "gemini", "ai", "gpt", "bot", "agent"), "assistant"),
    **dict.fromkeys(("tool", "function", "ipython", "environment", "observation", "tool_result"), "tool"),
    **dict.fromkeys(("system", "developer"), "system"),
}
_SILENT_WORDS: Final = """
image image_url input_image audio file document step-start step-finish snapshot patch agent
compaction redacted_thinking todo_list retry subtask
"""
_SILENT: Final = frozenset(_SILENT_WORDS.split())
"""Parts without text of their own."""
_CONTENT_KEYS: Final = ("content", "parts", "value", "text")


def role_of(value: Mapping[str, Any]) -> Role | None:
    """The role of a message, by whichever field names it; None when it is no message."""
    info = value.get("info")
    nested = info.get("role") if isinstance(info, dict) else None
    for name in (value.get("role"), nested, value.get("from"), value.get("sender"), value.get("type")):
        if isinstance(name, str) and name.lower() in _ROLES:
            return _ROLES[name.lower()]
    return None


def is_message(value: Mapping[str, Any]) -> bool:
    """Whether `message` can read it: a role, and something said or called."""
    keys = (*_CONTENT_KEYS, "tool_calls", "toolCalls", "tool_results", "function_call")
    return role_of(value) is not None and any(key in value for key in keys)


def message(out: Collector, value: Mapping[str, Any], place: str, default: Role | None = None) -> None:
    """One message: its reasoning, its content, its calls, the results it carries."""
    role = role_of(value) or default or "system"
    for key in ("reasoning_content", "reasoning", "thoughts"):
        out.say("assistant", flat(value.get(key)), f"{place}.{key}", thinking=True)
    results = value.get("tool_results")
    for call, result in results.items() if isinstance(results, dict) else ():
        failed = isinstance(result, dict) and bool(result.get("isError") or result.get("is_error"))
        out.returned(flat(result), f"{place}.tool_results.{call}", call=call, is_error=failed)
    key = next((k for k in _CONTENT_KEYS if value.get(k)), "content")
    if role == "tool":
        failed = bool(value.get("is_error") or value.get("error")) or value.get("status") == "error"
        text = "\n".join(filter(None, (flat(value.get(key)), flat(value.get("error")))))
        name = value.get("name") if isinstance(value.get("name"), str) else value.get("function")
        out.returned(text, f"{place}.{key}", call=value.get("tool_call_id"), tool=name, is_error=failed)
    else:
        content(out, value.get(key), role, f"{place}.{key}")
    _calls(out, value, place)


def _calls(out: Collector, value: Mapping[str, Any], place: str) -> None:
    calls = value.get("tool_calls")
    if isinstance(calls, dict):  # fast-agent: id -> {params: {name, arguments}}
        calls = [{"id": i, **(c.get("params") or {})} for i, c in calls.items() if isinstance(c, dict)]
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        if isinstance(call, dict):
            # OpenAI nests name and arguments in `function`; inspect_ai has the name there as text.
            inner = call.get("function")
            source = inner if isinstance(inner, dict) else {"name": inner, **call}
            arguments = source.get("arguments", source.get("args"))
            where = f"{place}.tool_calls[{index}]"
            out.called(source.get("name") or inner, arguments, where, call=call.get("id"))
    legacy = value.get("function_call")
    if isinstance(legacy, dict):
        out.called(legacy.get("name"), legacy.get("arguments"), f"{place}.function_call")
    gemini = value.get("toolCalls")
    for index, call in enumerate(gemini if isinstance(gemini, list) else ()):
        if isinstance(call, dict):
            where = f"{place}.toolCalls[{index}]"
            out.called(call.get("name"), call.get("args"), where, call=call.get("id"))
            result = flat(call.get("result")) or flat(call.get("resultDisplay"))
            failed = call.get("status") in ("error", "cancelled")
            out.returned(
                result, f"{where}.result", call=call.get("id"), tool=call.get("name"), is_error=failed
            )


def content(out: Collector, value: Any, role: Role, place: str, *, echo: bool = False) -> None:
    """The content of a message: text, one part, or a list of both."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            content(out, item, role, f"{place}[{index}]", echo=echo)
    elif isinstance(value, dict):
        part(out, value, role, place, echo=echo)
    elif isinstance(value, str):
        out.say(role, value, place, echo=echo)


def part(out: Collector, value: Mapping[str, Any], role: Role, place: str, *, echo: bool = False) -> None:
    """One part of a message's content."""
    kind = str(value.get("type") or "")
    if kind in ("thinking", "reasoning"):
        text = next(
            (t for k in ("thinking", "text", "reasoning", "summary") if (t := flat(value.get(k)))), ""
        )
        out.say("assistant", text, place, thinking=True, echo=echo)
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use", "toolCall", "tool-call"):
        arguments = next((value[k] for k in ("input", "arguments", "args") if k in value), None)
        name = value.get("name") or value.get("toolName")
        out.called(name, arguments, place, call=value.get("id") or value.get("toolCallId"))
    elif kind.endswith(("tool_result", "toolResult", "tool-result")):
        failed = bool(value.get("is_error") or value.get("isError"))
        call = value.get("tool_use_id") or value.get("toolCallId")
        text = flat(value.get("content") or value.get("output") or value.get("result"))
        out.returned(text, place, call=call, is_error=failed)
    elif kind == "tool":
        _tool_state(out, value, place)
    elif isinstance(value.get("functionCall"), dict):
        inner = value["functionCall"]
        out.called(inner.get("name"), inner.get("args"), place, call=inner.get("id"))
    elif isinstance(value.get("functionResponse"), dict):
        inner = value["functionResponse"]
        failed = isinstance(inner.get("response"), dict) and "error" in inner["response"]
        out.returned(flat(inner), place, call=inner.get("id"), tool=inner.get("name"), is_error=failed)
    elif isinstance(value.get("text"), str):
        thought = value.get("thought") is True
        out.say("assistant" if thought else role, value["text"], place, thinking=thought, echo=echo)
    elif kind not in _SILENT and "inlineData" not in value:
        out.unknown[f"part {kind or 'without a type'}"] += 1


def _tool_state(out: Collector, value: Mapping[str, Any], place: str) -> None:
    """opencode keeps a call and its result in one part, rewritten as it goes on."""
    state = value.get("state")
    if not isinstance(state, dict) or state.get("status") in ("pending", "running"):
        return
    call = value.get("callID")
    out.called(value.get("tool"), state.get("input"), f"{place}.state.input", call=call)
    failed = state.get("status") == "error"
    key = "error" if failed else "output"
    out.returned(flat(state.get(key)), f"{place}.state.{key}", call=call, is_error=failed)


def flat(value: Any, depth: int = 0) -> str:
    """All text in a value that should be text, but may be parts, a response or an error."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool) or depth > 8:
        return ""
    if isinstance(value, list):
        return "\n".join(filter(None, (flat(item, depth + 1) for item in value)))
    if not isinstance(value, dict):
        return str(value)
    if str(value.get("type")) in _SILENT:
        return ""
    for key in ("functionResponse", "response"):
        if isinstance(value.get(key), dict):
            return flat(value[key], depth + 1)
    names = ("text", "content", "output", "stdout", "stderr", "error", "message", "traceback", "description")
    found = [text for name in names if (text := flat(value.get(name), depth + 1))]
    return "\n".join(found) if found else json.dumps(value, ensure_ascii=False) if value else ""
