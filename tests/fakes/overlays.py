"""Tiny projects for the CPU target, made from a base folder and the files that differ."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.records import Project, ProjectFile
from harness.suite.catalogue import LoadedTask, load_task, read_project

TESTS = Path(__file__).parents[1]
ZOO = TESTS / "zoo"
TASKS = TESTS / "tasks_for_tests"


def throw_away_task(name: str) -> LoadedTask:
    """A throw-away task of tests/tasks_for_tests."""
    return load_task(TASKS / "t" / name)


@dataclass(frozen=True)
class Replaced(LoadedTask):
    """A task some functions of whose reference.py are replaced."""

    functions: dict[str, Any] = field(default_factory=dict)

    def reference_module(self) -> ModuleType:
        """reference.py with the replacements."""
        module = super().reference_module()
        vars(module).update(self.functions)
        return module


def overlaid(base: Path, changes: Mapping[str, str]) -> Project:
    """The project in `base` with some files replaced or added; they are text."""
    files = {file.path: file.text for file in read_project(base).files} | changes
    return Project(files=tuple(ProjectFile(path=p, text=files[p]) for p in sorted(files)))


def zoo_project(name: str, token: str = "0") -> Project:
    """A project of the zoo: the base that zoo.toml names (or `base`) with the files of its own folder."""
    folder = ZOO / name
    base = tomllib.loads((folder / "zoo.toml").read_text()).get("base", "base")
    own = [p for p in folder.rglob("*") if p.is_file() and p.name != "zoo.toml" and p.suffix != ".pyc"]
    changes = {p.relative_to(folder).as_posix(): p.read_text().replace("@TOKEN@", token) for p in own}
    return overlaid(ZOO / base, changes)
