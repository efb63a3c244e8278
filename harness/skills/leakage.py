"""Finds what a skill has in common with a task's reference, hidden settings and expert project.

Owns: which words count as evidence that a skill holds a task's solution. Does not own: what follows from
it (an evaluation takes such tasks out of its primary result). Nothing is executed.
Invariant: what the student reads anyway, in any arm, is no leak; nor is what experts of many families have
in common.

The unit is 13 tokens in a row (identifiers, numbers, operators; words of comments too). Such a row is
evidence when it has at least 8 different words, stands in neither target's prompt, and occurs in the files of
fewer than 5 families of the suite. Lines of `#include`, build.toml and the binding under torch-ext/ are not
compared: the prompt teaches them. A file leaks from 8 different rows on; fewer are an idiom.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from harness.catalogue import LoadedTask, all_tasks, expert_directory, read_project
from harness.prompts import SYSTEM, task_text
from harness.records import Record

ROW: Final = 13
"""Tokens in a row, as contamination studies of language models count them."""
WORDS: Final = 8
"""Different words (identifiers, numbers) in a row that is evidence: a loop's head has 5, a launch has 7."""
FAMILIES: Final = 5
"""A row that files of so many families have is common property."""
ROWS: Final = 8
"""Our experts of unrelated families share up to 7 rows of idiom; a copied function has hundreds."""
_EXCERPT_CHARS: Final = 100
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|->|::|<<<|>>>|[<>=!+\-*/%&|^]=|&&|\|\||<<|>>|\+\+|--|[^\s\w]")
_DROPPED: Final = frozenset({"//", "/*", "*/"})
_NOT_COMPARED: Final = ("build.toml", "torch-ext/")

Row = tuple[str, ...]


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


@dataclass(frozen=True)
class _Tokens:
    """A text as tokens, with the line of each."""

    tokens: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """All rows, in order; the n-th begins at token n."""
        return zip(*(self.tokens[start:] for start in range(ROW)), strict=False)


class _Stretch(NamedTuple):
    """Tokens in common that follow each other in both files; the longest is the greatest."""

    tokens: int
    start: int
    """Index in the skill's file."""
    source_start: int


class _Met(NamedTuple):
    """A file behind a task that has rows of the skill, with where they begin."""

    loaded: LoadedTask
    file: str
    tokens: _Tokens
    hits: list[tuple[int, Row]]


def overlaps(skill_texts: Mapping[str, str], tasks: Sequence[LoadedTask]) -> tuple[Leak, ...]:
    """What the skill's files (name -> text) share with the files behind `tasks`, the most first.

    Which rows are common property is decided over `tasks` and the shipped suite together, so that the
    answer for a task does not depend on which others are asked about.
    """
    skill = {name: _tokens(text) for name, text in skill_texts.items()}
    places: dict[Row, list[tuple[str, int]]] = {}
    for name, tokens in skill.items():
        for index, row in enumerate(tokens.rows()):
            if _tells(row):
                places.setdefault(row, []).append((name, index))
    if not places:
        return ()
    asked = {one.task.id for one in tasks}
    families: dict[Row, set[str]] = {}
    met: list[_Met] = []
    for loaded in {one.task.id: one for one in [*all_tasks(), *tasks]}.values():
        for file, text in _behind(loaded):
            tokens = _tokens(text)
            hits = [(index, row) for index, row in enumerate(tokens.rows()) if row in places]
            for _, row in hits:
                families.setdefault(row, set()).add(loaded.task.family)
            if len(hits) >= ROWS and loaded.task.id in asked:
                met.append(_Met(loaded, file, tokens, hits))
    found: list[Leak] = []
    for one in met:
        known = _prompt_rows(one.loaded)
        evidence = [(i, row) for i, row in one.hits if len(families[row]) < FAMILIES and row not in known]
        found += _leaks(one, evidence, places, skill, skill_texts)
    return tuple(sorted(found, key=lambda leak: (-leak.count, leak.task, leak.file, leak.source_file)))


def leaked_tasks(skill_texts: Mapping[str, str], tasks: Sequence[LoadedTask]) -> dict[str, int]:
    """The tasks of which the skill holds part of a solution: id -> most rows in common with one file."""
    found: dict[str, int] = {}
    for leak in overlaps(skill_texts, tasks):
        found[leak.task] = max(found.get(leak.task, 0), leak.count)
    return dict(sorted(found.items()))


def _tokens(text: str) -> _Tokens:
    found = _Tokens()
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#include"):
            continue
        words = [word for word in _TOKEN.findall(line) if word not in _DROPPED]
        found.tokens.extend(words)
        found.lines.extend([number] * len(words))
    return found


def _tells(row: Row) -> bool:
    """Whether it has enough different words to come from somewhere."""
    return len({token for token in row if token[0].isalnum() or token[0] == "_"}) >= WORDS


def _behind(loaded: LoadedTask) -> Iterator[tuple[str, str]]:
    """The files behind a task that no student sees: name -> text."""
    for name in ("reference.py", "task.toml"):
        path = loaded.directory / name
        if path.is_file():
            yield name, path.read_text(encoding="utf-8")
    directory = expert_directory(loaded.task)
    if directory is not None:
        for file in read_project(directory).files:
            if not file.path.startswith(_NOT_COMPARED):
                yield f"kernels_ref/{loaded.task.id}/{file.path}", file.text


def _prompt_rows(loaded: LoadedTask) -> set[Row]:
    """Of the prompt, for every target that the task has."""
    texts = [SYSTEM, *(task_text(loaded.task, target) for target in loaded.task.dtypes)]
    return {row for text in texts for row in _tokens(text).rows()}


def _leaks(
    met: _Met,
    evidence: Sequence[tuple[int, Row]],
    places: Mapping[Row, Sequence[tuple[str, int]]],
    skill: Mapping[str, _Tokens],
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
        if len(different) < ROWS:
            continue
        longest = _longest(starts[name], skill[name].tokens, met.tokens.tokens)
        line = skill[name].lines[longest.start]
        yield Leak(
            task=met.loaded.task.id,
            file=name,
            line=line,
            source_file=met.file,
            source_line=met.tokens.lines[longest.source_start],
            count=len(different),
            longest=longest.tokens,
            excerpt=skill_texts[name].split("\n")[line - 1].strip()[:_EXCERPT_CHARS],
        )


def _longest(starts: Sequence[tuple[int, int]], ours: Sequence[str], theirs: Sequence[str]) -> _Stretch:
    """The longest stretch with evidence in it: rows between, which prove nothing alone, belong to it."""
    best = _Stretch(0, 0, 0)
    covered: dict[int, int] = {}  # diagonal -> end of the stretch that was followed on it
    for index, source_index in starts:
        if index < covered.get(source_index - index, 0):
            continue
        first = 0
        while index > first < source_index and ours[index - first - 1] == theirs[source_index - first - 1]:
            first += 1
        end = index
        shift = source_index - index
        while end < len(ours) and end + shift < len(theirs) and ours[end] == theirs[end + shift]:
            end += 1
        covered[shift] = end
        best = max(best, _Stretch(end - index + first, index - first, source_index - first))
    return best
