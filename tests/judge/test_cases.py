"""Which cases a check has."""

from __future__ import annotations

from collections import Counter

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge.check import PLANS, cases, hidden_workloads
from harness.judge.values import INTEGERS
from harness.records import Hidden
from harness.suite.catalogue import LoadedTask, all_tasks
from tests.fakes.overlays import throw_away_task


def test_old_tasks_keep_their_workloads() -> None:
    """A task that declares nothing has its workloads, and its own values rearranged."""
    found = cases(throw_away_task("scale"), "cpu")
    assert [c.label for c in found[:2]] == ["square float32", "odd float32"]
    assert [c.values for c in found[2:]] == ["sorted", "reversed", "ties"]
    assert not any(c.problem.hidden for c in found)


@pytest.mark.parametrize("loaded", all_tasks(), ids=lambda loaded: loaded.task.name)
def test_quick_is_small_and_full_is_all(loaded: LoadedTask) -> None:
    """`quick` tries each kind once, `full` on every workload that is small enough; hidden shapes in both."""
    task = loaded.task
    expected = [*task.values, *([INTEGERS] if task.exact else [])]
    quick = cases(loaded, "cuda")
    assert Counter(c.values for c in quick if c.values != "task") == Counter(expected)
    assert sum(c.problem.hidden for c in quick) == 2
    full = cases(loaded, "cuda", "full")
    kinds = Counter(c.values for c in full if c.values != "task")
    assert set(kinds) == set(expected)
    assert min(kinds.values()) >= len(task.dtypes["cuda"])
    assert sum(c.problem.hidden for c in full) == PLANS["full"].hidden * len(task.dtypes["cuda"])
    assert len({c.label for c in full}) == len(full)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(0, 5), st.integers(5, 400), st.integers(1, 7)),
    st.tuples(st.integers(1, 3), st.integers(3, 400)),
)
def test_hidden_shapes_keep_to_their_ranges(rows: tuple[int, int, int], cols: tuple[int, int]) -> None:
    """Every drawn size lies within its range, on its step."""
    loaded = throw_away_task("scale")
    hidden = Hidden(dims={"rows": rows, "cols": cols})
    ranged = LoadedTask(loaded.task.model_copy(update={"hidden": hidden}), loaded.directory)
    for workload in hidden_workloads(ranged, "cpu", 6, 1 << 30):
        low, high, step = rows
        assert low <= workload.dims["rows"] <= high and (workload.dims["rows"] - low) % step == 0
        assert cols[0] <= workload.dims["cols"] <= cols[1]
        assert workload.scalars in [w.scalars for w in loaded.task.workloads]


def test_hidden_shapes_are_not_known_beforehand() -> None:
    """Two checks draw different shapes."""
    loaded = throw_away_task("scale_hidden")
    drawn = {
        tuple(sorted(w.dims.items())) for _ in range(20) for w in hidden_workloads(loaded, "cpu", 2, 1 << 20)
    }
    assert len(drawn) > 20


def test_hidden_shapes_differ_from_even_ones() -> None:
    """The first drawn shape is an awkward one: odd, prime, 1, or a power of two give or take one."""
    powers = {2**k + d for k in range(12) for d in (-1, 1)}
    for _ in range(30):
        dims = hidden_workloads(throw_away_task("scale_hidden"), "cpu", 1, 1 << 20)[0].dims
        assert any(n % 2 == 1 or n == 2 or n in powers for n in dims.values())
