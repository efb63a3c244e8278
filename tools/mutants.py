"""Grades the mutants of the CUDA experts on the emulated GPU and prints what is found by which means.

    python -m tools.mutants [--only PATTERN] [--control] [--write] [--cache DIR]

Exit codes: 0 done; 2 usage; 3 under 95 % were found, or with --control an expert itself is not correct.
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import os
import platform
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
from harness.text import first_line
from tests.device.emulated.mutants import Mutant, mutants

LEAST_SHARE: Final = 0.95
CORRECT: Final = "correct"
DOCUMENT: Final = Path(__file__).resolve().parents[1] / "docs/generated/emulated_mutants.md"
_SHOWN: Final = 70
"""Characters of a detail."""
_WIDTH: Final = 200
"""Columns of the table where the output is no terminal."""
_FRAME: Final = """# Mutants of the CUDA experts on the emulated GPU

Written by `python -m tools.mutants --control --write`; do not edit it by hand. **Emulated: nothing here was
measured on a GPU.** Each mutant is a CUDA expert with one realistic bug, from
`tests/device/emulated/mutants.toml`. It is graded as any project is: built for sm_90, then checked with
`quick` on the emulated GPU. *Found* means that the grade was not `correct`, by a means that fits the bug. The
emulator's own findings are told from those of the judge, which compares outputs and repeats calls.

- Date: {date}
- Machine: {machine}, no GPU in use
- Found: {found} of {all} ({share:.1%})
- The experts without a patch: {control}

| kind | found | by which means |
|---|---|---|
{kinds}

| mutant | expert | found by | first line of the finding | s |
|---|---|---|---|---|
{rows}
"""


@dataclass(frozen=True)
class Outcome:
    """What an emulated grade says: `correct`, or the kind of its finding (`race`, `uninitialized`, ...); its
    first line; and whose finding it is, `emulator` or `judge`."""

    name: str
    detail: str
    by: str = "judge"


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

    @property
    def means(self) -> str:
        """The kind of the finding and whose it is."""
        said = f"{self.outcome.name} ({self.outcome.by})"
        return said if self.found else f"NOT FOUND ({self.outcome.name})"


def emulate(grader: Grader, project: Project, loaded: LoadedTask) -> Outcome:
    """The outcome of one `quick` grade on the emulated GPU, from the grade's record; its verdict without one.

    Raises InfraError for failures that are ours.
    """
    grade = grader.grade(project, loaded)
    emulated = grade.emulated
    if emulated is None:
        return Outcome(str(grade.verdict), grade.finding.message)
    if emulated.finding is not None:
        return Outcome(emulated.finding.kind, emulated.message, "emulator")
    return Outcome(emulated.outcome, emulated.message)


class Progress:
    """Lines on stderr: how many are done, and about when the rest will be."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._begun = total, 0, time.monotonic()

    def __call__(self, text: str) -> None:
        """One more is done."""
        self._done += 1
        left = (time.monotonic() - self._begun) / self._done * (self._total - self._done)
        print(f"{self._done}/{self._total} {text}; ETA {left / 60:.0f} min", file=sys.stderr, flush=True)


def graded(chosen: Iterable[Mutant], emulated: Emulate, progress: Callable[[str], None]) -> Iterable[Row]:
    """Rows in the order of `chosen`."""
    tasks = {loaded.task.id: loaded for loaded in all_tasks()}
    for mutant in chosen:
        begun = time.monotonic()
        row = Row(mutant, emulated(mutant.project(), tasks[mutant.task]), time.monotonic() - begun)
        progress(f"{mutant.name}: {row.means}, {row.wall_s:.0f} s: {first_line(row.outcome.detail, _SHOWN)}")
        yield row


def experts(chosen: Iterable[Mutant]) -> list[tuple[Path, str]]:
    """Folder and task of the experts of those mutants."""
    return sorted({(mutant.folder, mutant.task) for mutant in chosen})


def incorrect_experts(
    chosen: Iterable[Mutant], emulated: Emulate, progress: Callable[[str], None]
) -> list[str]:
    """What is wrong with the experts without any patch, one line each."""
    wrong = []
    tasks = {loaded.task.id: loaded for loaded in all_tasks()}
    for folder, task in experts(chosen):
        outcome = emulated(read_project(folder), tasks[task])
        progress(f"{task} without a patch: {outcome.name} {outcome.detail}")
        if outcome.name != CORRECT:
            wrong.append(f"{task}: {outcome.name}: {outcome.detail}")
    return wrong


def by_kind(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """Per kind: its name, how many of how many were found, and by which means."""
    told = []
    for kind in dict.fromkeys(row.mutant.kind for row in rows):
        same = [row for row in rows if row.mutant.kind == kind]
        by = Counter(row.means for row in same if row.found)
        means = ", ".join(f"{count} {name}" for name, count in by.most_common())
        told.append((kind, f"{by.total()} of {len(same)}", means))
    return told


def show(rows: Sequence[Row], console: Console) -> None:
    """The table of mutants, then how many of each kind were found by which means."""
    table = plain_table("mutant", "expert", "kind", "found by", "s", "", right=("s",), whole=("mutant",))
    for row in rows:
        first = row.outcome.detail.partition("\n")[0][:_SHOWN]
        table.add_row(
            *(row.mutant.name, row.mutant.task, row.mutant.kind, row.means, f"{row.wall_s:.1f}"),
            untrusted(first),
        )
    console.print(table)
    for kind, share, means in by_kind(rows):
        console.print(f"{kind}: {share}{f' ({means})' if means else ''}")
    found = sum(row.found for row in rows)
    console.print(f"found: {found} of {len(rows)} ({found / len(rows):.1%})")


def document(rows: Sequence[Row], controlled: int | None, wrong: Sequence[str]) -> str:
    """The page; `controlled`: how many experts were graded without a patch, None where none was."""
    found = sum(row.found for row in rows)
    control = "not graded" if controlled is None else f"{controlled - len(wrong)} of {controlled} correct"
    control += "".join(f"\n  - {first_line(line)}" for line in wrong)
    lines = []
    for row in rows:
        why = f"; {row.mutant.missed}" if row.mutant.missed and not row.found else ""
        told = first_line(row.outcome.detail, _SHOWN).replace("|", "/")
        lines.append(
            f"| {row.mutant.name} | {row.mutant.task} | {row.means}{why} | {told} | {row.wall_s:.0f} |"
        )
    return _FRAME.format(
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
        machine=f"{os.cpu_count()} cores, {platform.machine()}",
        found=found,
        all=len(rows),
        share=found / len(rows),
        control=control,
        kinds="\n".join("| " + " | ".join(one) + " |" for one in by_kind(rows)),
        rows="\n".join(lines),
    )


def main(arguments: Sequence[str] | None = None, emulated: Emulate | None = None) -> int:
    """Grade and print; returns the exit code. `emulated` replaces the grader of this machine."""
    parser = argparse.ArgumentParser(prog="mutants", description="Grade mutants on the emulated GPU.")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names, such as 'deadlock.*'")
    parser.add_argument("--control", action="store_true", help="grade the experts too, without patches")
    parser.add_argument("--write", action="store_true", help=f"also write {DOCUMENT.name}; not with --only")
    parser.add_argument("--cache", type=Path, help="folder for builds (default: ~/.cache)")
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    try:
        chosen = [one for one in mutants() if fnmatch.fnmatchcase(one.name, options.only)]
        if not chosen:
            raise UsageError(f"no mutant matches {options.only!r}")
        if options.write and options.only != "*":
            raise UsageError("--write is for all mutants")
        plain = experts(chosen) if options.control else []
        progress = Progress(len(plain) + len(chosen))
        with ExitStack() as stack:
            if emulated is None:
                grading = GradingOptions(cache=options.cache)
                setup = stack.enter_context(closing(make_grading_setup(grading, timed=False)))
                emulated = partial(emulate, setup.grader)
            rows = list(graded(chosen, emulated, progress))
            wrong = incorrect_experts(chosen, emulated, progress) if options.control else []
    except LiftbenchError as error:
        print(f"mutants: {error}", file=sys.stderr)
        return 2 if isinstance(error, UsageError) else 1
    show(rows, console)
    if options.write:
        DOCUMENT.write_text(document(rows, len(plain) if options.control else None, wrong))
    for line in wrong:
        console.print(untrusted(f"NOT CORRECT WITHOUT A PATCH: {line}"))
    return 3 if wrong or sum(row.found for row in rows) < LEAST_SHARE * len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
