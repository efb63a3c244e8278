"""The error measure, on values worked out by hand."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.compare import compare, element_errors, passes, worst_error, worst_tile

INF, NAN = math.inf, math.nan


def doubles(*rows: list[float]) -> torch.Tensor:
    """Rows of float64."""
    return torch.tensor(rows, dtype=torch.float64)


def test_tolerance_formula() -> None:
    """An error is |y - truth| over f * (|truth| + RMS of the truth's row), row by row."""
    truth = doubles([3.0, -4.0], [0.0, 2.0])
    first, second = math.sqrt(12.5), math.sqrt(2.0)
    actual = truth + doubles([0.1, 0.2], [0.01, 0.0])
    expected = [0.1 / (3 + first), 0.2 / (4 + first), 0.01 / second, 0.0]
    errors = element_errors(actual, truth, 1e-2).flatten().tolist()
    assert errors == pytest.approx([e / 1e-2 for e in expected])


def test_scalar_outputs() -> None:
    """For a scalar the row's RMS is its own size."""
    error = element_errors(torch.tensor(1.5), torch.tensor(1.0, dtype=torch.float64), 0.1)
    assert float(error) == pytest.approx(0.5 / 0.2)


def test_row_of_zeros() -> None:
    """Where the whole row of the truth is 0, only 0 passes; -0.0 is 0."""
    truth = doubles([0.0, 0.0, 0.0])
    assert worst_error(doubles([0.0, -0.0, 0.0]), truth, 1e-2) == 0.0
    assert worst_error(doubles([0.0, 1e-30, 0.0]), truth, 1e-2) > 1e100


@pytest.mark.parametrize("factor", [0.0, 1e-2])
@pytest.mark.parametrize(
    ("actual", "truth", "right"),
    [
        (NAN, NAN, True),
        (INF, INF, True),
        (-INF, -INF, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (INF, -INF, False),
        (INF, 1.0, False),
        (1.0, INF, False),
        (NAN, INF, False),
        (INF, NAN, False),
        (1.0, 1.0, True),
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


def test_integers_must_be_equal() -> None:
    """Integers have no tolerance, not even beyond 2^53, where doubles cannot tell them apart."""
    truth = torch.tensor([1, 1 << 60])
    assert worst_error(truth.clone(), truth, 0.0) == 0.0
    assert worst_error(truth + torch.tensor([0, 1]), truth, 0.0) == INF
    assert worst_error(torch.tensor([True, False]), torch.tensor([True, True]), 0.0) == INF


def test_empty_output() -> None:
    """Nothing to compare is no error."""
    empty = torch.empty((0, 3), dtype=torch.float64)
    assert worst_error(empty.float(), empty, 1e-5) == 0.0
    assert passes(compare(empty.float(), empty, 1e-5, 1.0), 1.0)


def test_error_report() -> None:
    """A comparison that fails says how many elements are over, and where the worst one is."""
    truth = torch.ones((4, 8), dtype=torch.float64)
    actual = truth.float()
    actual[1, 2], actual[3, 7] = 1.5, 2.0
    error = compare(actual, truth, 1e-2, 1.0)
    assert (error.over, error.total, error.where) == (2, 32, (3, 7))
    assert (error.worst, error.absolute) == (pytest.approx(1.0 / 0.02), 1.0)
    assert not passes(error, 1.0)


def test_no_number_among_many_fails() -> None:
    """A single NaN in a large output is an infinite error."""
    truth = torch.randn((300, 300), dtype=torch.float64)
    actual = truth.float()
    actual[299, 299] = NAN
    error = compare(actual, truth, 1e-2, 4.0)
    assert (error.worst, error.over, error.where) == (INF, 1, (299, 299))
    assert not passes(error, 4.0)


def test_one_bad_row_fills_its_tiles() -> None:
    """A bad row is 1/64 of a tile where tiles are square, and the whole tile where they are rows."""
    square = torch.zeros((128, 256), dtype=torch.bool)
    square[70] = True
    assert worst_tile(square) == pytest.approx(1 / 64)
    flat = torch.zeros((5, 300), dtype=torch.bool)
    flat[4] = True
    assert worst_tile(flat) == 1.0


def test_tile_at_the_edge() -> None:
    """A tile that is cut off by the edge is judged by the elements that it has."""
    over = torch.zeros((65, 66), dtype=torch.bool)
    over[64, 64] = True
    assert worst_tile(over) == pytest.approx(1 / 2)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 70, 70), (0, 4)])
def test_tiles_of_every_shape(shape: tuple[int, ...]) -> None:
    """The tile test takes scalars, vectors, stacks of planes and nothing."""
    assert worst_tile(torch.zeros(shape, dtype=torch.bool)) == 0.0
    if 0 not in shape:
        assert worst_tile(torch.ones(shape, dtype=torch.bool)) == 1.0
