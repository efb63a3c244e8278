"""How far an answer is from the truth.

An element that cannot be compared (NaN where the truth is finite, wrong shape) is an infinite error, so
every doubt counts against the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.suite.tolerance import TILE, TILE_FRACTION, Tolerance


@dataclass(frozen=True)
class Error:
    """Of one output: `worst` is max |y - truth| / tol (inf where it cannot be compared)."""

    worst: float
    absolute: float
    over: int
    """Elements above the allowed error."""
    total: int
    worst_tile: float
    """Largest fraction of elements above the allowed error in one tile."""
    where: tuple[int, ...]
    """Index of the worst element where it does not pass, else ()."""


def _row_rms(truth: torch.Tensor) -> torch.Tensor:
    """RMS over the last axis, kept as a broadcastable axis; |truth| itself for a scalar."""
    if truth.dim() == 0:
        return truth.abs()
    return truth.square().mean(dim=-1, keepdim=True).sqrt()


def _same(actual: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return (actual == truth) | (actual.isnan() & truth.isnan())


def _errors(
    actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: torch.Tensor | None
) -> tuple[torch.Tensor, float]:
    """(element errors, largest absolute difference: inf where there is none)."""
    if not truth.is_floating_point():
        difference = (actual.double() - truth.double()).abs_()
        return torch.where(actual == truth, 0.0, math.inf).double(), _largest(difference)
    values = actual.double()
    error = (values - truth).abs_()
    absolute = _largest(error)
    if factor == 0:
        return torch.where(_same(values, truth), 0.0, math.inf).double(), absolute
    if scale is None:
        scale = _row_rms(truth)
        if not math.isfinite(float(scale.sum())):
            # One infinity must not excuse, nor one NaN condemn, the rest of its row.
            scale = _row_rms(truth.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    tolerance = truth.abs().add_(scale).mul_(factor)
    error.div_(tolerance.clamp_(min=torch.finfo(torch.float64).tiny))
    if not math.isfinite(float(error.sum())):
        error = torch.where(_same(values, truth), 0.0, error).nan_to_num_(nan=math.inf, posinf=math.inf)
    return error, absolute


def _largest(values: torch.Tensor) -> float:
    largest = float(values.max()) if values.numel() else 0.0
    return math.inf if math.isnan(largest) else largest


def element_errors(
    actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: torch.Tensor | None = None
) -> torch.Tensor:
    """|actual - truth| / (factor * (|truth| + scale)), float64, same shape.

    `scale`: float64, >= 0, broadcastable to truth's shape; None takes the RMS of the truth's row.
    With factor 0, or for integers, 0 where equal and inf where not. -0.0 equals 0.0. NaN equals NaN
    and an infinity equals itself; against anything else they are infinite errors.
    """
    return _errors(actual, truth, factor, scale)[0]


def worst_error(
    actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: torch.Tensor | None = None
) -> float:
    """Largest element error; 0 for an empty output."""
    errors = element_errors(actual, truth, factor, scale)
    return float(errors.max()) if errors.numel() else 0.0


def worst_tile(over: torch.Tensor) -> float:
    """Largest fraction of set elements in a TILE x TILE tile of the last two axes (a row if narrower)."""
    if over.numel() == 0:
        return 0.0
    plane = over.reshape(-1, over.shape[-1]) if over.dim() else over.reshape(1, 1)
    rows, columns = plane.shape
    height = TILE if rows >= TILE and columns >= TILE else 1
    width = min(TILE, columns)
    padded_rows, padded_columns = -rows % height, -columns % width
    # A tile at the edge is judged by the elements that it has.
    mask = torch.nn.functional.pad(plane.double(), (0, padded_columns, 0, padded_rows))
    size = torch.nn.functional.pad(torch.ones_like(plane).double(), (0, padded_columns, 0, padded_rows))

    def sums(values: torch.Tensor) -> torch.Tensor:
        return values.reshape(values.shape[0] // height, height, -1, width).sum(dim=(1, 3))

    return float((sums(mask) / sums(size)).max())


def compare(
    actual: torch.Tensor,
    truth: torch.Tensor,
    factor: float,
    allowed: float,
    scale: torch.Tensor | None = None,
) -> Error:
    """Error of one output. `allowed` is the largest element error that passes; `scale` as above."""
    errors, absolute = _errors(actual, truth, factor, scale)
    if errors.numel() == 0:
        return Error(0.0, 0.0, 0, 0, 0.0, ())
    worst = float(errors.max())
    if worst <= allowed:
        return Error(worst, absolute, 0, errors.numel(), 0.0, ())
    over = errors > allowed
    return Error(
        worst=worst,
        absolute=absolute,
        over=int(over.sum()),
        total=errors.numel(),
        worst_tile=worst_tile(over),
        where=tuple(int(i) for i in torch.unravel_index(errors.argmax(), errors.shape)),
    )


def passes(error: Error, allowed: float, rule: Tolerance | None = None) -> bool:
    """Whether an error is within the rule.

    Without one, or with one that wants every element matched, nothing may be above the allowed error.
    A rule with `matched` below 1 lets single elements stray up to `most` times the allowed error; then
    no tile may hold many of them, so that no wrong row or block can hide in a small share of the whole.
    """
    if rule is None or rule.matched == 1.0:
        return error.worst <= allowed
    return (
        error.worst <= rule.most * allowed
        and error.over <= (1.0 - rule.matched) * error.total
        and error.worst_tile <= TILE_FRACTION
    )
