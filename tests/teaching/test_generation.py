"""A generation from request to test: what is written, what is looked at, what is on record."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.errors import BudgetSpent, ProviderError, UsageError
from harness.models.meter import Meter
from harness.records import ModelSpec, Sampling
from harness.skills.lineage import LookLog, lineage_of
from harness.skills.spec import LoadedSkill, read_skill, validate_skill
from harness.study.study import Arms
from harness.suite.catalogue import select_tasks
from harness.teaching.generation import Generation, Measured
from harness.teaching.record import GenerationRecord, MeasuredLift
from harness.teaching.request import GenerationRequest, Split, Splits
from harness.teaching.workshop import Evaluated
from tests.fakes.teaching import ORDER, FakeGrading, FakeTeacher, given, skill_text, workshop, worths


def splits() -> Splits:
    tasks = {t.task.family: t for t in select_tasks([])}
    first, second, third = [tasks[family] for family in sorted(tasks)[:3]]
    return Splits((first,), (second,), (third,))


@dataclass
class Probe:
    """A test split that remembers what it was asked."""

    stopped: str | None = None
    lifts: tuple[MeasuredLift, ...] = ()
    runs: list[tuple[Arms, float]] = field(default_factory=list)

    def __call__(self, arms: Arms, alpha: float, skill: LoadedSkill) -> Measured:
        self.runs.append((arms, alpha))
        return Measured("runs/test", self.stopped, self.lifts)


class OnSplits(FakeGrading):
    """Grades as FakeGrading does, on the tasks of `splits`."""

    def __call__(self, split: Split, arms: Arms) -> Evaluated:
        done = super().__call__(split, arms)
        task = splits().tasks(split)[0].task.id
        moved = [t.model_copy(update={"key": t.key.model_copy(update={"task": task})}) for t in done.trials]
        return Evaluated(tuple(moved), done.stopped)


def make(
    tmp_path: Path,
    teacher: FakeTeacher,
    rounds: int = 1,
    old: Path | None = None,
    *,
    name: str = "generation",
    out: str = "skills",
    said: list[str] | None = None,
    **changes: Any,
) -> Generation:
    """A generation with these changes to its request."""
    meter = Meter()
    metered = meter.wrap(teacher, "teacher")
    values: dict[str, Any] = {
        "description": ORDER.description,
        "source": old,
        "tasks": (),
        "teacher": metered,
        "students": (ModelSpec(name="fake/student"),),
        "models": {},
        "meter": meter,
        "metric": "correct",
        "target": "cpu",
        "protocol": "quick",
        "sampling": Sampling(),
        "briefing": "contract",
        "rounds": rounds,
        "repeats": 5,
        "with_placebo": True,
    }
    request = GenerationRequest(**(values | changes))
    made = splits() if request.students else None
    folder, looks = tmp_path / name, LookLog(tmp_path / "looks.jsonl")
    writes = workshop(folder, metered, seen=() if made is None else made.seen)
    say = (said if said is not None else []).append
    return Generation(request, ORDER, made, folder, tmp_path / out, writes, looks, say)


def old_skill(tmp_path: Path, words: str) -> Path:
    """A skill to start from."""
    old = tmp_path / "rows"
    old.mkdir()
    (old / "SKILL.md").write_text(skill_text(words))
    return old


def carry_out(generation: Generation, tested: Probe | None = None) -> GenerationRecord:
    return generation.search_and_test(OnSplits(), tested or Probe())


def interrupted() -> FakeTeacher:
    """A teacher whose budget is spent after one version."""
    return FakeTeacher([given(skill_text("worth 3")), BudgetSpent("call budget: 1 of 1 calls used")])


def test_the_best_version_is_written_marked_and_tested_once(tmp_path: Path) -> None:
    """Two versions, the first better: it is written, with its marks, and tested at half of 5%."""
    tested, said = Probe(), list[str]()
    record = carry_out(make(tmp_path, worths(8, 3), said=said), tested)
    written = tmp_path / "skills" / "rows"
    assert (record.chosen, record.written) == (0, str(written))
    assert "worth 8" in read_skill(written).body
    assert [f for f in validate_skill(written) if f.severity == "error"] == []
    [(arms, alpha)] = tested.runs
    assert alpha == 0.025
    assert [arm.kind for arm in arms.arms] == ["without_skill", "with_skill", "placebo"]
    assert read_skill(written).digest in arms.library
    marks = lineage_of(written)
    assert marks is not None and (marks.seen, marks.looks) == (splits().seen, 1)
    kept = GenerationRecord.model_validate_json((tmp_path / "generation" / "generation.json").read_text())
    assert kept == record
    assert kept.spent["teacher"].calls == 2
    assert [c.selection for c in kept.candidates] == [0.8, 0.3]
    assert any("at alpha 0.025 a decision takes 7" in line for line in said)  # one family decides nothing


@pytest.mark.slow
def test_the_same_generation_again_is_the_same_look_and_another_is_the_next(tmp_path: Path) -> None:
    """Resuming costs nothing; a later version of the same lineage is tested at a quarter of 5%."""
    tested = Probe()
    for _ in range(2):
        carry_out(make(tmp_path, worths(8, 3)), tested)
    assert [alpha for _, alpha in tested.runs] == [0.025, 0.025]
    record = carry_out(make(tmp_path, worths(9), 0, name="second", out="elsewhere", repeats=6), tested)
    assert tested.runs[-1][1] == 0.0125
    assert record.look is not None and record.look.number == 2


def test_an_old_skill_is_the_opponent_of_its_successor(tmp_path: Path) -> None:
    """The test has the old version as an arm, and the new one keeps what was not changed."""
    old = old_skill(tmp_path, "worth 2")
    (old / "assets").mkdir()
    (old / "assets" / "data.bin").write_bytes(b"\x00\xff")
    tested = Probe()
    assert carry_out(make(tmp_path, worths(6), 1, old), tested).chosen == 1
    [(arms, _)] = tested.runs
    assert [arm.kind for arm in arms.arms] == ["without_skill", "old_skill", "with_skill", "placebo"]
    assert (tmp_path / "skills/rows/assets/data.bin").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("stop_after", [None, 0])
def test_where_nothing_is_better_nothing_is_written_or_looked_at(
    tmp_path: Path, stop_after: int | None
) -> None:
    """The old skill stays, also where a budget ends before any score; the test split is not touched."""
    tested = Probe()
    generation = make(tmp_path, worths(6), 1, old_skill(tmp_path, "worth 9"))
    record = generation.search_and_test(OnSplits(stop_after=stop_after), tested)
    assert (record.chosen, record.written) == (0, None)
    assert "the old skill stays" in record.why
    assert tested.runs == []
    assert not (tmp_path / "looks.jsonl").exists()


def test_a_skill_that_did_not_beat_no_skill_says_so_in_record_and_metadata(tmp_path: Path) -> None:
    """With the figures of both splits; students do not see the mark in its metadata."""
    lift = MeasuredLift(model="m/s", without_skill=0.5, with_skill=0.4, decision="inconclusive")
    record = carry_out(make(tmp_path, worths(1), 0), Probe(lifts=(lift,)))
    assert record.without_skill == 0.1
    assert record.shortfalls == (
        "on the selection split the best version did not beat no skill: correct 10% with it, 10% without",
        "on the test split it did not beat no skill (m/s, inconclusive): correct 40% with it, 50% without",
    )
    text = (tmp_path / "skills" / "rows" / "SKILL.md").read_text()
    assert "liftbench-not-better:" in text
    assert "did not beat no skill: correct 10% with it, 10% without" in text
    assert "not-better" not in read_skill(tmp_path / "skills" / "rows").documents["SKILL.md"]
    # Better on selection: no mark; better on the test without a decision is said in the record alone.
    lift = MeasuredLift(model="m/b", without_skill=0.5, with_skill=0.9, decision="inconclusive")
    record = carry_out(make(tmp_path, worths(8), 0, name="second", out="ahead"), Probe(lifts=(lift,)))
    assert record.shortfalls == (
        "the test did not show that it beats no skill (m/b, inconclusive): correct 90% with it, 50% without",
    )
    assert "not-better" not in (tmp_path / "ahead" / "rows" / "SKILL.md").read_text()


def test_without_evaluation_a_skill_is_written_and_nothing_claimed(tmp_path: Path) -> None:
    """--no-eval: one version, no score, no look. A skill that exists is replaced only with --force."""
    target = tmp_path / "skills" / "rows"
    target.mkdir(parents=True)
    (target / "SKILL.md").write_text(skill_text("mine"))
    with pytest.raises(UsageError, match="--force"):
        make(tmp_path, worths(5), students=()).write_only()
    assert (target / "SKILL.md").read_text() == skill_text("mine")
    record = json.loads((tmp_path / "generation" / "generation.json").read_text())
    assert record["written"] is None
    done = make(tmp_path, worths(5), students=(), replace=True).write_only()
    assert (done.why, done.candidates[0].selection, done.look) == ("not evaluated", None, None)
    assert "worth 5" in (target / "SKILL.md").read_text()


def test_test_cases_are_an_addition_and_their_failure_none_of_the_skill(tmp_path: Path) -> None:
    """A provider that fails then, or cases that prove nothing: the skill is written without them."""
    said: list[str] = []
    broken = FakeTeacher([given(skill_text("worth 5")), ProviderError("the server is down")])
    done = make(tmp_path, broken, students=(), cases=2, said=said).write_only()
    assert (done.test_cases, done.written) == (None, str(tmp_path / "skills" / "rows"))
    assert "no test cases were written: the server is down" in said
    entry = {"id": 1, "prompt": "Say a.", "assertions": [{"type": "contains", "values": ["a"]}]}
    vain = given(json.dumps({"evals": [entry]}) + "\n", "evals/evals.json")
    useless = FakeTeacher([given(skill_text("worth 6")), *[vain] * 3])
    done = make(tmp_path, useless, students=(), cases=2, name="other", replace=True, said=said).write_only()
    assert done.test_cases == 0 and "test cases: 0 written, 1 refused" in said
    assert not (tmp_path / "skills" / "rows" / "evals").exists()


def test_a_teacher_that_gives_up_does_not_prevent_the_test(tmp_path: Path) -> None:
    """Asking again would give the same kept replies, so the best version is tested; the test may stop too."""
    tested = Probe(stopped="time budget")
    record = carry_out(make(tmp_path, FakeTeacher([given(skill_text("worth 8")), "no", "no", "no"])), tested)
    assert len(tested.runs) == 1
    assert "wrote no usable skill" in record.why
    assert (record.test_run, record.stopped) == ("runs/test", "time budget")


def test_a_generation_that_was_stopped_costs_no_look_and_goes_on(tmp_path: Path) -> None:
    """The skill written meanwhile has no look and is replaced without --force; all calls are counted."""
    tested = Probe()
    assert carry_out(make(tmp_path, interrupted()), tested).stopped is not None
    assert tested.runs == []
    marks = lineage_of(tmp_path / "skills/rows")
    assert marks is not None and marks.looks == 0
    record = carry_out(make(tmp_path, worths(9)), tested)
    assert "worth 9" in read_skill(tmp_path / "skills/rows").body
    assert [alpha for _, alpha in tested.runs] == [0.025]
    assert record.spent["teacher"].calls == 3


def test_a_skill_that_the_user_edited_is_not_replaced(tmp_path: Path) -> None:
    """Although the generation wrote it."""
    carry_out(make(tmp_path, interrupted()))
    written = tmp_path / "skills" / "rows" / "SKILL.md"
    written.write_text(written.read_text() + "Mine.\n")
    with pytest.raises(UsageError, match="--force"):
        carry_out(make(tmp_path, worths(9)))
    assert written.read_text().endswith("Mine.\n")
