"""Anything at all as a reply: its files can be written side by side, and nothing raises."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

pytest.importorskip("hypothesis", reason="hypothesis is not installed (pip install 'liftbench[dev]')")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases.reply_files import reply_files, write_files

PIECES = [
    "```",
    "```x a.txt",
    "# a/b.c",
    "`a.txt`",
    "~~~ ../x.y",
    "```a.d/b",
    "```a.d",
    "```a.d/b/c.e",
    "```//",
]
LINES = st.one_of(st.sampled_from(PIECES), st.text(st.characters(), max_size=30))


@settings(derandomize=True, deadline=None, database=None, max_examples=100)
@given(st.lists(LINES, max_size=30).map("\n".join))
def test_whatever_a_reply_says_its_files_can_be_written(reply: str) -> None:
    """Inside the folder, each under its own path."""
    found = reply_files(reply, ["a.d", "b"])
    with tempfile.TemporaryDirectory() as name:
        write_files(found.files, Path(name) / "in")
        written = {path.relative_to(name).as_posix() for path in Path(name).rglob("*") if path.is_file()}
    assert written == {f"in/{path}" for path in found.files}
