"""Which fenced blocks of a reply are files."""

from __future__ import annotations

import pytest

from harness.cases.reply_files import overlaid, reply_files


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
    ],
)
def test_a_block_names_its_file(reply: str, path: str) -> None:
    """In the info string, in the line above, or in its first comment."""
    assert list(reply_files(reply).files) == [path]


@pytest.mark.parametrize(
    "reply",
    [
        block("python"),
        block("python3.11"),
        block("json", above="Compare a.json with b.json."),
        block("sh", text="#!/bin/sh\necho a.txt"),
        "report.json",
    ],
)
def test_other_blocks_are_no_files(reply: str) -> None:
    """A language, prose, a program's first line."""
    assert reply_files(reply).files == {}


def test_a_wanted_path_counts_however_it_looks() -> None:
    """A check may ask for a file without a suffix, or with a space."""
    reply = block("text my notes") + block("", above="`LICENSE2`")
    assert reply_files(reply).files == {}
    assert list(reply_files(reply, ["my notes", "LICENSE2"]).files) == ["my notes", "LICENSE2"]


@pytest.mark.parametrize("path", ["/etc/passwd.txt", "../up.txt", "~/x.txt", "a\\b.txt", f"{'x' * 300}.txt"])
def test_an_unsafe_path_is_left_out_with_its_reason(path: str) -> None:
    """And the other files stay."""
    found = reply_files(block(path) + block("ok.txt"))
    assert list(found.files) == ["ok.txt"]
    assert list(found.left_out) == [path]


def test_a_file_is_not_a_folder_too() -> None:
    """Otherwise they could not be written side by side."""
    found = reply_files(block("a.d/b.txt") + block("a.d"))
    assert list(found.files) == ["a.d/b.txt"] and "a folder" in found.left_out["a.d"]


def test_a_later_block_replaces_an_earlier_one_and_floods_are_cut() -> None:
    """A reply of very many or very large files raises nothing."""
    assert reply_files(block("a.txt", "1") + block("a.txt", "2")).files == {"a.txt": "2\n"}
    many = reply_files("".join(block(f"f{i}.txt") for i in range(100)))
    assert (len(many.files), len(many.left_out)) == (64, 36)
    large = reply_files(block("a.txt", "x" * (1 << 20)) + block("b.txt"))
    assert large.files == {}


def test_the_files_above_win() -> None:
    """Where a reply's file meets one of the case's, also as a file in place of a folder."""
    below = {"a/b": "old", "c": "old", "d": "old", "e": "kept"}
    above = {"a": "new", "c/x": "new", "d": "new"}
    assert overlaid(below, above) == {"e": "kept", **above}
