"""How far an answer is from the truth.

Owns: the error measure and the tile test. Does not own: the factors (tolerance.py) or the verdict.
Invariant: an element that cannot be compared (NaN where the truth is finite, wrong shape) is an
infinite error, so every doubt counts against the answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from harness.tolerance import TILE, TILE_FRACTION


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
    """Index of the worst element."""


def _scale(truth: torch.Tensor) -> torch.Tensor:
    """RMS over the last axis, kept as a broadcastable axis; |truth| itself for a scalar."""
    if truth.dim() == 0:
        return truth.abs()
    return truth.square().mean(dim=-1, keepdim=True).sqrt()


def element_errors(actual: torch.Tensor, truth: torch.Tensor, factor: float) -> torch.Tensor:
    """|actual - truth| / (factor * (|truth| + row RMS)), float64, same shape.

    With factor 0, or for integers, 0 where equal and inf where not. -0.0 equals 0.0. NaN equals NaN
    and an infinity equals itself; against anything else they are infinite errors.
    """
    if factor == 0 or not truth.is_floating_point():
        return (actual != truth).double() * math.inf if actual.numel() else actual.double()
    wide = actual.double()
    error = (wide - truth).abs_()
    tolerance = truth.abs().add_(_scale(truth)).mul_(factor)
    error.div_(tolerance.clamp_(min=torch.finfo(torch.float64).tiny))
    if not bool(torch.isfinite(error).all()):
        same = (wide == truth) | (wide.isnan() & truth.isnan())
        error = torch.where(same, torch.zeros_like(error), error)
        error = torch.nan_to_num(error, nan=math.inf, posinf=math.inf)
    return error


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


def compare(actual: torch.Tensor, truth: torch.Tensor, factor: float, allowed: float) -> Error:
    """Error of one output. `allowed` is the largest element error that passes."""
    errors = element_errors(actual, truth, factor)
    if errors.numel() == 0:
        return Error(0.0, 0.0, 0, 0, 0.0, ())
    flat = int(errors.argmax())
    over = errors > allowed
    count = int(over.sum())
    difference = (actual.double() - truth.double()).abs()
    return Error(
        worst=float(errors.flatten()[flat]),
        absolute=float(difference.nan_to_num(nan=math.inf).max()),
        over=count,
        total=errors.numel(),
        worst_tile=worst_tile(over) if count else 0.0,
        where=tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), errors.shape)),
    )


def passes(error: Error, allowed: float) -> bool:
    """The rule: nothing above the allowed error, and no tile with too many elements above it."""
    return error.worst <= allowed and error.worst_tile <= TILE_FRACTION
