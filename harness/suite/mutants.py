"""Mutants of an expert's source: one off-by-one mistake each.

A loop ends one step late or early or starts one late, or an added or subtracted 1 is dropped. Mutations that
may be harmless are not made: vector loops (their tail does the rest), comparisons of values, steps of whole
blocks, bounds that are constants. Comments, strings, preprocessor lines, template heads, argument checks,
prefetches and lines that end in `// no mutate: reason` are left unchanged. The result is deterministic.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from harness.records import Project

MARK = "// no mutate:"
_SKIPPED_LINE = re.compile(
    r"^\s*(#|template\b|static_assert\b|using\b|typedef\b|namespace\b|//)|STD_TORCH_CHECK|__builtin_prefetch"
)
_STRING = re.compile(r'"(?:\\.|[^"\\])*"')
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


def _code(line: str) -> str:
    """The line with strings and comments replaced by spaces."""
    blanked = _STRING.sub(lambda found: " " * len(found.group()), line)
    return blanked.split("//")[0].ljust(len(line))


def _changed_lines(line: str) -> list[str]:
    """Every mutation of the line."""
    if _SKIPPED_LINE.search(line) or MARK in line:
        return []
    code = _code(line)
    found = []
    rules = _IN_LOOPS + _ANYWHERE if _LOOP.search(code) else _ANYWHERE
    for pattern, replacement in rules:
        for match in pattern.finditer(code):
            found.append(line[: match.start()] + match.expand(replacement) + line[match.end() :])
    return found


def _unfinished_check(text: str) -> set[int]:
    """Lines (from 1) of every STD_TORCH_CHECK."""
    skipped: set[int] = set()
    depth = 0
    for number, line in enumerate(text.splitlines(), 1):
        code = _code(line)
        if depth == 0 and "STD_TORCH_CHECK" in code:
            code = code[code.index("STD_TORCH_CHECK") :]
        elif depth == 0:
            continue
        skipped.add(number)
        depth = max(0, depth + code.count("(") - code.count(")"))
    return skipped


def mutants(project: Project, paths: Sequence[str]) -> list[Mutant]:
    """All mutants of those files of a project, in text order."""
    found = []
    for file in project.files:
        if file.path not in paths:
            continue
        skipped = _unfinished_check(file.text)
        lines = file.text.split("\n")
        for number, line in enumerate(lines, 1):
            if number in skipped:
                continue
            for changed in _changed_lines(line):
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


def sources(project: Project, suffixes: tuple[str, ...] = (".cpp", ".cc", ".h", ".hpp")) -> list[str]:
    """C++ files with CPU kernels, without the binding."""
    return [
        file.path
        for file in project.files
        if file.path.endswith(suffixes) and not file.path.startswith("torch-ext/") and "cuda" not in file.path
    ]
