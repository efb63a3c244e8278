"""The error measure, by hand and on any shape, dtype and position: every error above tolerance is found, none
below."""

from __future__ import annotations

import math
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.compare import (
    compare,
    element_errors,
    passes,
    surely_passes,
    worst_error,
    worst_tile,
)
from harness.judge.problem import Problem
from harness.judge.trivial_answers import own_outputs
from harness.judge.verifier import Verifier
from harness.suite.tolerance import TILE, Tolerance
from tests.fakes.overlays import throw_away_task

INF, NAN = math.inf, math.nan
QUIET = settings(max_examples=150, deadline=None)
SHAPES = st.lists(st.integers(1, 9), min_size=0, max_size=3).map(tuple)
FACTORS = st.sampled_from([1e-5, 1e-4, 1e-3, 8e-3, 7e-2])
SEEDS = st.integers(0, 2**31 - 1)


def doubles(*rows: list[float]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize("factor", [0.0, 1e-2])
@pytest.mark.parametrize(
    ("actual", "truth", "right"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (NAN, 1.0, False),
        (INF, -INF, False),
        (NAN, INF, False),
        (-0.0, 0.0, True),
    ],
)
def test_special_values(actual: float, truth: float, right: bool, factor: float) -> None:
    """NaN answers NaN and an infinity itself; against anything else they are infinite errors."""
    errors = element_errors(doubles([actual, 5.0]), doubles([truth, 5.0]), factor)
    assert errors.tolist() == [[0.0 if right else INF, 0.0]]


@pytest.mark.parametrize("special", [NAN, INF, -INF])
def test_special_value_leaves_its_row_alone(special: float) -> None:
    """One NaN or infinity in the truth neither excuses nor condemns the rest of its row."""
    truth = doubles([special, 3.0, 4.0])
    scale = math.sqrt(25 / 3)
    errors = element_errors(doubles([special, 3.01, 4.0]), truth, 1e-2)
    assert errors.flatten().tolist() == pytest.approx([0.0, 0.01 / (1e-2 * (3 + scale)), 0.0])
    assert worst_error(doubles([special, 1e6, 4.0]), truth, 1e-2) > 1e6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float8_e4m3fn])
def test_correctly_rounded_denormals_are_right(dtype: torch.dtype) -> None:
    """However small the truth, rounding it to the nearest number passes, and being two steps off does not."""
    step = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    truth = torch.linspace(0, 9, 1000, dtype=torch.float64)[:, None] * step
    assert worst_error(truth.to(dtype), truth, 1e-5) <= 1.0
    assert worst_error((truth + 2 * step).to(dtype), truth, 1e-5) > 1.0


@pytest.mark.parametrize("shape", [(70_000,), (500, 301), (3, 500, 101), (4, 40_000)])
@pytest.mark.parametrize("special", [None, NAN, INF])
def test_large_outputs_by_pieces_are_judged_as_whole(shape: tuple[int, ...], special: float | None) -> None:
    """Rows at a time, the worst error and the largest difference are those of the whole."""
    truth = torch.randn(shape, dtype=torch.float64)
    actual = (truth + 1e-6 * torch.randn(shape)).float()
    if special is not None:
        actual.view(-1)[-7] = special
    found = compare(actual, truth, 1e-5, INF)
    assert found.worst == pytest.approx(worst_error(actual, truth, 1e-5), rel=1e-12)  # sums in another order
    assert found.absolute == (INF if special is not None else float((actual.double() - truth).abs().max()))


FLOATS = ["float64", "float32", "float16", "bfloat16", "float8_e4m3fn"]
MAGNITUDES = [1e-320, 1e-160, 1e-44, 1.0, 1e30, 1e160, 1e300]


@QUIET
@given(
    st.sampled_from([(), (1,), (5,), (3, 5), (2, 3, 9), (7, 5001)]),
    FACTORS,
    SEEDS,
    st.sampled_from(FLOATS),
    st.sampled_from(MAGNITUDES),
    st.floats(0.0, 2.5),
    st.sampled_from([None, None, NAN, INF, -INF, 0.0]),
    st.booleans(),
)
def test_what_surely_passes_is_never_refused(
    shape: tuple[int, ...],
    factor: float,
    seed: int,
    dtype: str,
    magnitude: float,
    share: float,
    special: float | None,
    both: bool,
) -> None:
    """Errors around the tolerance, special values and extreme magnitudes: the quick test agrees with the full
    comparison wherever it says yes."""
    truth = truth_of(shape, seed) * magnitude
    signs = torch.where(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5, -1.0, 1.0)
    actual = (truth + signs.double() * share * tolerance_of(truth, factor)).to(getattr(torch, dtype))
    if special is not None:
        actual[position_of(shape, seed)] = special
        if both:
            truth[position_of(shape, seed)] = special
    with patch("harness.judge.compare._CACHED", 1 << 12):  # the largest shape is compared in pieces
        surely = surely_passes(actual, truth, factor)
    if surely:
        error = compare(actual, truth, factor, 1.0)
        assert passes(error, 1.0) and error.over == 0


@pytest.mark.parametrize("shape", [(), (1,), (40_000,), (29, 5001), (2, 3, 9)])
def test_a_small_error_surely_passes_and_garbage_does_not(shape: tuple[int, ...]) -> None:
    """A rounded truth passes at once; one element that is wrong, NaN or infinite leaves it open."""
    truth = torch.randn(shape, dtype=torch.float64)
    actual = truth.float()
    assert surely_passes(actual, truth, 1e-5)
    for wrong in (NAN, INF, -INF, 100.0):
        broken = actual.clone()
        broken.view(-1)[-1] = wrong
        assert not surely_passes(broken, truth, 1e-5)
    assert not surely_passes(actual, truth, 0.0) and not surely_passes(truth.long() + 1, truth.long(), 1e-5)
    assert surely_passes(truth.int(), truth.long(), 1e-5) and surely_passes(truth, truth.double(), 0.0)


def test_tile_at_the_edge() -> None:
    """A tile that is cut off by the edge is judged by the elements that it has."""
    over = torch.zeros((65, 66), dtype=torch.bool)
    over[64, 64] = True
    assert worst_tile(over) == pytest.approx(1 / 2)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 70, 70), (0, 4)])
def test_tiles_of_every_shape(shape: tuple[int, ...]) -> None:
    """Scalars, vectors, stacks of planes and nothing: no errors pass, and no tile is wrong."""
    truth = torch.zeros(shape, dtype=torch.float64)
    assert passes(compare(truth.float(), truth, 1e-5, 1.0), 1.0)
    assert worst_tile(torch.zeros(shape, dtype=torch.bool)) == 0.0
    if 0 not in shape:
        assert worst_tile(torch.ones(shape, dtype=torch.bool)) == 1.0


def truth_of(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return values * torch.exp2(torch.randint(-20, 20, shape, generator=generator).double()) + 1e-9


def position_of(shape: tuple[int, ...], seed: int) -> tuple[int, ...]:
    return tuple((seed // 7 ** (i + 1)) % size for i, size in enumerate(shape))


def tolerance_of(truth: torch.Tensor, factor: float) -> torch.Tensor:
    rms = truth.abs() if truth.dim() == 0 else (truth**2).mean(dim=-1, keepdim=True) ** 0.5
    return factor * (truth.abs() + rms)


@QUIET
@given(SHAPES, FACTORS, SEEDS, st.floats(1.001, 1e6), st.floats(1.0, 10.0), st.sampled_from([1, -1]))
def test_every_error_above_tolerance_is_found(
    shape: tuple[int, ...], factor: float, seed: int, excess: float, allowed: float, sign: int
) -> None:
    """One element that is out by more than allowed, wherever it stands, fails and is named."""
    truth = truth_of(shape, seed)
    where = position_of(shape, seed)
    actual = truth.clone()
    actual[where] += sign * excess * allowed * tolerance_of(truth, factor)[where]
    error = compare(actual, truth, factor, allowed)
    assert not passes(error, allowed)
    assert (error.over, error.where) == (1, where)
    assert error.worst == pytest.approx(excess * allowed, rel=1e-4)
    assert (error.total, error.absolute) == (truth.numel(), float((actual - truth).abs().max()))


@QUIET
@given(SHAPES, FACTORS, SEEDS, st.floats(0.0, 0.999), st.floats(1.0, 10.0))
def test_no_error_below_tolerance_fails(
    shape: tuple[int, ...], factor: float, seed: int, share: float, allowed: float
) -> None:
    """Every element out by a part of what is allowed, in either direction, passes."""
    truth = truth_of(shape, seed)
    signs = torch.where(torch.rand(shape, generator=torch.Generator().manual_seed(seed)) < 0.5, -1.0, 1.0)
    actual = truth + signs.double() * share * allowed * tolerance_of(truth, factor)
    error = compare(actual, truth, factor, allowed)
    assert passes(error, allowed)
    assert error.over == 0


@QUIET
@given(SHAPES, SEEDS, st.sampled_from(["int64", "int32", "uint8", "bool"]))
def test_integers_are_equal_or_wrong(shape: tuple[int, ...], seed: int, name: str) -> None:
    """One integer that differs is found wherever it stands, whatever the factor."""
    dtype = getattr(torch, name)
    truth = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)
    where = position_of(shape, seed)
    actual = truth.clone()
    actual[where] = 1 - int(truth[where])
    assert passes(compare(truth.clone(), truth, 1e-2, 1.0), 1.0)
    error = compare(actual, truth, 1e-2, 1e9)
    assert not passes(error, 1e9) and error.where == where


@QUIET
@given(SHAPES, SEEDS, FACTORS)
def test_a_tasks_own_scale_replaces_the_rows(shape: tuple[int, ...], seed: int, factor: float) -> None:
    """With `scale` the tolerance is factor * (|truth| + scale), element by element."""
    truth = truth_of(shape, seed)
    scale = truth_of(shape, seed + 1).abs()
    actual = truth + 0.5 * factor * (truth.abs() + scale)
    errors = element_errors(actual, truth, factor, scale)
    assert errors.flatten().tolist() == pytest.approx([0.5] * truth.numel(), rel=1e-3)


LOOSE = Tolerance(1e-2, matched=0.99, most=5.0)


@pytest.mark.parametrize(("rows", "size", "why"), [(1, 6.0, "above 5"), (2, 1.5, "a share above 1 %")])
def test_loose_rule_has_a_cap_and_a_share(rows: int, size: float, why: str) -> None:
    """One element beyond 5 times the tolerance fails, and so do too many strays."""
    truth = torch.ones((128, 128), dtype=torch.float64)
    actual = truth.clone()
    actual[:, :rows] += size * 0.02
    assert not passes(compare(actual, truth, LOOSE.f, 1.0), 1.0, LOOSE), why


def test_a_wrong_block_cannot_hide_in_a_small_share() -> None:
    """The tile test: a wrong block that is 0.6 % of the elements fails, scattered just as many pass."""
    truth = torch.ones((512, 512), dtype=torch.float64)
    block, scattered = truth.clone(), truth.clone()
    block[:40, :40] += 0.03
    places = torch.randperm(truth.numel(), generator=torch.Generator().manual_seed(1))[: 40 * 40]
    scattered.view(-1)[places] += 0.03
    assert TILE == 64
    assert not passes(compare(block, truth, LOOSE.f, 1.0), 1.0, LOOSE)
    assert passes(compare(scattered, truth, LOOSE.f, 1.0), 1.0, LOOSE)


class Blind(Problem):
    raised: type[Exception] | None = None

    def __init__(self) -> None:
        loaded = throw_away_task("scale")
        super().__init__(loaded, loaded.task.workloads[0], "float32")

    @property
    def custom_compare(self) -> object:
        def measure(outputs: object, truths: object, inputs: object) -> float:
            if self.raised is not None:
                raise self.raised("what went wrong")
            return max(0.0, math.nan)

        return measure


def test_a_measure_without_device_memory_convicts_nobody() -> None:
    """What the judge's device refuses is no fault of the outputs; what a measure cannot use is."""
    problem = Blind()
    inputs = problem.make_inputs()
    outputs = own_outputs(problem, inputs)
    for raised in (torch.OutOfMemoryError, torch.AcceleratorError):
        problem.raised = raised
        with pytest.raises(raised):
            Verifier(problem).values(inputs, outputs)
    problem.raised = IndexError
    assert "cannot use the outputs" in str(Verifier(problem).values(inputs, outputs))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_blind_measure_lets_no_garbage_pass(value: float) -> None:
    """One element is enough, and the message says where."""
    problem = Blind()
    inputs = problem.make_inputs()
    (out,) = own_outputs(problem, inputs)
    assert Verifier(problem).values(inputs, (out,)) is None
    out[1, 2] = value
    finding = Verifier(problem).values(inputs, (out,))
    assert finding is not None
    assert (
        "1 elements of out are NaN or infinite where the truth is finite; the first, at [1, 2]"
        in finding.message
    )
