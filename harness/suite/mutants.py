"""Mutants of an expert's source: one off-by-one mistake each.

A loop ends one step late or early or starts one late, or an added or subtracted 1 is dropped. Mutations that
may be harmless are not made: vector loops (their tail does the rest), comparisons of values, steps of whole
blocks, bounds that are constants. Comments, strings, preprocessor lines, template heads, argument checks,
prefetches and lines that end in `// no mutate: reason` are left unchanged. The result is deterministic.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.records import Project

MARK = "// no mutate:"
_SKIPPED_LINE = re.compile(
    r"^\s*(#|template\b|static_assert\b|using\b|typedef\b|namespace\b|//)|STD_TORCH_CHECK|__builtin_prefetch"
)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
_COMMENT = re.compile(r"//.*")
_CHECK = re.compile(r"STD_TORCH_CHECK\b[^;]*;")
_VISIBLE = re.compile(r"[^\n]")
_LOOP = re.compile(r"\b(?:for|while) \(")
# Relational operators have spaces around them, template brackets do not.
_IN_LOOPS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r" < (?!<|[A-Z]|k[A-Z]|\d)(?![^;]*;[^;]*\+= )"), " <= "),
    (re.compile(r" < ([^;<>)]+)(?=[;)])"), r" < \1 - 1"),
    (re.compile(r" <= ([^;<>)]+)(?=[;)])"), r" <= \1 + 1"),
    (re.compile(r"(?<=for \()([\w:]+ \w+) = 0(?=[;,])"), r"\1 = 1"),
)
_ANYWHERE: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r" \+ 1\b(?![.\d])"), ""),
    (re.compile(r" - 1\b(?![.\d])"), ""),
)


@dataclass(frozen=True)
class Mutant:
    """One change of one line."""

    path: str
    line: int
    before: str
    after: str
    project: Project

    @property
    def label(self) -> str:
        """`file:line: before -> after`."""
        return f"{self.path}:{self.line}: {self.before.strip()} -> {self.after.strip()}"


def _blanked(text: str) -> str:
    """The text with strings, comments and argument checks replaced by spaces."""
    for pattern in (_STRING, _COMMENT, _CHECK):
        text = pattern.sub(lambda found: _VISIBLE.sub(" ", found[0]), text)
    return text


def _changed_lines(line: str, code: str) -> Iterator[str]:
    """Every mutation of the line; `code` is the line without strings, comments and checks."""
    if _SKIPPED_LINE.search(line) or MARK in line:
        return
    rules = _IN_LOOPS + _ANYWHERE if _LOOP.search(code) else _ANYWHERE
    for pattern, replacement in rules:
        for match in pattern.finditer(code):
            yield line[: match.start()] + match.expand(replacement) + line[match.end() :]


def mutants(project: Project, paths: Sequence[str]) -> list[Mutant]:
    """All mutants of those files of a project, in text order."""
    found = []
    for file in project.files:
        if file.path not in paths:
            continue
        lines, codes = file.text.split("\n"), _blanked(file.text).split("\n")
        for number, (line, code) in enumerate(zip(lines, codes, strict=True), 1):
            for changed in _changed_lines(line, code):
                text = "\n".join([*lines[: number - 1], changed, *lines[number:]])
                files = tuple(
                    f.model_copy(update={"text": text}) if f.path == file.path else f for f in project.files
                )
                mutated = project.model_copy(update={"files": files})
                found.append(Mutant(file.path, number, line, changed, mutated))
    return found


def sample(every: Sequence[Mutant], count: int, seed: str) -> list[Mutant]:
    """At most `count` mutants, chosen by `seed`, in text order."""
    if len(every) <= count:
        return list(every)
    chosen = random.Random(seed).sample(range(len(every)), count)
    return [every[index] for index in sorted(chosen)]


def sources(project: Project) -> list[str]:
    """C++ files with CPU kernels, without the binding."""
    paths = (file.path for file in project.files if file.path.endswith((".cpp", ".cc", ".h", ".hpp")))
    return [path for path in paths if not path.startswith("torch-ext/") and "cuda" not in path]
