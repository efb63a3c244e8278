"""Fenced blocks of Markdown: where they stand, what is theirs, and how they end."""

from __future__ import annotations

import pytest

from harness.outcome import Cause
from harness.records import Finding, Project, Reply
from harness.student.fences import fenced_blocks
from harness.student.reply_parsing import MAX_REPLY_CHARS, parse_reply

TOML = '[general]\nname = "x"\n'


def reply(text: str) -> Reply:
    """A finished reply."""
    return Reply(text=text, stop="end", model_label="m", created="2026-01-01T00:00:00+00:00")


def indented(text: str, by: int) -> str:
    """`text` with every line that is not empty moved to the right."""
    return "".join(f"{' ' * by}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


LISTS = {
    "numbered, 3": "1. The build:\n\n   {}\n2. Done\n",
    "numbered, 4": "1. The build:\n\n    {}\n2. Done\n",
    "numbered, 4, no blank line": "1. The build:\n    {}\n",
    "bullets, 4": "- The build:\n\n    {}\n- Done\n",
    "nested bullets, 8": "- Files\n    - The build:\n\n        {}\n",
    "ten, 4": "10. The build:\n\n    {}\n",
}


@pytest.mark.parametrize("case", LISTS)
def test_a_fence_in_a_list_is_seen(case):
    """The file has the text of the block without the list's indentation."""
    frame = LISTS[case]
    by = len(frame.partition("{}")[0].rpartition("\n")[2])
    block = indented(f"```toml build.toml\n{TOML}```", by).strip()
    found = parse_reply(reply(frame.format(block)))
    assert isinstance(found, Project), found
    assert [(file.path, file.text) for file in found.files] == [("build.toml", TOML)]


def test_text_that_leaves_its_list_still_belongs_to_the_block():
    """Models often indent the fences alone."""
    text = f"- **build.toml**\n  ```toml\n{TOML}  ```\n- **a.cpp**\n\n  ```cpp\nint x;\n```\n"
    found = parse_reply(reply(text))
    assert isinstance(found, Project), found
    assert {file.path: file.text for file in found.files} == {"build.toml": TOML, "a.cpp": "int x;\n"}


def test_a_quotation_holds_blocks():
    """Their marks are not part of the text, nor of the line above."""
    (block,) = fenced_blocks("> **a.cpp**\n> ```cpp\n> int x;\n> ```\nafter\n")
    assert (block.above, block.text, block.line, block.end) == ("**a.cpp**", "int x;\n", 2, 5)


@pytest.mark.parametrize("text", ["    ```\n    x\n", "a ``` b\n", "``` a ``` b\n", "``\nx\n``\n", "a\n"])
def test_what_is_no_fence(text):
    """Indented code, and backticks within a line."""
    assert fenced_blocks(text) == []


def test_an_open_block_runs_to_the_end_and_says_so():
    """Also where a fence inside it begins another block."""
    first, second = fenced_blocks("a\n```\nx\n```\n\n```cpp a\ny\n```py b\nz")
    assert first.closed and first.inner is None and (first.line, first.end) == (2, 5)
    assert not second.closed and second.inner == 8 and second.text == "y\n```py b\nz\n"


def test_line_ends_and_control_characters():
    """CRLF reads as LF; a form feed is no line's end."""
    (block,) = fenced_blocks("```x\r\na\fb\r\n\u2028c\r\n```\r\n")
    assert block.text == "a\fb\n\u2028c\n"


def test_an_endless_reply_is_refused():
    """Reading Markdown has a price: what cannot be a project is not read."""
    found = parse_reply(reply("x" * (MAX_REPLY_CHARS + 1)))
    assert isinstance(found, Finding) and found.cause is Cause.TOO_LARGE
