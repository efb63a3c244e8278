"""Token overlap: skills that repeat a task's solution, and projects that repeat an expert's.

The unit is an n-gram of 13 tokens (identifiers, numbers, operators). It is evidence if it has at least 8
different words, is not in the task's prompt, and occurs in files of fewer than 5 task families. `#include`
lines, build.toml and the bindings under torch-ext/ of expert projects are not compared: the prompt teaches
them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

from harness.records import Origin, Project, Provenance, Record, Task
from harness.records.project import EVIDENT_ROWS
from harness.skills.lineage import lineage_of
from harness.skills.spec import LoadedSkill
from harness.student.prompts import SYSTEM, task_text
from harness.suite.catalogue import LoadedTask, all_tasks, expert_project

NGRAM_TOKENS: Final = 13
"""The length used by contamination studies of language models."""
_DISTINCT_WORDS: Final = 8
"""A loop header has 5 different words, a kernel launch 7."""
_COMMON_FAMILIES: Final = 5
"""An n-gram in files of this many families is an idiom."""
_TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.]*|->|::|<<<|>>>|[<>=!+\-*/%&|^]=|&&|\|\||<<|>>|\+\+|--|[^\s\w]")
_STRING_OR_COMMENT = re.compile(
    r"""("(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])')|//[^\n]*+|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
"""Group 1 is a string or character literal. Unterminated ones match too, so that matching stays linear."""

NGram = tuple[str, ...]
_ExpertFile = tuple[str, str]
"""Task id and path in the task's expert project."""
_Starts = list[tuple[int, int]]
"""Token indices at which a shared n-gram starts: in our file and in the other one."""


@dataclass(frozen=True)
class Tokens:
    """A text as tokens, with the 1-based line of each."""

    tokens: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)

    def ngrams(self) -> Iterator[NGram]:
        """All n-grams in order; the i-th starts at token i."""
        return zip(*(self.tokens[start:] for start in range(NGRAM_TOKENS)), strict=False)

    def evident(self) -> Iterator[tuple[int, NGram]]:
        """Start and n-gram of those with enough different words to be evidence."""
        words = [token if token[0].isalnum() or token[0] == "_" else "" for token in self.tokens]
        for start, ngram in enumerate(self.ngrams()):
            if len({"", *words[start : start + NGRAM_TOKENS]}) > _DISTINCT_WORDS:
                yield start, ngram


class Stretch(NamedTuple):
    """A run of equal tokens in two files; tuples compare by length first."""

    tokens: int
    start: int
    source_start: int


def tokenize(text: str) -> Tokens:
    """The tokens of a text, without `#include` lines."""
    found = Tokens()
    for number, line in enumerate(text.split("\n"), 1):
        if not line.lstrip().startswith("#include"):
            words = _TOKEN.findall(line)
            found.tokens.extend(words)
            found.lines.extend([number] * len(words))
    return found


def tokenize_code(text: str) -> Tokens:
    """The tokens of C++ source without its comments; line numbers are kept."""
    return tokenize(_STRING_OR_COMMENT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text))


def expert_files(task: Task) -> Iterator[tuple[str, str]]:
    """Path and text of the compared files of a task's expert project; nothing if there is none."""
    expert = expert_project(task)
    for file in () if expert is None else expert.files:
        if not file.path.startswith(("build.toml", "torch-ext/")):
            yield file.path, file.text


def prompt_ngrams(loaded: LoadedTask) -> set[NGram]:
    """The n-grams of a task's longest prompts, over all of its targets: what they teach is no evidence."""
    texts = [SYSTEM, *(task_text(loaded.task, target, "full") for target in loaded.task.dtypes)]
    return {ngram for text in texts for ngram in tokenize(text).ngrams()}


def longest_stretch(starts: _Starts, ours: Sequence[str], theirs: Sequence[str]) -> Stretch:
    """The longest run of equal tokens that contains one of the shared n-grams."""
    best = Stretch(0, 0, 0)
    covered: dict[int, int] = {}  # diagonal -> end of the last run followed on it
    for index, source_index in starts:
        shift = source_index - index
        if index < covered.get(shift, 0):
            continue
        before = 0
        while index > before < source_index and ours[index - before - 1] == theirs[source_index - before - 1]:
            before += 1
        end = index
        while end < len(ours) and end + shift < len(theirs) and ours[end] == theirs[end + shift]:
            end += 1
        covered[shift] = end
        best = max(best, Stretch(end - index + before, index - before, source_index - before))
    return best


class Leak(Record):
    """What one file of a skill shares with one file behind a task."""

    task: str
    file: str
    line: int
    source_file: str
    source_line: int
    count: int
    longest: int


class _TaskFile(NamedTuple):
    """A file behind a task that shares n-grams with the skill."""

    loaded: LoadedTask
    name: str
    tokens: Tokens
    hits: list[tuple[int, NGram]]


def overlaps(skill_texts: Mapping[str, str], tasks: Sequence[LoadedTask]) -> tuple[Leak, ...]:
    """What a skill's files (name -> text) share with the files behind `tasks`, largest overlap first.

    Idioms are determined over `tasks` and the shipped suite together, so the result for one task does not
    depend on the others. A file leaks from 8 distinct n-grams on.
    """
    skill = {name: tokenize(text) for name, text in skill_texts.items()}
    places: dict[NGram, list[tuple[str, int]]] = {}
    for name, tokens in skill.items():
        for index, ngram in tokens.evident():
            places.setdefault(ngram, []).append((name, index))
    if not places:
        return ()
    asked = {one.task.id for one in tasks}
    families: dict[NGram, set[str]] = {}
    shared: list[_TaskFile] = []
    for loaded in {one.task.id: one for one in [*all_tasks(), *tasks]}.values():
        for name, text in _files_behind(loaded):
            tokens = tokenize(text)
            hits = [(index, ngram) for index, ngram in enumerate(tokens.ngrams()) if ngram in places]
            for _, ngram in hits:
                families.setdefault(ngram, set()).add(loaded.task.family)
            if len(hits) >= EVIDENT_ROWS and loaded.task.id in asked:
                shared.append(_TaskFile(loaded, name, tokens, hits))
    idioms = {ngram for ngram, having in families.items() if len(having) >= _COMMON_FAMILIES}
    leaks = [leak for one in shared for leak in _leaks(one, idioms, places, skill)]
    return tuple(sorted(leaks, key=lambda leak: (-leak.count, leak.task, leak.file, leak.source_file)))


def _files_behind(loaded: LoadedTask) -> Iterator[tuple[str, str]]:
    """Name and text of the files behind a task that no student sees."""
    for name in ("reference.py", "task.toml"):
        path = loaded.directory / name
        if path.is_file():
            yield name, path.read_text(encoding="utf-8")
    for file, text in expert_files(loaded.task):
        yield f"kernels_ref/{loaded.task.id}/{file}", text


def _leaks(
    source: _TaskFile,
    idioms: set[NGram],
    places: Mapping[NGram, Sequence[tuple[str, int]]],
    skill: Mapping[str, Tokens],
) -> Iterator[Leak]:
    """One leak for each file of the skill that shares enough evidence with `source`."""
    known = prompt_ngrams(source.loaded) | idioms
    ngrams: dict[str, set[NGram]] = {}
    starts: dict[str, _Starts] = {}
    for source_index, ngram in source.hits:
        for name, index in places[ngram] if ngram not in known else ():
            ngrams.setdefault(name, set()).add(ngram)
            starts.setdefault(name, []).append((index, source_index))
    for name, distinct in ngrams.items():
        if len(distinct) >= EVIDENT_ROWS:
            stretch = longest_stretch(starts[name], skill[name].tokens, source.tokens.tokens)
            yield Leak(
                task=source.loaded.task.id,
                file=name,
                line=skill[name].lines[stretch.start],
                source_file=source.name,
                source_line=source.tokens.lines[stretch.source_start],
                count=len(distinct),
                longest=stretch.tokens,
            )


def excluded_tasks(skills: Sequence[LoadedSkill], tasks: Sequence[LoadedTask]) -> dict[str, str]:
    """Task id -> reason, for tasks excluded from a run because a skill has an unfair advantage on them.

    A skill has one on tasks whose solution it holds, and on families that it was refined on.
    """
    found: dict[str, str] = {}
    for loaded in skills:
        name = loaded.skill.name
        for leak in overlaps(loaded.skill.documents, tasks):
            found.setdefault(
                leak.task,
                f"{name} repeats {leak.source_file} ({leak.file}:{leak.line}, {leak.longest} tokens)",
            )
        lineage = lineage_of(loaded.directory)
        for task in (t.task for t in tasks if lineage is not None and t.task.family in lineage.seen):
            found[task.id] = f"the skill was refined or chosen on family {task.family}"
    return found


@dataclass(frozen=True)
class _Experts:
    """The distinctive n-grams of all expert projects."""

    texts: Mapping[_ExpertFile, Tokens]
    places: Mapping[NGram, Sequence[tuple[_ExpertFile, int]]]
    idioms: frozenset[NGram]


@cache
def _experts() -> _Experts:
    """Read once per process: 15 MiB, and less than a second."""
    texts: dict[_ExpertFile, Tokens] = {}
    places: dict[NGram, list[tuple[_ExpertFile, int]]] = {}
    families: dict[NGram, set[str]] = {}
    for loaded in all_tasks():
        for path, text in expert_files(loaded.task):
            file, read = (loaded.task.id, path), tokenize_code(text)
            texts[file] = Tokens([sys.intern(token) for token in read.tokens], read.lines)
            for index, ngram in texts[file].evident():
                places.setdefault(ngram, []).append((file, index))
                families.setdefault(ngram, set()).add(loaded.task.family)
    idioms = frozenset(ngram for ngram, having in families.items() if len(having) >= _COMMON_FAMILIES)
    return _Experts(texts, {ngram: at for ngram, at in places.items() if ngram not in idioms}, idioms)


def provenance(project: Project, loaded: LoadedTask) -> Provenance:
    """The share of a project's n-grams that occur in the expert projects of all shipped tasks.

    Comments are ignored on both sides. Of the project only build.toml is ignored, since a kernel can be
    hidden under torch-ext/.
    """
    experts, known = _experts(), prompt_ngrams(loaded)
    own: set[NGram] = set()
    found: dict[_ExpertFile, set[NGram]] = {}
    starts: dict[_ExpertFile, dict[str, _Starts]] = {}
    texts = {file.path: tokenize_code(file.text) for file in project.files if file.path != "build.toml"}
    for path, tokens in texts.items():
        for index, ngram in tokens.evident():
            if ngram in experts.idioms or ngram in known:
                continue
            own.add(ngram)
            for file, source_index in experts.places.get(ngram, ()):
                found.setdefault(file, set()).add(ngram)
                starts.setdefault(file, {}).setdefault(path, []).append((index, source_index))
    most = max(map(len, found.values()), default=0)
    origins = [
        _origin(file, most, starts[file], texts, experts.texts[file])
        for file, ngrams in found.items()
        if len(ngrams) == most
    ]
    # Experts share some files; between equal matches the task's own expert is named.
    origins.sort(key=lambda one: (-one.longest, one.task != loaded.task.id, one.task, one.file))
    common = len(set().union(*found.values()))
    return Provenance(rows=len(own), common=common, origin=origins[0] if origins else None)


def _origin(
    file: _ExpertFile,
    ngrams: int,
    starts: Mapping[str, _Starts],
    texts: Mapping[str, Tokens],
    theirs: Tokens,
) -> Origin:
    """The longest stretch shared with one expert file; `starts` is keyed by the project's files."""
    stretches = {path: longest_stretch(at, texts[path].tokens, theirs.tokens) for path, at in starts.items()}
    path = max(stretches, key=lambda name: stretches[name].tokens)
    stretch = stretches[path]
    return Origin(
        task=file[0],
        file=file[1],
        rows=ngrams,
        longest=stretch.tokens,
        source_line=theirs.lines[stretch.source_start],
        project_file=path,
        project_line=texts[path].lines[stretch.start],
    )
