"""Conversations in the shape that every provider takes."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.models.conversation import INVALID, arguments_object, joined
from harness.records import Message
from tests.models.answers import assistant, called, result, user


def test_neighbours_of_one_role_become_one() -> None:
    """Two user messages in a row, which local chat templates refuse, are one with both texts."""
    assert joined([user("write"), user("a kernel"), assistant("yes"), assistant("here")]) == [
        user("write\n\na kernel"),
        assistant("yes\n\nhere"),
    ]


def test_an_empty_answer_is_left_out() -> None:
    """A student that said nothing and is asked again: APIs refuse an answer without text."""
    assert joined([user("write"), assistant(" \n"), user("again")]) == [user("write\n\nagain")]


def test_calls_and_their_results_stay_apart() -> None:
    """Every call keeps its own result, and an answer that only calls is no empty one."""
    one, two = called("a.md", "b.md")
    told = [user("go"), assistant("", one, two), result(one, "A"), result(two, "B"), assistant("done")]
    assert joined(told) == told


@given(
    st.lists(
        st.builds(
            Message,
            role=st.sampled_from(["system", "user", "assistant"]),
            content=st.sampled_from(["", " ", "one", "two\n"]),
        )
    )
)
@settings(max_examples=100, deadline=None)
def test_joining_loses_no_text_and_leaves_no_neighbours(messages: list[Message]) -> None:
    """Every text that says something is kept in order, no two roles in a row are alike."""
    found = joined(messages)
    words = [m.content.split() for m in messages]
    assert [word for m in found for word in m.content.split()] == [word for some in words for word in some]
    roles = [m.role for m in found]
    assert all(one != two for one, two in itertools.pairwise(roles))
    assert joined(found) == found


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"path": "a.md"}', {"path": "a.md"}),
        ("{}", {}),
        (r'{"path": "\ud83d"}', {"path": "\ufffd"}),
        ("", None),
        ('{"path": "a.m', None),
        ('["a.md"]', None),
        ("null", None),
        ('{"n": NaN}', None),
        ("[" * 100_000, None),
    ],
)
def test_arguments_go_back_as_an_object(arguments: str, expected: object) -> None:
    """What a model wrote as arguments is an object, or is shown to it as what it is; never an error."""
    found = arguments_object(arguments)
    assert found == ({INVALID: arguments} if expected is None else expected)
    assert json.dumps(found, allow_nan=False, ensure_ascii=False).encode()
