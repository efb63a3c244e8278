"""Splits by family: what the teacher sees never is what is reported."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.suite.catalogue import LoadedTask, select_tasks
from harness.teaching.splits import split_tasks

SUITE = select_tasks([])
FAMILIES = sorted({t.task.family for t in SUITE})


def test_the_shipped_suite_is_split_into_three() -> None:
    """Every task is in one split, no family in two, and the test split can carry a decision."""
    splits = split_tasks(SUITE)
    parts = [splits.families("development"), splits.families("selection"), splits.families("test")]
    assert sorted(family for part in parts for family in part) == FAMILIES
    assert [len(part) for part in parts] == [8, 7, 10]
    whole = [*splits.development, *splits.selection, *splits.test]
    assert sorted(t.task.id for t in whole) == sorted(t.task.id for t in SUITE)


@given(st.sets(st.sampled_from(FAMILIES), min_size=3), st.sets(st.sampled_from(FAMILIES), max_size=15))
def test_no_family_that_was_seen_is_tested(present: set[str], seen: set[str]) -> None:
    """Whatever tasks there are: three disjoint splits, none empty, and a test split that is new."""
    tasks = [t for t in SUITE if t.task.family in present]
    if present <= seen:
        with pytest.raises(UsageError, match="not refined on"):
            split_tasks(tasks, seen)
        return
    splits = split_tasks(tasks, seen)
    parts = [set(splits.families(name)) for name in ("development", "selection", "test")]  # type: ignore[arg-type]
    assert all(parts)
    assert set.union(*parts) == present
    assert sum(map(len, parts)) == len(present)
    assert not parts[2] & seen
    assert set(splits.seen) == parts[0] | parts[1]


def test_a_split_does_not_depend_on_the_order_of_tasks() -> None:
    """The same families give the same splits."""
    first, second = split_tasks(SUITE), split_tasks(list(reversed(SUITE)))
    assert first.families("test") == second.families("test")
    assert first.families("selection") == second.families("selection")


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_families_are_refused_with_a_way_out(count: int) -> None:
    """Two families cannot make three splits."""
    tasks: list[LoadedTask] = [t for t in SUITE if t.task.family in FAMILIES[:count]]
    with pytest.raises(UsageError, match="--no-eval"):
        split_tasks(tasks)
