"""`liftbench board check`: what a board's CI does with a folder of submissions."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from harness.board.levels import graded_again
from harness.board.runs import DELISTED, BoardRun, delisted, read_run
from harness.board.submission import Shipped, faults_of, read_submission
from harness.board.tables import claims_of, replies_of_others
from harness.errors import InfraError, NoGraderLeft, UsageError
from harness.files import write_atomically
from harness.grading.setup import GradingSetup
from harness.records import RunConfig
from harness.study.regrade import read_source, regrade
from harness.study.run import Display, RunContext
from harness.suite.catalogue import LoadedTask

SHOWN = 3
"""Faults of one submission."""


@dataclass
class Checked:
    """What was found in a folder of submissions, by run."""

    runs: list[BoardRun] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    unchecked: dict[str, str] = field(default_factory=dict)
    """What could not be checked, and why: never a pass."""
    notes: list[str] = field(default_factory=list)

    @property
    def sound(self) -> list[BoardRun]:
        return [one for one in self.runs if one.run.run_id not in self.faults and one.delisted is None]


@dataclass(frozen=True)
class Regrading:
    """How projects are graded again."""

    tasks: Callable[[Sequence[str], RunConfig], Sequence[LoadedTask]]
    """Tasks by name, for a run of this configuration."""
    opened: Callable[[RunConfig], GradingSetup]
    runs: Path
    display: Display
    emulate: bool = True


def check_folder(folder: Path, shipped: Shipped) -> Checked:
    """Every folder is read as a submission."""
    made = Checked()
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        try:
            one = read_submission(place)
        except UsageError as error:
            made.faults[place.name] = f"{error}"
            continue
        made.runs.append(one)
        if found := list(faults_of(one, shipped)):
            made.faults[one.run.run_id] = "; ".join(found[:SHOWN])
        if unknown := shipped.unknown_skills(one):
            names = [name for name, digest in one.run.lock.skills.items() if digest in unknown]
            made.notes.append(
                f"{one.run.run_id}: prompts with {', '.join(names) or 'its skills'} not compared"
            )
    for claim, others in replies_of_others([claim for one in made.runs for claim in claims_of(one)]):
        made.faults.setdefault(claim.entry.run_id, others)
    return made


def grade_share(folder: Path, found: Checked, share: float, how: Regrading) -> None:
    """Grade a share of the tasks of sound runs again; those that are contradicted are delisted."""
    for one in found.sound:
        name = one.run.run_id
        try:
            wrong, unchecked = _graded(one, share, how)
        except (UsageError, InfraError, NoGraderLeft) as error:
            found.unchecked[name] = f"{error}"
            continue
        if unchecked:
            found.unchecked[name] = "; ".join(unchecked[:SHOWN])
        if wrong:
            found.faults[name] = f"delisted: {wrong[0]}"
            delist(folder, {name: wrong[0]})


def _graded(one: BoardRun, share: float, how: Regrading) -> tuple[Sequence[str], Sequence[str]]:
    """Contradictions, and what could not be compared, of tasks that are drawn at random."""
    config = one.run.config
    drawn = secrets.SystemRandom().sample(config.tasks, max(1, round(share * len(config.tasks))))
    source = read_source(one.store, one.run, how.tasks(drawn, config), config.target)
    with closing(how.opened(config)) as setup:
        context = RunContext(setup, {}, how.runs, None, 1, how.display, fresh=True)
        again = regrade(source, config.target, context, emulate=how.emulate)
    made = read_run(again.folder)
    found = graded_again(one, made)
    owed = {trial.key for trial in one.trials if trial.key.task in drawn} - {t.key for t in made.trials}
    missing = [f"{len(owed)} trials were not graded again"] if owed else []
    return found.contradictions, [*found.unchecked, *missing]


def delist(folder: Path, reasons: Mapping[str, str]) -> None:
    """Add reasons to delisted.json; what is there stays."""
    write_atomically(folder / DELISTED, json.dumps(delisted(folder) | dict(reasons), indent=1) + "\n")
