"""One generation, from an order to a written skill and its test.

The test split is looked at once, after the last choice was made; the look is on record before anything of it
can be known.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Protocol

from harness.errors import UsageError
from harness.files import write_atomically
from harness.models.meter import Spent
from harness.skills.lineage import SHORT_KEY, Lineage, Look, LookLog, look_at
from harness.skills.package import derive
from harness.skills.spec import LoadedSkill, read_skill
from harness.stats import fewest_families
from harness.study.arms import Arms, Delivery, make_arms
from harness.teaching.brief import Order
from harness.teaching.record import GenerationRecord, MeasuredLift
from harness.teaching.refine import Evaluate, Search, search
from harness.teaching.splits import Splits
from harness.teaching.workshop import Version, Workshop

RECORD = "generation.json"


class MeasureLift(Protocol):
    """Measures the lift on the test split."""

    def __call__(self, arms: Arms, alpha: float, skill: LoadedSkill) -> Measured:
        """Carry out and report the test run."""
        ...


@dataclass(frozen=True)
class Measured:
    """How the test run ended."""

    folder: str
    stopped: str | None
    """Why trials of it are owed."""
    lifts: tuple[MeasuredLift, ...] = ()


@dataclass(frozen=True)
class Job:
    """Everything that a generation needs."""

    order: Order
    source: str | None
    """The trace or skill that it begins from, as the user named it."""
    old: Path | None
    """The skill that it begins from."""
    teacher: str
    students: tuple[str, ...]
    metric: Literal["deployed", "correct", "compiles"]
    splits: Splits | None
    """None: nothing is evaluated."""
    rounds: int
    lineage: Lineage
    looks: LookLog
    with_placebo: bool
    delivery: Delivery
    design: str
    """Digest of the test's design: tasks, models, repeats. With the skill it tells one look from another."""
    folder: Path
    out: Path
    """Where the skill is written: a folder for the skill's own folder."""
    replace: bool


class Generation:
    """A generation being carried out."""

    def __init__(
        self,
        job: Job,
        workshop: Workshop,
        spent: Callable[[], Mapping[str, Spent]],
        told: Callable[[str], None],
    ) -> None:
        """`told` hears a sentence at every stage."""
        self._job = job
        self._workshop = workshop
        self._spent = spent
        self._told = told
        self.record = GenerationRecord(
            created=f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}",
            description=job.order.description,
            source=job.source,
            teacher=job.teacher,
            students=job.students,
            target=job.order.target,
            metric=job.metric,
            families=_families(job.splits),
            lineage=job.lineage.id,
        )
        known = _known(job.folder)
        self._spent_before = {} if known is None else known.spent
        if known is not None:
            kept = {"written": known.written, "written_digest": known.written_digest}
            self.record = self.record.model_copy(update=kept)

    def write_only(self) -> GenerationRecord:
        """Write a skill that nothing was measured of."""
        job = self._job
        if job.old is None:
            version = self._workshop.first(job.order)
        else:
            version = self._workshop.rewrite(job.order, self._workshop.adopt(job.old))
        self._keep(candidates=(version.record(job.folder),), chosen=version.index, why="not evaluated")
        self._deliver(version.folder)
        return self.record

    def carry_out(self, evaluate: Evaluate, test: MeasureLift) -> GenerationRecord:
        """Search, write the best version, and test it."""
        job = self._job
        assert job.splits is not None
        families = {t.task.id: t.task.family for t in (*job.splits.development, *job.splits.selection)}
        found = search(
            job.order,
            self._workshop,
            evaluate,
            old=job.old,
            rounds=job.rounds,
            metric=job.metric,
            families=families,
            told=lambda version, what: self._told(f"version {version.index}: {what}"),
        )
        version, why = _choice(found, job.old is not None)
        self._keep(
            candidates=tuple(v.record(job.folder) for v in found.versions),
            without_skill=found.without_skill,
            chosen=version.index,
            why=why,
            stopped=found.stopped,
        )
        self._told(why)
        if job.old is not None and version.index == 0:
            return self.record  # nothing better to write, and nothing new to test
        look = look_at(job.looks, job.lineage, version.skill.digest, job.design, self.record.created)
        final = self._marked(version, look.number - (found.stopped is not None))  # then no look is made
        self._deliver(final)
        if found.stopped is not None:
            return self.record
        self._warn_of_few_families(look)
        job.looks.add(look)
        self._keep(look=look)
        old = None if job.old is None else found.versions[0].skill
        tested = LoadedSkill(read_skill(final), final)
        arms = make_arms([tested.skill], with_placebo=job.with_placebo, old=old, delivery=job.delivery)
        done = test(arms, look.alpha, tested)
        self._keep(test_run=done.folder, stopped=done.stopped, tested=done.lifts)
        return self.record

    def _warn_of_few_families(self, look: Look) -> None:
        """Told before the test is paid for; its rates and intervals are still worth something."""
        assert self._job.splits is not None
        there, needed = len(self._job.splits.families("test")), fewest_families(look.alpha)
        if there < needed:
            self._told(
                f"the test split has {there} families; at alpha {look.alpha:g} a decision takes {needed}: "
                "this test cannot end in `helps`"
            )

    # --- parts ---------------------------------------------------------------------------------

    def _marked(self, version: Version, looks: int) -> Path:
        """The version with the lineage's marks: what it was refined on, and the look that is to come."""
        job = self._job
        assert job.splits is not None
        seen = tuple(sorted({*job.lineage.seen, *job.splits.seen}))
        marks = replace(job.lineage, seen=seen, looks=looks).metadata
        place = job.folder / "final"
        if place.exists():
            shutil.rmtree(place)
        said = [line for line in self.record.shortfalls[:1] if version.index == self.record.chosen]
        marks |= dict.fromkeys([SHORT_KEY] if said else [], "".join(said))
        return derive(version.folder, place / version.folder.name, metadata_updates=marks)

    def _deliver(self, folder: Path) -> None:
        """Copy the skill to where the user wants it; what an earlier call wrote there is replaced."""
        target = self._job.out / folder.name
        there, same = target.exists(), _same(folder, target)
        if there and not (same or self._job.replace or wrote(self._job.folder, target)):
            raise UsageError(
                f"{target} is there already; the new skill lies in {folder}. Use --force, or another -o"
            )
        if not same:
            derive(folder, target, replace=there)
        self._keep(written=str(target), written_digest=read_skill(target).digest)

    def _keep(self, **facts: object) -> None:
        """Note what is known now, on disk too."""
        spent = dict(self._spent_before)
        for role, now in self._spent().items():
            spent[role] = spent.get(role, Spent()) + now
        self.record = self.record.model_copy(update={**facts, "spent": spent})
        write_atomically(self._job.folder / RECORD, self.record.model_dump_json(indent=1) + "\n")


def wrote(folder: Path, target: Path) -> bool:
    """Whether the generation in `folder` wrote the skill at `target`, and nobody has changed it since."""
    known = _known(folder)
    try:
        return (
            known is not None
            and known.written == str(target)
            and known.written_digest == read_skill(target).digest
        )
    except UsageError:
        return False


def _known(folder: Path) -> GenerationRecord | None:
    """What an earlier call has recorded; None where there was none, or its record is damaged."""
    try:
        return GenerationRecord.model_validate_json((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _same(one: Path, other: Path) -> bool:
    """Whether both hold the same skill, as after a generation that was resumed."""
    try:
        return read_skill(one).digest == read_skill(other).digest
    except UsageError:
        return False


def _families(splits: Splits | None) -> dict[str, tuple[str, ...]]:
    if splits is None:
        return {}
    return {
        "development": splits.families("development"),
        "selection": splits.families("selection"),
        "test": splits.families("test"),
    }


def _choice(found: Search, from_old: bool) -> tuple[Version, str]:
    """The version to keep, and why."""
    version, why = _best(found, from_old)
    return version, why if found.gave_up is None else f"{why}. No further one: {found.gave_up}"


def _best(found: Search, from_old: bool) -> tuple[Version, str]:
    best = found.best
    if best is None and from_old:
        return found.versions[0], f"{found.stopped or 'nothing was measured'}: the old skill stays"
    if best is None:
        last = found.versions[-1]
        return last, f"version {last.index} has no score: {found.stopped or 'nothing was measured'}"
    scored = sum(v.selection is not None for v in found.versions)
    if from_old and best.index == 0:
        return (
            best,
            f"none of {scored - 1} new versions did better on the selection split: the old skill stays",
        )
    return best, f"version {best.index} is the best of {scored} on the selection split"
