"""Texts as rows of tokens: what two of them have in common, whatever their spacing and their headers.

Lines of `#include` have no tokens; comments have, as any text has.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from harness.records import Task
from harness.student.prompts import SYSTEM, task_text
from harness.suite.catalogue import LoadedTask, expert_directory, read_project

ROW: Final = 13
"""Tokens in a row, as contamination studies of language models count them."""
WORDS: Final = 8
"""Different words (identifiers, numbers) in a row that is evidence: a loop's head has 5, a launch has 7."""
FAMILIES: Final = 5
"""A row that files of so many families have is common property."""
NOT_COMPARED: Final = ("build.toml", "torch-ext/")
"""Of an expert project: every project has these, and the prompt teaches how they are made."""
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|->|::|<<<|>>>|[<>=!+\-*/%&|^]=|&&|\|\||<<|>>|\+\+|--|[^\s\w]")

Row = tuple[str, ...]


@dataclass(frozen=True)
class Tokens:
    """A text as tokens, with the line of each."""

    tokens: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def rows(self) -> Iterator[Row]:
        """All rows, in order; the n-th begins at token n."""
        return zip(*(self.tokens[start:] for start in range(ROW)), strict=False)


class Stretch(NamedTuple):
    """Tokens in common that follow each other in both files; the longest is the greatest."""

    tokens: int
    start: int
    """Index in the first file."""
    source_start: int


def tokens_of(text: str) -> Tokens:
    """A text as tokens."""
    found = Tokens()
    for number, line in enumerate(text.split("\n"), 1):
        if line.lstrip().startswith("#include"):
            continue
        words = _TOKEN.findall(line)
        found.tokens.extend(words)
        found.lines.extend([number] * len(words))
    return found


def tells(row: Row) -> bool:
    """Whether it has enough different words to come from somewhere."""
    return len({token for token in row if token[0].isalnum() or token[0] == "_"}) >= WORDS


def expert_files(task: Task) -> Iterator[tuple[str, str]]:
    """The files of a task's expert project that are compared: path in it -> text; none without an expert."""
    directory = expert_directory(task)
    if directory is not None:
        for file in read_project(directory).files:
            if not file.path.startswith(NOT_COMPARED):
                yield file.path, file.text


def prompt_rows(loaded: LoadedTask) -> set[Row]:
    """Of the prompt, for every target that the task has."""
    texts = [SYSTEM, *(task_text(loaded.task, target) for target in loaded.task.dtypes)]
    return {row for text in texts for row in tokens_of(text).rows()}


def longest(starts: Sequence[tuple[int, int]], ours: Sequence[str], theirs: Sequence[str]) -> Stretch:
    """The longest stretch with evidence in it: rows between, which prove nothing alone, belong to it.

    `starts`: where rows in common begin, in ours and in theirs.
    """
    best = Stretch(0, 0, 0)
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
        best = max(best, Stretch(end - index + first, index - first, source_index - first))
    return best
