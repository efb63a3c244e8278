"""A teacher and graders that are made up, for tests of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.models import Model
from harness.outcome import Cause
from harness.records import Reply, Request, Sampling, TrialRecord
from harness.skills.lineage import Lineage
from harness.skills.spec import SkillFinding
from harness.study.study import Arms
from harness.teaching.brief import Order
from harness.teaching.request import Split
from harness.teaching.workshop import Evaluated, Teacher, Workshop
from tests.report import factories

ORDER = Order(
    description="Write fast row kernels",
    target="cpu",
    briefing="contract",
    name=None,
    examples=(),
    trace=None,
    old=(),
    sample="# Task: double\n\n```python\ndouble(out, x)\n```",
)
FAMILIES = {"l1/d0": "dev0", "l1/s0": "sel0", "l1/s1": "sel1"}
TASKS: dict[Split, tuple[str, ...]] = {"development": ("l1/d0",), "selection": ("l1/s0", "l1/s1"), "test": ()}


def skill_text(words: str, name: str = "rows") -> str:
    """SKILL.md with this body."""
    return f"---\nname: {name}\ndescription: About rows.\n---\n\n{words}\n"


def given(text: str, path: str = "SKILL.md") -> str:
    """A teacher's reply with one file."""
    return f'<file path="{path}">\n{text}</file>\n'


@dataclass
class FakeTeacher:
    """Answers from a list, and remembers what it was asked."""

    replies: Sequence[str | Exception]
    asked: list[Request] = field(default_factory=list)
    name: str = "fake/teacher"

    def complete(self, request: Request) -> Reply:
        answer = self.replies[len(self.asked)]
        self.asked.append(request)
        if isinstance(answer, Exception):
            raise answer
        return Reply(text=answer, stop="end", model_label="t", created="2026-01-01T00:00:00Z")


def worths(*values: int) -> FakeTeacher:
    """A teacher whose versions make so many of ten trials correct."""
    return FakeTeacher([given(skill_text(f"worth {value}")) for value in values])


@dataclass
class FakeGrading:
    """A skill is worth what the digits in its body say: that share of the trials is correct, of ten."""

    seen: list[tuple[Split, tuple[str, ...]]] = field(default_factory=list)
    stop_after: int | None = None
    """So many evaluations are done whole; later ones are stopped by a budget."""

    def __call__(self, split: Split, arms: Arms) -> Evaluated:
        self.seen.append((split, arms.named))
        if self.stop_after is not None and len(self.seen) > self.stop_after:
            return Evaluated((), "cost budget: $1.00 of $1.00 used")
        body = next(iter(arms.library.values())).body if arms.library else "worth 1"
        worth = int("".join(c for c in body if c.isdigit()))
        trials: list[TrialRecord] = []
        for task in TASKS[split]:
            for repeat in range(10):
                cause = Cause.PASSED if repeat < worth else Cause.COMPILE_ERROR
                message = "passed" if repeat < worth else factories.NVCC
                trials.append(factories.trial(task, arms.arms[-1], cause, message, repeat=repeat))
        return Evaluated(tuple(trials), None)


def workshop(
    tmp_path: Path,
    teacher: Model,
    check: Callable[[Path], Sequence[SkillFinding]] = lambda directory: (),
    seen: tuple[str, ...] = (),
) -> Workshop:
    """In folders below tmp_path; every skill is well."""
    asked = Teacher(teacher, Sampling(), tmp_path / "teacher")
    return Workshop(asked, check, tmp_path / "versions", Lineage("abc", seen, 0))
