"""Grades the mutants of the CUDA experts on the emulated GPU and prints what is found by which means.

    python -m tools.mutants [--only PATTERN] [--control] [--cache DIR]

Exit codes: 0 done; 2 usage; 3 under 95 % were found, or with --control an expert itself is not correct.
"""

from __future__ import annotations

import argparse
import fnmatch
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from harness.cli.card import plain_table, untrusted
from harness.cli.options import GradingOptions, make_grading_setup
from harness.errors import LiftbenchError, UsageError
from harness.grading.grade import Grader
from harness.records import Project
from harness.suite.catalogue import LoadedTask, all_tasks, read_project
from tests.device.emulated.mutants import Mutant, mutants

LEAST_SHARE: Final = 0.95
CORRECT: Final = "correct"
_WIDTH: Final = 200
"""Columns of the table where the output is no terminal."""
_SHOWN: Final = 70
"""Characters of a detail."""


@dataclass(frozen=True)
class Outcome:
    """What an emulated grade says: its outcome (`correct`, `race`, ...) and its first line."""

    name: str
    detail: str


Emulate = Callable[[Project, LoadedTask], Outcome]


@dataclass(frozen=True)
class Row:
    """One mutant, graded."""

    mutant: Mutant
    outcome: Outcome
    wall_s: float

    @property
    def found(self) -> bool:
        """Whether it was found by a means that fits the bug."""
        return self.outcome.name in self.mutant.found_by


def emulate(grader: Grader, project: Project, loaded: LoadedTask) -> Outcome:
    """The outcome of one `quick` grade on the emulated GPU, from the grade's record; its verdict without one.

    Raises InfraError for failures that are ours.
    """
    grade = grader.grade(project, loaded)
    emulated = grade.model_dump().get("emulated")
    if emulated is None:
        return Outcome(str(grade.verdict), grade.finding.message if grade.finding else "not emulated")
    return Outcome(str(emulated["outcome"]), str(emulated["message"] or ""))


def graded(chosen: Iterable[Mutant], emulated: Emulate) -> Iterable[Row]:
    """Rows in the order of `chosen`, with progress on stderr."""
    tasks = {loaded.task.id: loaded for loaded in all_tasks()}
    for mutant in chosen:
        begun = time.monotonic()
        row = Row(mutant, emulated(mutant.project(), tasks[mutant.task]), time.monotonic() - begun)
        print(f"{mutant.name}: {row.outcome.name}, {row.wall_s:.0f} s", file=sys.stderr, flush=True)
        yield row


def incorrect_experts(chosen: Iterable[Mutant], emulated: Emulate) -> list[str]:
    """What is wrong with the experts without any patch, one line each."""
    wrong = []
    tasks = {loaded.task.id: loaded for loaded in all_tasks()}
    for folder, task in sorted({(mutant.folder, mutant.task) for mutant in chosen}):
        outcome = emulated(read_project(folder), tasks[task])
        print(f"{task}: {outcome.name}", file=sys.stderr, flush=True)
        if outcome.name != CORRECT:
            wrong.append(f"{task}: {outcome.name}: {outcome.detail}")
    return wrong


def show(rows: Sequence[Row], console: Console) -> None:
    """The table of mutants, then how many of each kind were found by which means."""
    table = plain_table("mutant", "expert", "kind", "found by", "s", "", right=("s",), whole=("mutant",))
    for row in rows:
        means = row.outcome.name if row.found else f"NOT FOUND ({row.outcome.name})"
        first = row.outcome.detail.partition("\n")[0][:_SHOWN]
        table.add_row(
            *(row.mutant.name, row.mutant.task, row.mutant.kind, means, f"{row.wall_s:.1f}"), untrusted(first)
        )
    console.print(table)
    for kind in dict.fromkeys(row.mutant.kind for row in rows):
        same = [row for row in rows if row.mutant.kind == kind]
        by = Counter(row.outcome.name for row in same if row.found)
        means = ", ".join(f"{count} {name}" for name, count in by.most_common())
        console.print(f"{kind}: {by.total()} of {len(same)}{f' ({means})' if means else ''}")
    found = sum(row.found for row in rows)
    console.print(f"found: {found} of {len(rows)} ({found / len(rows):.1%})")


def main(arguments: Sequence[str] | None = None, emulated: Emulate | None = None) -> int:
    """Grade and print; returns the exit code. `emulated` replaces the grader of this machine."""
    parser = argparse.ArgumentParser(prog="mutants", description="Grade mutants on the emulated GPU.")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names, such as 'deadlock.*'")
    parser.add_argument("--control", action="store_true", help="grade the experts first, without patches")
    parser.add_argument("--cache", type=Path, help="folder for builds (default: ~/.cache)")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    try:
        chosen = [one for one in mutants() if fnmatch.fnmatchcase(one.name, options.only)]
        if not chosen:
            raise UsageError(f"no mutant matches {options.only!r}")
        with ExitStack() as stack:
            if emulated is None:
                grading = GradingOptions(cache=options.cache)
                setup = stack.enter_context(closing(make_grading_setup(grading, timed=False)))
                emulated = partial(emulate, setup.grader)
            wrong = incorrect_experts(chosen, emulated) if options.control else []
            rows = list(graded(chosen, emulated))
    except LiftbenchError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    show(rows, console)
    for line in wrong:
        console.print(untrusted(f"NOT CORRECT WITHOUT A PATCH: {line}"))
    return 3 if wrong or sum(row.found for row in rows) < LEAST_SHARE * len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
