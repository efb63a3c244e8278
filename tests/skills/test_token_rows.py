"""Texts as rows of tokens."""

from __future__ import annotations

from harness.skills.ngrams import ROW, Stretch, expert_files, longest, prompt_rows, tells, tokens_of
from harness.suite.catalogue import all_tasks


def test_tokens_know_their_lines_and_not_their_spacing() -> None:
    """Headers have no tokens, comments have; operators of two characters are one, marks of comments two."""
    text = "#include <a.h>\nint  a=b<<2; // why\n  #include <b.h>\nx->y += .5f;\n"
    found = tokens_of(text)
    assert " ".join(found.tokens) == "int a = b << 2 ; / / why x -> y += . 5f ;"
    assert found.lines == [2] * 10 + [4] * 7
    assert tokens_of(text.replace(" ", "\t").replace("=", " = ")).tokens[:6] == found.tokens[:6]


def test_rows_overlap_and_a_short_text_has_none() -> None:
    """The n-th row begins at token n."""
    words = [f"w{i}" for i in range(ROW + 2)]
    assert list(tokens_of(" ".join(words)).rows()) == [tuple(words[i : i + ROW]) for i in range(3)]
    assert list(tokens_of(" ".join(words[: ROW - 1])).rows()) == []


def test_a_row_tells_from_eight_different_words_on() -> None:
    """Signs and repeated words say nothing."""
    assert tells((*"abcdefgh", *(";" * 5)))
    assert not tells((*"abcdefg", *(";" * 6)))
    assert not tells((*"abcdefg", *("g" * 6)))


def test_the_longest_stretch_reaches_beyond_its_evidence() -> None:
    """Tokens before and after a row in common belong to it, on whatever diagonal it lies."""
    ours, theirs = list("xxabcdefyy"), list("zabcdefw")
    assert longest([(4, 3)], ours, theirs) == Stretch(6, 2, 1)
    assert longest([(4, 3), (5, 4)], ours, theirs) == Stretch(6, 2, 1)
    assert longest([], ours, theirs) == Stretch(0, 0, 0)


def test_every_expert_has_files_without_its_binding() -> None:
    """The suite's experts are compared, their build.toml and bindings are not; prompts have rows."""
    for loaded in all_tasks():
        files = dict(expert_files(loaded.task))
        assert files and not any(path.startswith(("build.toml", "torch-ext/")) for path in files)
    assert len(prompt_rows(loaded)) > 100
