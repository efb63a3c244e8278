"""Prompts and replies in the shape that every provider shares."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from harness.models.messages import INVALID, arguments_object, build_calls, joined
from harness.models.openai_model import calls_in
from harness.records import Message, Request, Sampling, ToolCall

Ask = Callable[..., Request]
REQUEST = Request(
    messages=(Message(role="user", content="go"),), sampling=Sampling(), task="l1/add", arm="a", repeat=0
)


def test_ids_are_given_apart(ask: Ask) -> None:
    """Calls without ids, of all steps and turns of a trial, have different ones."""
    found = {
        call.id
        for turn in range(3)
        for step in range(3)
        for call in build_calls(ask(turn=turn, step=step), [(None, "f", ""), (None, "f", "")])
    }
    assert len(found) == 18


_TEXT = st.text(st.characters(exclude_categories=[]), max_size=8)
_JSON: st.SearchStrategy[JsonValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=6,
)
_FUNCTION = st.fixed_dictionaries({}, optional={"name": _JSON, "arguments": _JSON})
_CALL = st.fixed_dictionaries({}, optional={"id": _JSON, "function": _FUNCTION | _JSON})


@given(st.lists(_CALL | _JSON, max_size=4) | _JSON)
@settings(max_examples=100, deadline=None)
def test_any_json_gives_calls_that_can_be_stored(sent: JsonValue) -> None:
    """Whatever a server puts where calls belong, what comes of it is records with ids of their own."""
    calls = build_calls(REQUEST, calls_in({"tool_calls": sent}))
    assert len({call.id for call in calls}) == len(calls)
    for call in calls:
        assert call.arguments and ToolCall.model_validate_json(call.model_dump_json()) == call
        assert json.dumps(call.model_dump(), ensure_ascii=False).encode()


_MESSAGE = st.builds(
    Message,
    role=st.sampled_from(["system", "user", "assistant"]),
    content=st.sampled_from(["", " ", "one", "two\n"]),
)


@given(st.lists(_MESSAGE))
@settings(max_examples=100, deadline=None)
def test_joining_loses_no_text_and_leaves_no_neighbours(messages: list[Message]) -> None:
    """Every text that says something is kept in order, no two roles in a row are alike."""
    found = joined(messages)
    words = [word for m in messages for word in m.content.split()]
    assert [word for m in found for word in m.content.split()] == words
    assert all(one.role != two.role for one, two in itertools.pairwise(found))
    assert joined(found) == found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"path": "a.md"}', {"path": "a.md"}),
        (r'{"path": "\ud83d"}', {"path": "\ufffd"}),
        ('{"path": "a.m', None),
        ('{"n": NaN}', None),
        ("[" * 100_000, None),
    ],
)
def test_arguments_go_back_as_an_object(arguments: str, expected: object) -> None:
    """What a model wrote as arguments is an object, or is shown to it as what it is; never an error."""
    found = arguments_object(arguments)
    assert found == ({INVALID: arguments} if expected is None else expected)
    assert json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
