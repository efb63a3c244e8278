"""The Messages API's own format, both ways."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from harness.models.anthropic_messages import Incoming, sent_messages, sent_tools, system_text
from harness.records import Message
from tests.models.answers import READ, anthropic_events, assistant, called, result, user


def _event(value: Any) -> Any:
    """JSON as the SDK hands it on: objects with attributes, but a call's input is a dict."""
    if isinstance(value, dict):
        parts = {name: part if name == "input" else _event(part) for name, part in value.items()}
        return SimpleNamespace(**parts)
    return value


def _received(*events: Any) -> Incoming:
    message = Incoming()
    for event in events:
        message.add(_event(event))
    return message


def test_results_of_one_message_go_back_in_one_and_before_text() -> None:
    """Two parallel calls, their results and the user's next words: one user message, results first."""
    one, two = called("a.md", "b.md")
    told = [user("go"), assistant("I read.", one, two), result(one, "A"), result(two, ""), user("hurry")]
    assert sent_messages(told) == [
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "I read."},
                {"type": "tool_use", "id": "call_0", "name": "read_file", "input": {"path": "a.md"}},
                {"type": "tool_use", "id": "call_1", "name": "read_file", "input": {"path": "b.md"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "call_0", "content": "A"},
                {"type": "tool_result", "tool_use_id": "call_1"},
                {"type": "text", "text": "hurry"},
            ],
        },
    ]


def test_an_answer_that_only_calls_has_no_text_block() -> None:
    """The API refuses empty text."""
    [call] = called("a.md")
    [_, sent, _] = sent_messages([user("go"), assistant("", call), result(call, "A")])
    assert [block["type"] for block in sent["content"]] == ["tool_use"]


def test_the_system_text_goes_apart() -> None:
    """System messages are no turns, wherever they stand."""
    told = [Message(role="system", content="one"), user("go"), Message(role="system", content="two")]
    assert system_text(told) == "one\n\ntwo"
    assert sent_messages(told) == [{"role": "user", "content": "go"}]


def test_tools_have_the_apis_names() -> None:
    """The schema of the arguments is `input_schema`."""
    [sent] = sent_tools([READ])
    assert sent == {"name": READ.name, "description": READ.description, "input_schema": READ.parameters}


def test_a_call_is_kept_as_it_was_written() -> None:
    """Pieces are joined to the text that the model wrote, valid or not; a call without any has {}."""
    calls = [("t1", "read_file", ['{"pa', 'th": "a.m']), ("t2", "list_files", [])]
    message = _received(*anthropic_events("I read.", "tool_use", calls, thinking="hm"))
    assert message.text == "I read." and message.stop_reason == "tool_use"
    assert message.calls == [("t1", "read_file", '{"path": "a.m'), ("t2", "list_files", "{}")]
    assert message.counts["output_tokens"] == 500 and message.counts["input_tokens"] == 600


def test_arguments_may_come_at_once() -> None:
    """Gateways send a call whole in its first event."""
    block = {"type": "tool_use", "id": "t", "name": "n", "input": {"a": 1}}
    message = _received({"type": "content_block_start", "index": 0, "content_block": block})
    [(_, _, arguments)] = message.calls
    assert json.loads(arguments) == {"a": 1}


def test_unknown_events_are_passed_over() -> None:
    """New kinds of events, blocks and deltas, and ones without their fields, change nothing."""
    message = _received(
        {"type": "news"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "news"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        {
            "type": "content_block_delta",
            "index": 7,
            "delta": {"type": "input_json_delta", "partial_json": "{"},
        },
        {"type": "content_block_delta"},
        {"type": "message_start"},
        3,
    )
    assert (message.text, message.calls, message.stop_reason, message.counts) == ("", [], None, {})
