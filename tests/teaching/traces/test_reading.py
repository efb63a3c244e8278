"""Reading traces of every format whole."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.teaching.traces.events import Trace
from harness.teaching.traces.reading import read_trace
from tests.teaching.traces.sessions import (
    COMMAND,
    FORMATS,
    OUTPUT,
    PASSED,
    TASK,
    claude_code,
    codex,
    lines,
)


def read(tmp_path: Path, text: str | bytes, name: str = "trace") -> Trace:
    """The trace with this text."""
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path)


def gist(trace: Trace) -> list[tuple[str, str]]:
    """Roles and kinds, in order."""
    return [(event.role, event.kind) for event in trace.events]


@pytest.mark.parametrize(
    ("name", "failures", "thoughts"),
    [
        ("claude_code", 1, 1),
        ("codex", 1, 1),
        ("codex_stream", 1, 0),
        ("openai_chat", 0, 1),
        ("markdown", 0, 0),
    ],
)
def test_every_format_gives_the_same_story(tmp_path: Path, name: str, failures: int, thoughts: int) -> None:
    """Task, command, both outputs and the last words, once each, in order, with marked failures."""
    text = FORMATS[name]()
    trace = read(tmp_path, text)
    assert trace.characters == len(text)
    assert [e.index for e in trace.events] == list(range(len(trace.events)))
    assert sum(e.kind == "tool_call" and e.text.strip() == COMMAND for e in trace.events) == 2
    results = [e for e in trace.events if e.kind == "tool_result"]
    shown = [" ".join(e.text.split()) for e in results if "error" in e.text or "us," in e.text]
    expected = [" ".join(text.split()) for text in (OUTPUT, PASSED)]
    assert [text.removesuffix(" [exit code 1]") for text in shown] == expected
    assert trace.events[-1].text.strip().endswith("Done.")
    assert sum(e.is_error for e in results) == failures
    assert sum(e.kind == "thinking" for e in trace.events) == thoughts
    if name != "codex_stream":  # it does not show the prompt
        assert trace.task.text.strip() == TASK
        assert sum(e.text.strip() == TASK for e in trace.events) == 1


def test_places_lead_back_into_the_file(tmp_path: Path) -> None:
    """A line for JSONL and text, a path for JSON."""
    assert next(e for e in read(tmp_path, claude_code()).events if e.text == COMMAND).place == (
        "line 6.content[0]"
    )
    chat = read(tmp_path, FORMATS["openai_chat"]())
    assert next(e for e in chat.events if e.text == COMMAND).place == "messages[4].tool_calls[0]"
    text = FORMATS["markdown"]()
    result = next(
        e for e in read(tmp_path, text).events if "warpSize32" in e.text and e.kind == "tool_result"
    )
    assert text.split("\n")[int(result.place_of(1).split()[1]) - 1] == OUTPUT.split("\n")[1]


@pytest.mark.parametrize(
    ("marker", "speaker"),
    [
        ("### 1. user (2026-02-16T04:59:48Z)", ("user", "text")),
        ("### 🤖 Assistant (claude-sonnet)", ("assistant", "text")),
        ("**Human:**", ("user", "text")),
        ("Human:", ("user", "text")),
        ("#### 🛠️ Tool Call: Bash", ("assistant", "tool_call")),
        ("**Tool: bash**", ("tool", "tool_result")),
        ("**User-defined** functions", None),
        ("A user: said", None),
    ],
)
def test_markers_say_who_speaks(tmp_path: Path, marker: str, speaker: tuple[str, str] | None) -> None:
    """Headings and bold names begin a turn; words about users and tools do not."""
    trace = read(tmp_path, f"{marker}\nbody\n")
    assert trace.format == ("log" if speaker is None else "markdown")
    assert gist(trace) == [("tool", "tool_result") if speaker is None else speaker]
    assert trace.events[0].text.rstrip().endswith("body")
    assert (marker in trace.events[0].text) == (speaker is None)


def test_other_encodings_are_read(tmp_path: Path) -> None:
    """Byte order marks are decoded; bytes that are not text become U+FFFD; CRLF is a line end."""
    assert read(tmp_path, b"\xef\xbb\xbf" + codex().encode()).task.text == TASK
    broken = read(tmp_path, b"## User\r\n\r\nsay \xff\r\n\r\n## Assistant\r\n\r\nhello\r\n")
    assert [e.text.strip() for e in broken.events] == ["say \ufffd", "hello"]
    assert read(tmp_path, '{"messages": [{"role": "user", "content": "a\\ud83d"}]}').task.text == "a?"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "holds no event"),
        (b'{"type": "x"}\n{"type": "y"}\n', r"unknown kinds that were skipped: x \(1\), y \(1\)"),
        (b"\x7fELF\0", "NUL bytes"),
    ],
)
def test_what_holds_no_event_is_a_usage_error(tmp_path: Path, data: bytes, said: str) -> None:
    """The message says what can be read; a missing file and a folder cannot."""
    with pytest.raises(UsageError, match=said) as failure:
        read(tmp_path, data)
    assert "Markdown transcripts" in str(failure.value)
    with pytest.raises(UsageError, match="cannot be read"):
        read_trace(tmp_path / "none")
    with pytest.raises(UsageError, match="Is a directory"):
        read_trace(tmp_path)


def test_json_that_is_cut_off_is_still_read(tmp_path: Path) -> None:
    """A torn document is read as text, so that no error in it is lost."""
    trace = read(tmp_path, FORMATS["openai_chat"]()[:-20])
    assert trace.torn == 1
    assert any("warpSize32" in e.text for e in trace.events)
    assert read(tmp_path, "[" * 100_000).torn == 0


KEYS = """
type role content text thinking message payload item tool_calls function input output name arguments call_id
id error summary uuid result messages metadata exit_code
"""
TYPES = """
user assistant tool message function_call tool_use tool_result reasoning response_item command_execution
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()), inner | st.sampled_from(TYPES.split()), max_size=5)
    ),
    max_leaves=12,
)


@settings(max_examples=120, deadline=None)
@given(records=st.lists(JSON, min_size=2, max_size=4))
def test_no_json_whatsoever_makes_reading_fail(
    tmp_path_factory: pytest.TempPathFactory, records: list[object]
) -> None:
    """Any JSON gives events or a usage error."""
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    for text in (lines(*records), json.dumps(records)):
        path.write_text(text)
        try:
            assert read_trace(path).events
        except UsageError as fault:
            assert "any.jsonl" in str(fault)


@settings(max_examples=60, deadline=None)
@given(
    text=st.text(max_size=400)
    | st.lists(st.sampled_from(["```", "## User", "**Tool call: sh**", "z", "$ a", ""])).map("\n".join)
)
def test_every_word_of_a_text_is_in_an_event(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """Markdown of any form loses nothing but its markers."""
    path = tmp_path_factory.getbasetemp() / "any.md"
    path.write_text(text + "\nend", encoding="utf-8", newline="")
    try:
        trace = read_trace(path)
    except UsageError:
        assert "\0" in text
        return
    held = "".join(e.text for e in trace.events)
    assert held.endswith("end")
    assert held.count("z") == text.count("z") or "zz" in text or "`" in text
