"""Finds what a skill has in common with a task's reference, hidden settings and expert project.

What the student reads anyway, in any arm, is no leak; nor is what experts of many families have in common.

The unit is 13 tokens in a row (identifiers, numbers, operators; words of comments too). Such a row is
evidence when it has at least 8 different words, stands in neither target's prompt, and occurs in the files of
fewer than 5 families of the suite. Lines of `#include`, build.toml and the binding under torch-ext/ are not
compared: the prompt teaches them. A file leaks from 8 different rows on; fewer are an idiom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from harness.records import Record
from harness.records.provenance import EVIDENT_ROWS
from harness.skills.ngrams import (
    FAMILIES,
    Row,
    Tokens,
    expert_files,
    longest,
    prompt_rows,
    tells,
    tokens_of,
)
from harness.suite.catalogue import LoadedTask, all_tasks

_EXCERPT_CHARS: Final = 100


class Leak(Record):
    """What one file of a skill has in common with one file behind a task."""

    task: str
    file: str
    """Of the skill."""
    line: int
    """1-based: where the longest stretch begins."""
    source_file: str
    """`reference.py`, `task.toml`, or `kernels_ref/...` for the expert project's."""
    source_line: int
    count: int
    """Different rows of 13 tokens that are evidence."""
    longest: int
    """Tokens of the longest stretch in common that has evidence in it."""
    excerpt: str
    """The skill's line at which that stretch begins."""


class _Met(NamedTuple):
    """A file behind a task that has rows of the skill, with where they begin."""

    loaded: LoadedTask
    file: str
    tokens: Tokens
    hits: list[tuple[int, Row]]


def overlaps(skill_texts: Mapping[str, str], tasks: Sequence[LoadedTask]) -> tuple[Leak, ...]:
    """What the skill's files (name -> text) share with the files behind `tasks`, the most first.

    Which rows are common property is decided over `tasks` and the shipped suite together, so that the
    answer for a task does not depend on which others are asked about.
    """
    skill = {name: tokens_of(text) for name, text in skill_texts.items()}
    places: dict[Row, list[tuple[str, int]]] = {}
    for name, tokens in skill.items():
        for index, row in enumerate(tokens.rows()):
            if tells(row):
                places.setdefault(row, []).append((name, index))
    if not places:
        return ()
    asked = {one.task.id for one in tasks}
    families: dict[Row, set[str]] = {}
    met: list[_Met] = []
    for loaded in {one.task.id: one for one in [*all_tasks(), *tasks]}.values():
        for file, text in _behind(loaded):
            tokens = tokens_of(text)
            hits = [(index, row) for index, row in enumerate(tokens.rows()) if row in places]
            for _, row in hits:
                families.setdefault(row, set()).add(loaded.task.family)
            if len(hits) >= EVIDENT_ROWS and loaded.task.id in asked:
                met.append(_Met(loaded, file, tokens, hits))
    found: list[Leak] = []
    for one in met:
        known = prompt_rows(one.loaded)
        evidence = [(i, row) for i, row in one.hits if len(families[row]) < FAMILIES and row not in known]
        found += _leaks(one, evidence, places, skill, skill_texts)
    return tuple(sorted(found, key=lambda leak: (-leak.count, leak.task, leak.file, leak.source_file)))


def leaked_tasks(skill_texts: Mapping[str, str], tasks: Sequence[LoadedTask]) -> dict[str, int]:
    """The tasks of which the skill holds part of a solution: id -> most rows in common with one file."""
    found: dict[str, int] = {}
    for leak in overlaps(skill_texts, tasks):
        found[leak.task] = max(found.get(leak.task, 0), leak.count)
    return dict(sorted(found.items()))


def _behind(loaded: LoadedTask) -> Iterator[tuple[str, str]]:
    """The files behind a task that no student sees: name -> text."""
    for name in ("reference.py", "task.toml"):
        path = loaded.directory / name
        if path.is_file():
            yield name, path.read_text(encoding="utf-8")
    for file, text in expert_files(loaded.task):
        yield f"kernels_ref/{loaded.task.id}/{file}", text


def _leaks(
    met: _Met,
    evidence: Sequence[tuple[int, Row]],
    places: Mapping[Row, Sequence[tuple[str, int]]],
    skill: Mapping[str, Tokens],
    skill_texts: Mapping[str, str],
) -> Iterator[Leak]:
    """One for each file of the skill that has enough of the evidence."""
    rows: dict[str, set[Row]] = {}
    starts: dict[str, list[tuple[int, int]]] = {}
    for source_index, row in evidence:
        for name, index in places[row]:
            rows.setdefault(name, set()).add(row)
            starts.setdefault(name, []).append((index, source_index))
    for name, different in rows.items():
        if len(different) < EVIDENT_ROWS:
            continue
        stretch = longest(starts[name], skill[name].tokens, met.tokens.tokens)
        line = skill[name].lines[stretch.start]
        yield Leak(
            task=met.loaded.task.id,
            file=name,
            line=line,
            source_file=met.file,
            source_line=met.tokens.lines[stretch.source_start],
            count=len(different),
            longest=stretch.tokens,
            excerpt=skill_texts[name].split("\n")[line - 1].strip()[:_EXCERPT_CHARS],
        )
