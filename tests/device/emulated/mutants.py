"""Mutants of the CUDA experts: one realistic GPU bug each, which a grade on the emulated GPU has to find."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.files import data_directory
from harness.records import Project
from tests.fakes.overlays import overlaid

TABLE: Final = Path(__file__).with_name("mutants.toml")


@dataclass(frozen=True)
class Mutant:
    """A patch of one file of an expert; `old` occurs there exactly once."""

    name: str
    """KIND.EXPERT, with a suffix where an expert has several of a kind."""
    task: str
    path: str
    """Of the file, below the expert's folder."""
    old: str
    new: str
    why: str
    found_by: tuple[str, ...]
    """Outcomes of an emulated grade that count as found."""
    missed: str = ""
    """Why it is not found, where that is known."""

    @property
    def kind(self) -> str:
        """What is wrong, as a key of the table `found_by`."""
        return self.name.partition(".")[0]

    @property
    def folder(self) -> Path:
        """The expert's folder."""
        return data_directory("kernels_ref") / self.task

    def project(self) -> Project:
        """The expert with the patch. Raises ValueError where `old` is not there exactly once."""
        text = (self.folder / self.path).read_text()
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.task}/{self.path} has the text {count} times: {self.old!r}")
        return overlaid(self.folder, {self.path: text.replace(self.old, self.new)})


def mutants() -> tuple[Mutant, ...]:
    """All mutants of the table, in its order. Raises KeyError where one lacks a field."""
    table = tomllib.loads(TABLE.read_text())
    found_by = table.pop("found_by")
    made = []
    for kind, named in table.items():
        for name, row in named.items():
            task, _, file = row["in"].rpartition("/")
            path = f"{task.rpartition('/')[2]}_cuda/{file}"
            outcomes = tuple(row.get("found_by", found_by[kind]))
            patch = (row["old"], row["new"], row["why"])
            made.append(Mutant(f"{kind}.{name}", task, path, *patch, outcomes, row.get("missed", "")))
    return tuple(made)


def projects() -> Iterator[tuple[str, Project]]:
    """The name and the project of every mutant. Raises ValueError where a patch does not fit."""
    return ((mutant.name, mutant.project()) for mutant in mutants())
