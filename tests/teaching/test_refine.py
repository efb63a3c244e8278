"""The loop: the best on selection is kept, whatever came last."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BudgetSpent, ProviderError
from harness.skills.findings import SkillFinding, error
from harness.teaching.refine import Search, search
from harness.teaching.workshop import NoSkill
from tests.fakes.teaching import (
    FAMILIES,
    ORDER,
    FakeGrading,
    FakeTeacher,
    given,
    skill_text,
    workshop,
)


def look_for(
    tmp_path: Path, teacher: FakeTeacher, grading: FakeGrading, rounds: int, old: Path | None = None
) -> Search:
    return search(
        ORDER,
        workshop(tmp_path, teacher),
        grading,
        old=old,
        rounds=rounds,
        metric="correct",
        families=FAMILIES,
    )


def worths(*values: int) -> FakeTeacher:
    """A teacher whose versions are worth so many of ten."""
    return FakeTeacher([given(skill_text(f"worth {value}")) for value in values])


def test_the_best_version_is_kept_not_the_last(tmp_path: Path) -> None:
    """Of versions worth 3, 8, 5 and 2 the second is the best; later ones are made from it."""
    found = look_for(tmp_path, worths(3, 8, 5, 2), FakeGrading(), 3)
    assert [v.selection for v in found.versions] == [0.3, 0.8, 0.5, 0.2]
    assert found.best is not None
    assert found.best.index == 1
    assert [v.parent for v in found.versions] == [None, 0, 1, 1]
    assert found.without_skill == 0.1
    assert found.stopped is None


def test_of_equals_the_earliest_is_kept(tmp_path: Path) -> None:
    """A later version must be better to replace an earlier one."""
    found = look_for(tmp_path, worths(4, 4, 4), FakeGrading(), 2)
    assert found.best is not None
    assert found.best.index == 0


def test_a_skill_worth_nothing_is_no_plateau(tmp_path: Path) -> None:
    """Zero at the first try is refined like anything else."""
    found = look_for(tmp_path, worths(0, 0, 6), FakeGrading(), 2)
    assert found.best is not None
    assert found.best.index == 2


def test_a_teacher_sees_development_failures_and_nothing_of_selection(tmp_path: Path) -> None:
    """The brief of a next version names compiler errors by count, and no task of the other splits."""
    teacher = worths(3, 8)
    grading = FakeGrading()
    look_for(tmp_path, teacher, grading, 1)
    told = teacher.asked[1].messages[-1].content
    assert "compile_error" in told
    assert "7 with the skill, 9 without" in told
    assert "__nv_bfloat162" in told
    assert "l1/d0" in told
    assert "l1/s" not in told
    assert "worth 3" in told
    assert {split for split, _ in grading.seen} == {"development", "selection"}


def test_versions_that_were_no_better_change_the_brief(tmp_path: Path) -> None:
    """Asked again from the same version, a teacher hears that its last way was none."""
    teacher = worths(5, 2, 2)
    look_for(tmp_path, teacher, FakeGrading(), 2)
    first, second = (asked.messages[-1].content for asked in teacher.asked[1:])
    assert "go another way" not in first
    assert "1 version was made from this one" in second


def test_an_old_skill_is_version_zero_and_may_stay_the_best(tmp_path: Path) -> None:
    """An improvement that is none is found out; the first brief has the old skill's failures."""
    old = tmp_path / "rows"
    old.mkdir()
    (old / "SKILL.md").write_text(skill_text("worth 7"))
    teacher = worths(4, 6)
    found = look_for(tmp_path, teacher, FakeGrading(), 2, old)
    assert [v.selection for v in found.versions] == [0.7, 0.4, 0.6]
    assert found.best is not None
    assert found.best.index == 0
    assert "3 with the skill" in teacher.asked[0].messages[-1].content
    assert (old / "SKILL.md").read_text() == skill_text("worth 7")


def test_a_spent_budget_keeps_what_was_scored(tmp_path: Path) -> None:
    """A version that was not graded to the end has no score and cannot win."""
    found = look_for(tmp_path, worths(3, 9), FakeGrading(stop_after=4), 1)
    assert found.stopped == "cost budget: $1.00 of $1.00 used"
    assert [v.selection for v in found.versions] == [0.3, None]
    assert found.best is not None
    assert found.best.index == 0


def test_a_teacher_whose_budget_is_spent_ends_the_loop(tmp_path: Path) -> None:
    """Whatever was written before stays."""
    teacher = FakeTeacher([given(skill_text("worth 3")), BudgetSpent("call budget: 9 of 9 calls used")])
    found = look_for(tmp_path, teacher, FakeGrading(), 3)
    assert found.stopped == "call budget: 9 of 9 calls used"
    assert len(found.versions) == 1


def test_a_provider_that_fails_is_not_hidden(tmp_path: Path) -> None:
    """An outage is an error; what was paid for is on disk for the next try."""
    teacher = FakeTeacher([given(skill_text("worth 3")), ProviderError("down")])
    with pytest.raises(ProviderError):
        look_for(tmp_path, teacher, FakeGrading(), 3)
    again = FakeTeacher([given(skill_text("worth 9"))])
    found = look_for(tmp_path, again, FakeGrading(), 1)
    assert [v.selection for v in found.versions] == [0.3, 0.9]


def test_faults_go_back_to_the_teacher_until_the_code_builds(tmp_path: Path) -> None:
    """What the check finds is told with its place, and the mended version builds on the faulty one."""

    def check(directory: Path) -> list[SkillFinding]:
        text = (directory / "SKILL.md").read_text()
        return [error("SKILL.md", 6, "this code does not compile")] if "bad" in text else []

    teacher = FakeTeacher(
        [
            "no files at all",
            given(skill_text("bad 5")) + given("kept\n", "references/a.md"),
            given(skill_text("good 5 [a](references/a.md)")),
        ]
    )
    made = workshop(tmp_path, teacher, check).first(ORDER)
    assert "good 5" in made.skill.body
    assert (made.folder / "references/a.md").read_text() == "kept\n"
    assert "no file was given" in teacher.asked[1].messages[-1].content
    assert "SKILL.md:6: error: this code does not compile" in teacher.asked[2].messages[-1].content


def test_a_teacher_that_never_writes_a_skill_is_an_error(tmp_path: Path) -> None:
    """Three replies, then the reason."""
    teacher = FakeTeacher(["no"] * 3)
    with pytest.raises(NoSkill, match="3 replies"):
        look_for(tmp_path, teacher, FakeGrading(), 0)
    assert len(teacher.asked) == 3


def test_a_refinement_that_fails_keeps_what_is_there(tmp_path: Path) -> None:
    """With one good version, a teacher that then writes nonsense only ends the loop, which can be tested."""
    teacher = FakeTeacher([given(skill_text("worth 3")), "no", "no", "no"])
    found = look_for(tmp_path, teacher, FakeGrading(), 2)
    assert len(found.versions) == 1
    assert found.stopped is None
    assert found.gave_up is not None
    assert "wrote no usable skill" in found.gave_up
