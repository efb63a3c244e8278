"""Anything at all as a reply: a project or a reason why it is none, never an exception, and in time."""

from __future__ import annotations

import pytest

pytest.importorskip("hypothesis", reason="hypothesis is not installed (pip install 'liftbench[dev]')")

from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.files import unsafe_path
from harness.outcome import Verdict
from harness.records import Finding, Project, Reply
from harness.student.reply_parsing import parse_reply

FUZZ = settings(derandomize=True, deadline=None, database=None, max_examples=400)
PIECES = [
    "```",
    "~~~~",
    "\n",
    "toml build.toml",
    "build.toml",
    "../x.cu",
    "# a.py",
    "## k/b.cu",
    "**",
    "@",
    "//",
]
# Surrogates too: JSON replies may hold half of a pair.
LINES = st.one_of(st.sampled_from(PIECES), st.text(st.characters(), max_size=30))


def judged(text: str) -> Project | Finding:
    """Of a reply with this text."""
    return parse_reply(Reply(text=text, stop="end", model_label="m", created="2026-01-01T00:00:00+00:00"))


@FUZZ
@given(st.lists(LINES, max_size=40).map("\n".join))
@example("```toml build.toml\n\ud800\n```")
@example("```\ud800 build.toml\nx = 1\n```")
@example("```" + "@" * 200_000 + "\nx\n```")
@example("## " + "a." * 100_000 + "\n```\nx\n```")
@example("```\n# " + "~" * 200_000 + "\n```")
@example("```" + "a/" * 100_000 + "b.cu\nx\n```")
@example("`" * 100_000)
@example("```\n" * 50_000)
def test_any_reply_is_a_project_or_a_reason(text: str) -> None:
    """Every path of a project is safe, its text can be written as UTF-8, and a reason is the student's."""
    found = judged(text)
    if isinstance(found, Finding):
        assert found.verdict is Verdict.NO_PROJECT and found.message
        found.model_dump_json()
        return
    assert "build.toml" in {file.path for file in found.files}
    for file in found.files:
        assert unsafe_path(file.path) is None
        file.text.encode()
    assert len(found.digest) == 64
