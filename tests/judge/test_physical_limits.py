"""What a board can do at most: the table, the speed of light, the floor, flags and the finding."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.check import problems
from harness.judge.physical_limits import (
    ABOVE,
    BOARDS,
    SUSPICIOUS,
    Board,
    Work,
    board_of,
    floor_us,
    impossible,
    judge_physics,
    speed_of_light,
    work_of,
)
from harness.outcome import Cause
from harness.records.timing import PhysicalLimit
from harness.suite.catalogue import select_tasks
from tests.fakes.overlays import throw_away_task

H200: Final = BOARDS["NVIDIA H200"]
DTYPES: Final = ("float64", "float32", "tf32", "bfloat16", "float8_e4m3fn", "int64")
boards = st.sampled_from(list(BOARDS.values()))
sizes = st.integers(0, 1 << 40)
times = st.floats(1e-2, 1e7)


@st.composite
def works(draw: st.DrawFn) -> Work:
    unique = draw(sizes)
    flops = draw(st.none() | st.integers(0, 10**15))
    return Work(draw(st.sampled_from(DTYPES)), flops, unique, draw(st.integers(0, unique)))


@given(work=works(), board=boards)
def test_floor_is_never_above_the_speed_of_light(work: Work, board: Board) -> None:
    """What condemns leaves out everything that an honest kernel might avoid."""
    assert floor_us(work, board) <= max(speed_of_light(work, board).values()) * (1 + 1e-12)


@given(work=works(), board=boards, time_us=times, reference_us=times)
def test_limit_fraction_and_flags_agree(
    work: Work, board: Board, time_us: float, reference_us: float
) -> None:
    """The fraction is above 1 exactly where the flag says so, and an impossible figure is above the limit."""
    limit = judge_physics(time_us, reference_us, work, board)
    if limit is None:
        assert max(speed_of_light(work, board).values()) == 0
        return
    assert (limit.fraction > 1) == (ABOVE in limit.flags) or limit.fraction == pytest.approx(1)
    assert (SUSPICIOUS in limit.flags) == (reference_us / time_us > 10)
    assert not limit.impossible or ABOVE in limit.flags
    assert limit.score is None or 0 <= limit.score <= 1


@pytest.mark.parametrize(
    ("name", "device", "board"),
    [
        ("NVIDIA H200", "GPU-1", "H200 SXM"),
        (" NVIDIA H100 80GB HBM3\n", "GPU-1", "H100 SXM"),
        ("NVIDIA H200 NVL", "GPU-1", None),
        ("NVIDIA H200", "MIG-1", None),
        (None, None, None),
    ],
)
def test_only_whole_boards_of_the_table_have_a_limit(
    name: str | None, device: str | None, board: str | None
) -> None:
    """A sibling of a known board, a part of one and no GPU give no limit: it is not guessed."""
    found = board_of(name, device)
    assert (None if found is None else found.name) == board
    assert judge_physics(1.0, 1.0, Work("float32", 10**9, 10**9, 10**9), None) is None


def test_memory_bound_limit_by_hand() -> None:
    """4.8 GB at 4,800 GB/s take 1 ms; of 2.4 GB of reads all but the L2's 60 MiB are unavoidable."""
    work = Work("bfloat16", None, 4_800_000_000, 2_400_000_000)
    limit = judge_physics(1250.0, 2000.0, work, H200)
    assert limit is not None
    assert limit.bound_by == "memory"
    assert (limit.limit_us, limit.fraction) == (pytest.approx(1000), pytest.approx(0.8))
    assert limit.floor_us == pytest.approx((2_400_000_000 - (60 << 20)) / 4.8e6)
    assert limit.score == pytest.approx(0.8)
    assert limit.flags == ()


def test_compute_floor_knows_boost_and_tensor_cores() -> None:
    """Clocks may boost to 1,980 MHz; fp32 may be emulated on tensor cores, but T_sol is fp32's own."""
    half = Work("float16", 989_500_000_000_000, 0, 0)
    assert max(speed_of_light(half, H200).values()) == pytest.approx(1e6)
    assert floor_us(half, H200) == pytest.approx(1e6 * 1830 / 1980)
    single = Work("float32", 67_000_000_000_000, 0, 0)
    assert max(speed_of_light(single, H200).values()) == pytest.approx(1e6)
    assert floor_us(single, H200) == pytest.approx(1e6 * 67 / 494.7 * 1830 / 1980)


def _seen(*times_us: float) -> list[PhysicalLimit]:
    work = Work("bfloat16", None, 4_800_000_000, 2_400_000_000)  # floor 486.9 us
    found = [judge_physics(t, 2000.0, work, H200) for t in times_us]
    return [one for one in found if one is not None]


def test_impossible_figures_are_a_cheat_only_in_three_of_three() -> None:
    """Below the floor in every one of at least 3 fresh processes; one that is not, or too few, is none."""
    finding = impossible("big bfloat16", _seen(100.0, 120.0, 90.0))
    assert finding is not None
    assert finding.cause is Cause.PHYSICS
    assert "90.00 us" in finding.message
    assert "486.89" in finding.message
    assert impossible("big bfloat16", _seen(100.0, 120.0)) is None
    assert impossible("big bfloat16", _seen(100.0, 600.0, 90.0)) is None
    assert impossible("big bfloat16", []) is None


@pytest.mark.parametrize(
    ("task", "fastest"),
    [
        ("l1/gemm_fp8", "float8_e4m3fn"),
        ("l1/quantize_fp8", None),  # float8 is only written: that is no arithmetic
        ("l1/softmax", None),
    ],
)
def test_the_fastest_operand_decides_what_is_impossible(task: str, fastest: str | None) -> None:
    """Products of float8 operands run at the float8 peak though bfloat16 is written: 60 % of that peak, more
    than bfloat16 allows, is no cheat."""
    (loaded,) = select_tasks([task])
    problem = problems(loaded, "cuda", timed_only=True)[0]
    work = work_of(problem)
    assert work.dtype == (fastest or problem.dtype)
    if fastest is None:
        return
    assert work.flops is not None
    honest_us = work.flops / (0.6 * 1979e6)
    assert floor_us(work, H200) < honest_us < floor_us(replace(work, dtype=problem.dtype), H200)


def test_reads_are_unavoidable_only_where_a_task_counts_its_work() -> None:
    """A task without `flops`, or with an operand that selects, has no floor from its reads."""
    loaded = throw_away_task("scale")
    problem = problems(loaded, "cpu")[0]
    problem.task = loaded.task.model_copy(update={"flops": None})
    assert work_of(problem).cold_read_bytes == 0
    counted = loaded.task.model_copy(update={"flops": "1"})
    problem.task = counted
    inputs = sum(o.role == "in" for o in counted.operands)
    assert inputs > 0
    assert 0 < work_of(problem).cold_read_bytes < work_of(problem).unique_bytes
    chosen = [o.model_copy(update={"dtype": "int64"}) if o.role == "in" else o for o in counted.operands]
    problem.task = counted.model_copy(update={"operands": tuple(chosen)})
    assert work_of(problem).cold_read_bytes == 0
