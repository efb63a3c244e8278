"""A KernelBench checkout: which problem files there are, and what they are called here.

A checkout is only read; the same file has the same name wherever the checkout lies.
"""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError, refuse_url

PREFIX = "kernelbench:"
_LEVEL = re.compile(r"level\d+")
_INNER = "KernelBench"
"""The folder of a checkout in which the levels lie."""


def is_pattern(text: str) -> bool:
    """Whether `--tasks` names KernelBench problems by this."""
    return text.startswith(PREFIX)


@dataclass(frozen=True)
class ProblemFile:
    """One problem of a checkout."""

    path: Path

    @property
    def level(self) -> str:
        """The task's level, `kernelbench_level1`; `kernelbench_custom` outside of a checkout."""
        folder = self.path.resolve().parent.name
        return f"kernelbench_{folder if _LEVEL.fullmatch(folder) else 'custom'}"

    @property
    def name(self) -> str:
        """The task's name, `19_relu`."""
        return re.sub(r"[^a-z0-9]+", "_", self.path.stem.lower()).strip("_")

    @property
    def id(self) -> str:
        """The task's id."""
        return f"{self.level}/{self.name}"

    @property
    def _order(self) -> tuple[str, int, str]:
        number = re.match(r"\d+", self.path.stem)
        return (self.level, int(number.group()) if number else 0, self.path.stem)


def find_problems(pattern: str) -> list[ProblemFile]:
    """The problems that `kernelbench:PATH[/level1][/glob]` names, by level and number.

    PATH is a checkout, a folder of levels, a level, or one file. Globs match file names with or without
    `.py`. Raises UsageError where there is no such checkout, or nothing matches.
    """
    refuse_url(pattern.removeprefix(PREFIX))
    path, rest = _existing(pattern.removeprefix(PREFIX))
    if path.is_file():
        return [ProblemFile(path)]
    levels = _levels(path)
    if not levels:
        raise UsageError(f"{pattern}: {path} is no KernelBench checkout: it has no level1/*.py")
    if levels != [path]:
        wanted, rest = (rest[0], rest[1:]) if rest else ("*", [])
        levels = [level for level in levels if fnmatch.fnmatchcase(level.name, wanted)]
    glob = rest[0] if rest else "*"
    found = [
        ProblemFile(file)
        for level in levels
        for file in level.glob("*.py")
        if fnmatch.fnmatchcase(file.name, glob) or fnmatch.fnmatchcase(file.stem, glob)
    ]
    if not found or len(rest) > 1:
        raise UsageError(
            f"no KernelBench problem matches {pattern!r} (PATH, PATH/level1 or PATH/level1/GLOB)"
        )
    return sorted(found, key=lambda problem: problem._order)


def _existing(text: str) -> tuple[Path, list[str]]:
    """The longest part of a pattern that exists, and what comes after it."""
    rest: list[str] = []
    path = Path(text).expanduser()
    while not path.exists() and path != path.parent:
        rest.insert(0, path.name)
        path = path.parent
    inner = path / _INNER / rest[0] if rest else path
    if rest and inner.is_dir():
        return inner, rest[1:]
    return path, rest


def _levels(path: Path) -> list[Path]:
    if _LEVEL.fullmatch(path.name):
        return [path]
    for root in (path / _INNER, path):
        levels = [folder for folder in root.glob("level*") if _LEVEL.fullmatch(folder.name)]
        if levels:
            return sorted(levels)
    return []
