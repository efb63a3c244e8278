"""Reading a project out of a reply."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.files import unsafe_path
from harness.outcome import Cause, Verdict
from harness.records import Finding, Project, Reply
from harness.student.answer import MAX_BYTES, MAX_FILES, MAX_REPLY_CHARS, parse_reply
from harness.student.fences import fenced_blocks

TOML = '[general]\nname = "x"\n'


def reply(text: str, stop: str = "end") -> Reply:
    return Reply(text=text, stop=stop, model_label="m", created="2026-01-01T00:00:00+00:00")  # type: ignore[arg-type]


def project(text: str) -> dict[str, str]:
    found = parse_reply(reply(text))
    assert isinstance(found, Project), found
    return {f.path: f.text for f in found.files}


def refusal(text: str, stop: str = "end") -> Finding:
    found = parse_reply(reply(text, stop))
    assert isinstance(found, Finding), found
    assert found.verdict is Verdict.NO_PROJECT
    return found


@pytest.mark.parametrize(
    "text",
    [
        f"```toml build.toml\n{TOML}```\n",
        f"~~~~toml build.toml\n{TOML}~~~~\n",
        f"```toml title=build.toml\n{TOML}```\n",
        f"```build.toml\n{TOML}```\n",
        f"### build.toml\n\n```toml\n{TOML}```\n",
        f"**build.toml**\n```toml\n{TOML}```\n",
        f"`build.toml`:\n\n```toml\n{TOML}```\n",
        f"File: build.toml\n```toml\n{TOML}```\n",
        f"```toml\n# build.toml\n{TOML}```\n",
        f"```toml build.toml\n{TOML}",
    ],
)
def test_the_usual_ways_to_name_a_file_are_understood(text: str) -> None:
    """The path may stand in the info string, in a heading above, or in a first comment."""
    assert project(text) == {"build.toml": TOML}


BUILD = f"```toml build.toml\n{TOML}```\n"
REPLIES = {
    "a comment that only mentions a file is text": (
        f"{BUILD}```cpp a.cpp\n// includes b.h for speed\nint x;\n```\n",
        {"a.cpp": "// includes b.h for speed\nint x;\n"},
    ),
    "shell commands are no files, and the last version of a file counts": (
        f"```toml build.toml\nold\n```\n```bash\nkernel-builder build\n```\n{BUILD}",
        {},
    ),
    "a common root folder is stripped": (
        f"```toml my-kernel/build.toml\n{TOML}```\n```cpp my-kernel/src/a.cpp\nint a;\n```\n",
        {"src/a.cpp": "int a;\n"},
    ),
    "longer fences hold shorter ones": (
        f"{BUILD}````md README.md\n```sh\nmake\n```\n````\n",
        {"README.md": "```sh\nmake\n```\n"},
    ),
    "text that leaves its list is the block's": (
        f"- **build.toml**\n  ```toml\n{TOML}  ```\n- **a.cpp**\n\n  ```cpp\nint x;\n```\n",
        {"a.cpp": "int x;\n"},
    ),
}


@pytest.mark.parametrize("case", REPLIES)
def test_files_are_told_from_other_text(case: str) -> None:
    """Each file of the reply has its path and its text."""
    text, files = REPLIES[case]
    assert project(text) == {"build.toml": TOML, **files}


@pytest.mark.parametrize("path", ["/etc/cron.d/x.py", "../x.py", "a/../../x.py", "~/x.py", "a\\..\\x.py"])
def test_paths_that_leave_the_project_are_refused(path: str) -> None:
    """Absolute paths, .. and home folders end as no_project with the path in the reason."""
    finding = refusal(f"{BUILD}```python {path}\nx\n```\n")
    assert finding.cause is Cause.UNSAFE_PATH
    assert path.split("/")[-1].split("\\")[-1] in finding.message


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ("".join(f"```cpp f{i}.cpp\nint x;\n```\n" for i in range(MAX_FILES)), str(MAX_FILES + 1)),
        (f"```cpp a.cpp\n{'x' * MAX_BYTES}\n```\n", str(MAX_BYTES)),
        ("x" * (MAX_REPLY_CHARS + 1), str(MAX_REPLY_CHARS)),
    ],
    ids=["files", "bytes", "reply"],
)
def test_too_large_projects_are_refused(files: str, said: str) -> None:
    """At most 64 files and 1 MiB, named in the message; a reply of over 2 MiB is not parsed."""
    finding = refusal(f"{BUILD}{files}")
    assert finding.cause is Cause.TOO_LARGE
    assert said in finding.message


@pytest.mark.parametrize(
    ("text", "stop", "cause"),
    [
        ("", "end", Cause.EMPTY_REPLY),
        ("I would rather talk about it.", "end", Cause.NO_FILES),
        ("```cpp a.cpp\nint x;\n```", "end", Cause.NO_FILES),
        ("```cpp a.cpp\nint x;", "length", Cause.TRUNCATED),
        ("I cannot help with that.", "refusal", Cause.REFUSAL),
    ],
)
def test_a_reply_without_a_project_says_why(text: str, stop: str, cause: Cause) -> None:
    """Empty, refused, truncated and project-less replies are told apart."""
    assert refusal(text, stop).cause is cause


def test_a_truncated_reply_with_a_whole_looking_project_is_still_built() -> None:
    """What is there is graded; the compiler finds what is missing."""
    found = parse_reply(reply(f"{BUILD}```cpp a.cpp\nint x", "length"))
    assert isinstance(found, Project)


def indented(text: str, by: int) -> str:
    """`text` with every line that is not empty moved to the right."""
    return "".join(f"{' ' * by}{line}" if line.strip() else line for line in text.splitlines(keepends=True))


LISTS = {
    "numbered, 3": "1. The build:\n\n   {}\n2. Done\n",
    "nested bullets, 8": "- Files\n    - The build:\n\n        {}\n",
    "ten, 4": "10. The build:\n\n    {}\n",
}


@pytest.mark.parametrize("case", LISTS)
def test_a_fence_in_a_list_is_seen(case: str) -> None:
    """The file has the text of the block without the list's indentation."""
    frame = LISTS[case]
    by = len(frame.partition("{}")[0].rpartition("\n")[2])
    block = indented(f"```toml build.toml\n{TOML}```", by).strip()
    assert project(frame.format(block)) == {"build.toml": TOML}


def test_a_quotation_holds_blocks() -> None:
    """Their marks are not part of the text, nor of the line above."""
    (block,) = fenced_blocks("> **a.cpp**\n> ```cpp\n> int x;\n> ```\nafter\n")
    assert (block.above, block.text, block.line, block.end) == ("**a.cpp**", "int x;\n", 2, 5)


@pytest.mark.parametrize("text", ["    ```\n    x\n", "a ``` b\n", "``` a ``` b\n", "``\nx\n``\n", "a\n"])
def test_what_is_no_fence(text: str) -> None:
    """Indented code, and backticks within a line."""
    assert fenced_blocks(text) == []


def test_an_open_block_runs_to_the_end_and_says_so() -> None:
    """Also where a fence inside it begins another block."""
    first, second = fenced_blocks("a\n```\nx\n```\n\n```cpp a\ny\n```py b\nz")
    assert first.closed and (first.line, first.end) == (2, 5)
    assert not second.closed and second.text == "y\n```py b\nz\n"


def test_line_ends_and_control_characters() -> None:
    """CRLF reads as LF; a form feed is no line's end."""
    (block,) = fenced_blocks("```x\r\na\fb\r\n\u2028c\r\n```\r\n")
    assert block.text == "a\fb\n\u2028c\n"


FUZZ = settings(derandomize=True, deadline=None, database=None, max_examples=150)
NAMED = ("build.toml", "toml build.toml", "../x.cu", "# a.py", "## k/b.cu")
PIECES = (*NAMED, "```", "~~~~", "\n", "**", "@", "//")
# Surrogates too: JSON replies may hold half of a pair.
LINES = st.one_of(st.sampled_from(PIECES), st.text(st.characters(), max_size=30))


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
    found = parse_reply(reply(text))
    if isinstance(found, Finding):
        assert found.verdict is Verdict.NO_PROJECT and found.message
        found.model_dump_json()
        return
    assert "build.toml" in {file.path for file in found.files}
    for file in found.files:
        assert unsafe_path(file.path) is None
        file.text.encode()
    assert len(found.digest) == 64
