"""The search: the best version on selection is kept, whatever came last."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import BudgetSpent, ProviderError
from harness.teaching.search import Search
from harness.teaching.workshop import NoSkill
from tests.fakes.teaching import (
    FAMILIES,
    ORDER,
    FakeGrading,
    FakeTeacher,
    given,
    skill_text,
    workshop,
    worths,
)


def search(
    tmp_path: Path, teacher: FakeTeacher, grading: FakeGrading, rounds: int, old: Path | None = None
) -> Search:
    made = Search(workshop(tmp_path, teacher), grading, "correct", FAMILIES)
    return made.run(ORDER, old=old, rounds=rounds)


@pytest.mark.parametrize(
    ("values", "best", "parents"),
    [
        ((3, 8, 5, 2), 1, [None, 0, 1, 1]),
        ((4, 4, 4), 0, [None, 0, 0]),  # of equals the earliest
        ((0, 0, 6), 2, [None, 0, 0]),  # zero at the first try is refined like anything else
    ],
)
def test_the_best_version_is_kept_not_the_last(
    tmp_path: Path, values: tuple[int, ...], best: int, parents: list[int | None]
) -> None:
    """Later versions are made from the best so far, and must be better to replace it."""
    found = search(tmp_path, worths(*values), FakeGrading(), len(values) - 1)
    assert [v.selection for v in found.versions] == [value / 10 for value in values]
    assert found.best is not None and found.best.index == best
    assert [v.parent for v in found.versions] == parents
    assert (found.without_skill, found.stopped) == (0.1, None)


def test_a_teacher_sees_development_failures_and_nothing_of_selection(tmp_path: Path) -> None:
    """Compiler errors by count, no task of the other splits, and whether the last attempt helped."""
    teacher, grading = worths(3, 2, 2), FakeGrading()
    search(tmp_path, teacher, grading, 2)
    told, again = (asked.messages[-1].content for asked in teacher.asked[1:])
    assert "go another way" not in told and "1 version was made from this one" in again
    for words in ("compile_error", "7 with the skill, 9 without", "__nv_bfloat162", "l1/d0", "worth 3"):
        assert words in told
    assert "l1/s" not in told
    assert {split for split, _ in grading.seen} == {"development", "selection"}


def test_a_spent_budget_keeps_what_was_scored(tmp_path: Path) -> None:
    """A version with missing trials has no score and cannot win; a teacher without budget ends the loop."""
    found = search(tmp_path / "a", worths(3, 9), FakeGrading(stop_after=4), 1)
    assert found.stopped == "cost budget: $1.00 of $1.00 used"
    assert [v.selection for v in found.versions] == [0.3, None]
    assert found.best is not None and found.best.index == 0
    teacher = FakeTeacher([given(skill_text("worth 3")), BudgetSpent("call budget: 9 of 9 calls used")])
    found = search(tmp_path / "b", teacher, FakeGrading(), 3)
    assert found.stopped == "call budget: 9 of 9 calls used"
    assert len(found.versions) == 1


def test_a_provider_that_fails_is_not_hidden(tmp_path: Path) -> None:
    """An outage is an error; the replies that were paid for are used by the next call."""
    teacher = FakeTeacher([given(skill_text("worth 3")), ProviderError("down")])
    with pytest.raises(ProviderError):
        search(tmp_path, teacher, FakeGrading(), 3)
    found = search(tmp_path, FakeTeacher([given(skill_text("worth 9"))]), FakeGrading(), 1)
    assert [v.selection for v in found.versions] == [0.3, 0.9]


def test_a_teacher_that_never_writes_a_skill_is_an_error(tmp_path: Path) -> None:
    """After three replies; with one good version before, the search only ends."""
    teacher = FakeTeacher(["no"] * 3)
    with pytest.raises(NoSkill, match="3 replies"):
        search(tmp_path / "a", teacher, FakeGrading(), 0)
    assert len(teacher.asked) == 3
    teacher = FakeTeacher([given(skill_text("worth 3")), "no", "no", "no"])
    found = search(tmp_path / "b", teacher, FakeGrading(), 2)
    assert (len(found.versions), found.stopped) == (1, None)
    assert found.gave_up is not None and "wrote no usable skill" in found.gave_up
