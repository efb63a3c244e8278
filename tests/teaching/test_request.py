"""What is refused before a generation begins, and the splits by family."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.suite.catalogue import select_tasks
from harness.teaching.request import SPLITS, GenerationRequest, split_tasks

SUITE = select_tasks([])
FAMILIES = sorted({t.task.family for t in SUITE})


def refuse(device_bytes: int | None, **wanted: object) -> None:
    request: Any = SimpleNamespace(**({"target": "cuda", "metric": "deployed", "students": ("m",)} | wanted))
    GenerationRequest.refuse_unmeasured(request, device_bytes)


def test_only_compiles_can_choose_a_version_where_kernels_are_only_built() -> None:
    """Only failed projects would have another score, so that the worst version would win."""
    for metric in ("deployed", "correct"):
        with pytest.raises(UsageError, match="--metric compiles"):
            refuse(None, metric=metric)
    refuse(80 << 30)
    refuse(None, target="cpu")
    refuse(None, metric="compiles")
    refuse(None, students=())


def test_the_shipped_suite_is_split_into_three() -> None:
    """Every task is in one split, no family in two, whatever the order of tasks; two families are too few."""
    splits = split_tasks(SUITE)
    parts = [splits.families(split) for split in SPLITS]
    assert sorted(family for part in parts for family in part) == FAMILIES
    assert [len(part) for part in parts] == [8, 7, 10]
    whole = [*splits.development, *splits.selection, *splits.test]
    assert sorted(t.task.id for t in whole) == sorted(t.task.id for t in SUITE)
    backwards = split_tasks(list(reversed(SUITE)))
    assert [backwards.families(split) for split in SPLITS] == parts
    for count in (0, 1, 2):
        with pytest.raises(UsageError, match="--no-eval"):
            split_tasks([t for t in SUITE if t.task.family in FAMILIES[:count]])


@given(st.sets(st.sampled_from(FAMILIES), min_size=3), st.sets(st.sampled_from(FAMILIES), max_size=15))
def test_no_family_that_was_seen_is_tested(present: set[str], seen: set[str]) -> None:
    """Whatever tasks there are: three disjoint splits, none empty, and a test split that is new."""
    tasks = [t for t in SUITE if t.task.family in present]
    if present <= seen:
        with pytest.raises(UsageError, match="not refined on"):
            split_tasks(tasks, seen)
        return
    splits = split_tasks(tasks, seen)
    parts = [set(splits.families(split)) for split in SPLITS]
    assert all(parts)
    assert set.union(*parts) == present
    assert sum(map(len, parts)) == len(present)
    assert not parts[2] & seen
    assert set(splits.seen) == parts[0] | parts[1]
