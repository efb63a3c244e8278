"""Chat completions' own format, both ways."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from harness.models.openai_messages import calls_in, sent_messages, sent_tools
from harness.records import ToolCall
from tests.models.answers import READ, assistant, called, result, user


def test_calls_and_results_go_back_one_by_one() -> None:
    """Each result is a message of its own; an answer that only calls has null for its text."""
    one, two = called("a.md", "b.md")
    told = [user("go"), assistant("", one, two), result(one, "A"), result(two, "B"), user("hurry")]
    function = {"name": "read_file", "arguments": '{"path": "a.md"}'}
    other = {"name": "read_file", "arguments": '{"path": "b.md"}'}
    assert sent_messages(told) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "call_0", "type": "function", "function": function},
                {"id": "call_1", "type": "function", "function": other},
            ],
        },
        {"role": "tool", "tool_call_id": "call_0", "content": "A"},
        {"role": "tool", "tool_call_id": "call_1", "content": "B"},
        {"role": "user", "content": "hurry"},
    ]


def test_broken_arguments_go_back_as_json() -> None:
    """Local servers parse the arguments of earlier calls, and fail on what is no JSON object."""
    broken = ToolCall(id="t", name="read_file", arguments='{"path": "a.m')
    [sent] = sent_messages([assistant("", broken)])
    arguments = sent["tool_calls"][0]["function"]["arguments"]
    assert json.loads(arguments) == {"invalid_json": '{"path": "a.m'}


def test_tools_are_functions() -> None:
    """Name, description and schema stand under `function`."""
    [sent] = sent_tools([READ])
    assert sent["type"] == "function"
    assert sent["function"] == {
        "name": READ.name,
        "description": READ.description,
        "parameters": READ.parameters,
    }


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (None, []),
        ("none", []),
        ([{"id": "a", "function": {"name": "f", "arguments": '{"x": 1}'}}], [("a", "f", '{"x": 1}')]),
        ([{"function": {"name": "f", "arguments": {"x": "é"}}}], [(None, "f", '{"x": "é"}')]),
        ([{"function": {"name": "f"}}, {"type": "custom"}, None], [(None, "f", "")]),
        ([SimpleNamespace(id="a", function=SimpleNamespace(name="f", arguments="{"))], [("a", "f", "{")]),
    ],
)
def test_calls_are_read_in_every_shape(calls: Any, expected: list[Any]) -> None:
    """Objects for arguments, no ids, no types, the SDK's models or plain dicts."""
    assert list(calls_in(SimpleNamespace(tool_calls=calls))) == expected
