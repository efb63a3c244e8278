"""Which fenced blocks of a reply are files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.cases.reply_files import overlaid, reply_files, write_files


def block(info: str, text: str = "x", above: str = "") -> str:
    """A fenced block."""
    return f"{above}\n```{info}\n{text}\n```\n"


@pytest.mark.parametrize(
    ("reply", "path"),
    [
        (block("json data/report.json"), "data/report.json"),
        (block("report.json"), "report.json"),
        (block('python title="a.py"'), "a.py"),
        (block("./deep/a.yaml"), "deep/a.yaml"),
        (block("make Makefile"), "Makefile"),
        (block("json", above="### `report.json`"), "report.json"),
        (block("json", above="Here is `report.json`:"), "report.json"),
        (block("json", above="**report.json**"), "report.json"),
        (block("sh", text="# run.sh\necho"), "run.sh"),
        (block("html", text="<!-- index.html -->\n<p>"), "index.html"),
        (block("python"), None),
        (block("python3.11"), None),
        (block("json", above="Compare a.json with b.json."), None),
        (block("sh", text="#!/bin/sh\necho a.txt"), None),
        ("report.json", None),
    ],
)
def test_a_block_names_its_file(reply: str, path: str | None) -> None:
    """In the info string, in the line above, or in its first comment; a language or prose names none."""
    assert list(reply_files(reply).files) == ([] if path is None else [path])


def test_a_wanted_path_counts_however_it_looks() -> None:
    """A check may ask for a file without a suffix, or with a space."""
    reply = block("text my notes") + block("", above="`LICENSE2`")
    assert reply_files(reply).files == {}
    assert list(reply_files(reply, ["my notes", "LICENSE2"]).files) == ["my notes", "LICENSE2"]


@pytest.mark.parametrize("path", ["/etc/passwd.txt", "../up.txt", "~/x.txt", "a\\b.txt", f"{'x' * 300}.txt"])
def test_an_unsafe_path_is_left_out_with_its_reason(path: str) -> None:
    """The other files stay."""
    found = reply_files(block(path) + block("ok.txt"))
    assert list(found.files) == ["ok.txt"]
    assert list(found.left_out) == [path]


def test_files_that_conflict_are_resolved() -> None:
    """A file is not a folder too; later blocks replace earlier ones, and a case's own files."""
    found = reply_files(block("a.d/b.txt") + block("a.d"))
    assert list(found.files) == ["a.d/b.txt"] and "a folder" in found.left_out["a.d"]
    assert reply_files(block("a.txt", "1") + block("a.txt", "2")).files == {"a.txt": "2\n"}
    above = {"a": "new", "c/x": "new", "d": "new"}
    assert overlaid({"a/b": "old", "c": "old", "d": "old", "e": "kept"}, above) == {"e": "kept", **above}


def test_floods_are_cut() -> None:
    """A reply of very many or very large files raises nothing."""
    many = reply_files("".join(block(f"f{i}.txt") for i in range(100)))
    assert (len(many.files), len(many.left_out)) == (64, 36)
    assert reply_files(block("a.txt", "x" * (1 << 20)) + block("b.txt")).files == {}


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


@settings(deadline=None, max_examples=100)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=30), max_size=30).map("\n".join))
def test_files_of_any_reply_can_be_written(reply: str) -> None:
    """Inside the folder, each under its own path."""
    found = reply_files(reply, ["a.d", "b"])
    with tempfile.TemporaryDirectory() as name:
        write_files(found.files, Path(name) / "in")
        written = {path.relative_to(name).as_posix() for path in Path(name).rglob("*") if path.is_file()}
    assert written == {f"in/{path}" for path in found.files}
