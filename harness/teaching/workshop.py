"""Versions of a skill, and the workshop in which a teacher writes them.

Every version is a valid skill whose code builds, unless it was taken over from the user.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.records import Message, Skill, TrialRecord
from harness.skills.findings import SkillFinding
from harness.skills.lineage import Lineage
from harness.skills.spec import FILE, read_skill
from harness.teaching.brief import Order, faulty_brief, first_brief, refining_brief
from harness.teaching.draft import Unusable, read_changes, write_new, write_next
from harness.teaching.record import CandidateRecord
from harness.teaching.teacher import Teacher
from harness.text import estimate_tokens

ATTEMPTS: Final = 3
"""Replies a teacher has for one version: the first, and two to mend its faults."""
_FAULTS_TOLD: Final = 20

Check = Callable[[Path], Sequence[SkillFinding]]
"""All findings on a skill folder; its code built for real."""


@dataclass(frozen=True)
class Evaluated:
    """Arms graded on a split."""

    trials: tuple[TrialRecord, ...]
    stopped: str | None
    """Why not all trials were done."""
    sources: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """Text of students' files by project digest and path."""


@dataclass(frozen=True)
class Version:
    """A version of the skill."""

    index: int
    parent: int | None
    folder: Path
    skill: Skill
    warnings: int
    development: Evaluated | None = None
    selection: float | None = None

    def record(self, root: Path) -> CandidateRecord:
        """As it stands in generation.json."""
        verdicts = None
        if self.development is not None:
            verdicts = dict(Counter(t.verdict.value for t in self.development.trials))
        return CandidateRecord(
            index=self.index,
            parent=self.parent,
            folder=self.folder.relative_to(root).as_posix(),
            digest=self.skill.digest,
            body_tokens_estimate=estimate_tokens(self.skill.body.strip()),
            warnings=self.warnings,
            development=verdicts,
            selection=self.selection,
        )


class NoSkill(UsageError):
    """The teacher has not written a usable skill; the message says what was wrong with the last reply."""


class Workshop:
    """Where versions are written: one folder for each."""

    def __init__(self, teacher: Teacher, check: Check, folder: Path, lineage: Lineage) -> None:
        self._teacher = teacher
        self._check = check
        self._folder = folder
        self._lineage = lineage
        self._count = 0

    def adopt(self, directory: Path) -> Version:
        """The skill that it starts from, as version 0: byte for byte, whatever is wrong with it."""
        skill = read_skill(directory)
        folder = self._place(self._next()) / skill.name
        shutil.copytree(directory, folder, symlinks=True)
        return Version(0, None, folder, read_skill(folder), 0)

    def first(self, order: Order) -> Version:
        """The first version of a new skill. Raises NoSkill, ProviderError, BudgetSpent."""
        return self._write(first_brief(order), None, order.name)

    def next(self, order: Order, parent: Version, told: str, rejected: int) -> Version:
        """A version after `parent`, from the evidence. Raises NoSkill, ProviderError, BudgetSpent."""
        current = tuple(sorted(parent.skill.documents.items(), key=lambda item: (item[0] != FILE, item)))
        brief = refining_brief(order, current, told, parent.index, rejected)
        return self._write(brief, parent, None)

    def rewrite(self, order: Order, parent: Version) -> Version:
        """A version after an old skill, without evidence."""
        return self._write(first_brief(order), parent, None)

    def _next(self) -> int:
        self._count += 1
        return self._count - 1

    def _place(self, index: int) -> Path:
        """An empty folder: a version is written anew from the kept replies when a generation is resumed."""
        place = self._folder / f"version-{index}"
        if place.exists():
            shutil.rmtree(place)
        place.mkdir(parents=True)
        return place

    def _write(self, brief: tuple[Message, ...], parent: Version | None, name: str | None) -> Version:
        index, base = self._next(), parent.folder if parent else None
        version = self._place(index)
        faults: tuple[str, ...] = ()
        for attempt in range(ATTEMPTS):
            reply = self._teacher.ask(brief)
            changes = read_changes(reply)
            if isinstance(changes, Unusable):
                faults = changes.faults
            else:
                place = version / f"attempt-{attempt}"
                place.mkdir()
                if base is None:
                    made = write_new(changes, place, self._lineage, name)
                else:
                    made = write_next(changes, base, place / base.name, self._lineage)
                if isinstance(made, Unusable):
                    faults = made.faults
                else:
                    findings = self._check(made)
                    errors = [str(one) for one in findings if one.severity == "error"]
                    if not errors:
                        warnings = sum(one.severity == "warning" for one in findings)
                        origin = parent.index if parent else None
                        return Version(index, origin, made, read_skill(made), warnings)
                    faults = tuple(errors[:_FAULTS_TOLD])
                    base = made
            brief = faulty_brief(brief, reply.text, faults)
        raise NoSkill(
            f"{self._teacher.name} wrote no usable skill in {ATTEMPTS} replies: {'; '.join(faults)}. "
            "Its replies are kept: word the order in another way, or take another teacher"
        )
