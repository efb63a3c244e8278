"""How far an answer is from the truth, whole or, for a large problem, part by part.

An element that cannot be compared (NaN where the truth is finite) is an infinite error. Where the op treats
rows apart, the truth of a large problem is computed for blocks of rows: of all of them in a check as far as
the work allows, of a secret sample in a timed call, drawn after the outputs are in. Rows that hold what no
answer may hold (the poison, NaN, an infinity) are always among them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from harness.judge.problem import Outputs, Problem, Tensors
from harness.records import Operand
from harness.suite.sizes import PART_BYTES, row_bytes
from harness.suite.tolerance import TILE, TILE_FRACTION, Tolerance, tolerance

LEAST_ROWS = 32
"""Rows looked at of a timed call: an answer wrong in a share f of its rows passes with at most (1 - f)^32."""
_SAMPLE_BYTES = 256 << 20
_CHECK_FLOPS = {"cpu": 50e9, "cuda": 50e12}
"""Of the truth of one call in a check: about 5 s of float64 work (our choice, not measured on a GPU)."""
_TIMED_SHARE = 0.1
_MAX_SUSPECTS = 64
_PIECE = 1 << 24
_CACHED = 1 << 17
"""Elements whose float64 copies stay in a cache; of fewer, what an operation costs by itself shows."""
_SURE = 0.99
"""Of the tolerance: below it no rounding of the comparison matters."""
_secret = random.SystemRandom()
_Scale = torch.Tensor | None
_Part = torch.Tensor | None
"""Rows of a part; None for all."""


@dataclass(frozen=True)
class Error:
    worst: float
    """max |y - truth| / tol; inf where it cannot be compared."""
    absolute: float
    over: int
    total: int
    worst_tile: float
    where: tuple[int, ...]
    """Index of the worst element where it does not pass, else ()."""


def row_rms(values: torch.Tensor) -> torch.Tensor:
    return values.square().mean(dim=-1, keepdim=True).sqrt() if values.dim() else values.abs()


def _same(actual: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    return (actual == truth) | (actual.isnan() & truth.isnan())


def _half_step(dtype: torch.dtype) -> float:
    """Half the distance of denormal numbers: the largest error of rounding to the nearest one."""
    if not dtype.is_floating_point:
        return 0.0
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps / 2


def _errors(
    actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: _Scale
) -> tuple[torch.Tensor, float]:
    """(element errors, largest absolute difference: inf where it is not finite)."""
    if not truth.is_floating_point():
        difference = (actual.double() - truth.double()).abs_()
        return torch.where(actual == truth, 0.0, math.inf).double(), _largest(difference)
    values = actual.double()
    error = (values - truth).abs_()
    absolute = _largest(error)
    if factor == 0:
        return torch.where(_same(values, truth), 0.0, math.inf).double(), absolute
    if scale is None:
        scale = row_rms(truth)
        if not math.isfinite(float(scale.sum())):
            # One infinity must not excuse, nor one NaN condemn, the rest of its row.
            scale = row_rms(truth.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0))
    tolerance = truth.abs().add_(scale).mul_(factor).add_(_half_step(actual.dtype))
    error.div_(tolerance.clamp_(min=torch.finfo(torch.float64).tiny))
    if not math.isfinite(float(error.sum())):
        error = torch.where(_same(values, truth), 0.0, error).nan_to_num_(nan=math.inf, posinf=math.inf)
    return error, absolute


def _largest(values: torch.Tensor) -> float:
    largest = float(values.max()) if values.numel() else 0.0
    return math.inf if math.isnan(largest) else largest


def element_errors(
    actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: _Scale = None
) -> torch.Tensor:
    """|actual - truth| / (factor * (|truth| + scale) + half the least step of actual's dtype), float64, same
    shape.

    `scale`: float64, >= 0, broadcastable to truth's shape; None takes the RMS of the truth's row.
    With factor 0, or for integers, 0 where equal and inf where not. -0.0 equals 0.0. NaN equals NaN
    and an infinity equals itself; against anything else they are infinite errors.
    """
    return _errors(actual, truth, factor, scale)[0]


def worst_error(actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: _Scale = None) -> float:
    errors = element_errors(actual, truth, factor, scale)
    return float(errors.max()) if errors.numel() else 0.0


def _stays_whole(truth: torch.Tensor) -> bool:
    return truth.dim() < 2 or truth.numel() <= _CACHED or truth.device.type != "cpu"


def _cached_rows(actual: torch.Tensor, truth: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Rows at a time that stay in cache, of tensors that need not stay whole."""
    rows = max(1, _CACHED // truth.shape[-1])
    yield from zip(*(torch.split(values.flatten(0, -2), rows) for values in (actual, truth)), strict=True)


def surely_passes(actual: torch.Tensor, truth: torch.Tensor, factor: float) -> bool:
    """Whether all are equal or all errors are small beside the RMS of their rows alone, so that element
    errors are below 1. It costs a third of finding them; False says nothing."""
    if factor == 0 or not truth.is_floating_point() or truth.numel() == 0:
        return torch.equal(actual.to(truth.dtype), truth)
    pieces = [(actual, truth)] if _stays_whole(truth) else _cached_rows(actual, truth)
    for ours, theirs in pieces:
        scale = row_rms(theirs)
        largest = (ours.double() - theirs).abs_().amax(dim=-1, keepdim=True)  # NaN where one is
        if not bool(((largest <= _SURE * factor * scale) & scale.isfinite()).all()):
            return False
    return True


def _worst_by_pieces(
    actual: torch.Tensor, truth: torch.Tensor, factor: float, scale: _Scale
) -> tuple[float, float]:
    """(worst element error, largest absolute difference), rows at a time on the host: they stay in cache."""
    if scale is not None or _stays_whole(truth):
        errors, absolute = _errors(actual, truth, factor, scale)
        return float(errors.max()), absolute
    worst = absolute = 0.0
    for ours, theirs in _cached_rows(actual, truth):
        errors, largest = _errors(ours, theirs, factor, None)
        worst, absolute = max(worst, float(errors.max())), max(absolute, largest)
    return worst, absolute


def worst_tile(over: torch.Tensor) -> float:
    if over.numel() == 0:
        return 0.0
    plane = over.reshape(-1, over.shape[-1]) if over.dim() else over.reshape(1, 1)
    rows, columns = plane.shape
    height = TILE if rows >= TILE and columns >= TILE else 1
    width = min(TILE, columns)
    padded_rows, padded_columns = -rows % height, -columns % width

    def sums(values: torch.Tensor) -> torch.Tensor:
        padded = torch.nn.functional.pad(values.double(), (0, padded_columns, 0, padded_rows))
        return padded.reshape(padded.shape[0] // height, height, -1, width).sum(dim=(1, 3))

    # A tile at the edge is judged by the elements that it has.
    return float((sums(plane) / sums(torch.ones_like(plane))).max())


def compare(
    actual: torch.Tensor,
    truth: torch.Tensor,
    factor: float,
    allowed: float,
    scale: torch.Tensor | None = None,
) -> Error:
    """Error of one output. `allowed` is the largest element error that passes; `scale` as above."""
    if truth.numel() == 0:
        return Error(0.0, 0.0, 0, 0, 0.0, ())
    worst, absolute = _worst_by_pieces(actual, truth, factor, scale)
    if worst <= allowed:
        return Error(worst, absolute, 0, truth.numel(), 0.0, ())
    errors = _errors(actual, truth, factor, scale)[0]
    over = errors > allowed
    where = tuple(int(i) for i in torch.unravel_index(errors.argmax(), errors.shape))
    return Error(worst, absolute, int(over.sum()), errors.numel(), worst_tile(over), where)


def passes(error: Error, allowed: float, rule: Tolerance | None = None) -> bool:
    """Whether an error is within the rule. One with `matched` below 1 lets single elements reach `most` times
    the allowed error; then no tile may hold many of them, so that no wrong row or block hides in a small
    share."""
    if rule is None or rule.matched == 1.0:
        return error.worst <= allowed
    return (
        error.worst <= rule.most * allowed
        and error.over <= (1.0 - rule.matched) * error.total
        and error.worst_tile <= TILE_FRACTION
    )


def sampled_rows(problem: Problem, *, timed: bool) -> tuple[int, int]:
    task, workload = problem.task, problem.workload
    rows = problem.shape(task.outputs[0])[0]
    flops_per_row = (problem.flops or 0) / max(rows, 1)
    flops = _CHECK_FLOPS["cpu" if problem.device.type == "cpu" else "cuda"] * (_TIMED_SHARE if timed else 1.0)
    affordable = rows if flops_per_row == 0 else max(1, int(flops / flops_per_row))
    wanted = rows
    if timed:
        wanted = max(LEAST_ROWS, _SAMPLE_BYTES // row_bytes(task, workload, problem.dtype))
    return min(rows, wanted, affordable), rows


def compared_outputs(
    problem: Problem, inputs: Tensors, outputs: Outputs, *, timed: bool
) -> list[tuple[Operand, Error, float, Tolerance]]:
    """Every output, its error, the largest element error that passes, and the rule."""
    parts = _parts(problem, outputs, timed=timed)
    task = problem.task
    rules = [tolerance(task, operand, problem.dtype) for operand in task.outputs]
    allowed = [1.0] * len(rules)
    errors = _errors_in_parts(problem, inputs, outputs, parts, rules, allowed)
    if any(error.over for error in errors):
        # Only now the reference's own error matters.
        own = _own_errors(problem, inputs, parts, rules)
        allowed = [rule.allowed(one) for rule, one in zip(rules, own, strict=True)]
        errors = _errors_in_parts(problem, inputs, outputs, parts, rules, allowed)
    return list(zip(task.outputs, errors, allowed, rules, strict=True))


def _parts(problem: Problem, outputs: Outputs, *, timed: bool) -> list[_Part]:
    if not problem.rows_apart:
        return [None]
    count, rows = sampled_rows(problem, timed=timed)
    chosen = list(range(rows)) if count == rows else _secret.sample(range(rows), count)
    if count < rows:
        chosen = list(dict.fromkeys([*chosen, *_suspects(outputs)]))
    block = max(1, PART_BYTES // row_bytes(problem.task, problem.workload, problem.dtype))
    return [torch.tensor(chosen[start : start + block]) for start in range(0, len(chosen), block)]


def _suspects(outputs: Outputs) -> list[int]:
    found: set[int] = set()
    for out in outputs:
        rows = max(1, _PIECE // max(1, out[0].numel()))
        for start in range(0, out.shape[0], rows):
            piece = out[start : start + rows]
            bad = ~piece.isfinite() if piece.is_floating_point() else piece == -1
            found |= {start + int(row) for row in bad.flatten(1).any(dim=1).nonzero()[:, 0]}
    return _secret.sample(sorted(found), min(len(found), _MAX_SUSPECTS))


def _truths(
    problem: Problem, inputs: Tensors, parts: list[_Part]
) -> Iterator[tuple[_Part, Tensors, Outputs]]:
    for rows in parts:
        given = inputs if rows is None else problem.rows_of(inputs, rows)
        yield rows, given, problem.truth(given) if rows is None else problem.truth_of(given)


def _errors_in_parts(
    problem: Problem,
    inputs: Tensors,
    outputs: Outputs,
    parts: list[_Part],
    rules: list[Tolerance],
    allowed: list[float],
) -> list[Error]:
    found = [Error(0.0, 0.0, 0, 0, 0.0, ()) for _ in rules]
    for rows, _, truths in _truths(problem, inputs, parts):
        for index, truth in enumerate(truths):
            actual = outputs[index] if rows is None else outputs[index][rows.to(outputs[index].device)]
            for start, ours, theirs in _pieces(actual, truth):
                error = compare(ours, theirs, rules[index].f, allowed[index])
                found[index] = _joined(found[index], error, rows, start)
    return found


def _own_errors(problem: Problem, inputs: Tensors, parts: list[_Part], rules: list[Tolerance]) -> list[float]:
    own = [0.0] * len(rules)
    for rows, given, truths in _truths(problem, inputs, parts):
        answers = problem.reference(given) if rows is None else problem.reference_of(given)
        for index, truth in enumerate(truths):
            for _, ours, theirs in _pieces(answers[index], truth):
                own[index] = max(own[index], worst_error(ours, theirs, rules[index].f))
    return own


def _pieces(actual: torch.Tensor, truth: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """(first index, actual, truth) along the first axis. Rows, which the tolerance is relative to, stay
    whole."""
    if truth.dim() < 2:
        yield 0, actual, truth
        return
    rows = max(1, _PIECE // max(1, truth[0].numel()))
    for start in range(0, truth.shape[0], rows):
        yield start, actual[start : start + rows], truth[start : start + rows]


def _joined(sofar: Error, error: Error, rows: _Part, start: int) -> Error:
    where = error.where
    if where:
        first = where[0] + start
        where = (first if rows is None else int(rows[first]), *where[1:])
    worse = error.worst > sofar.worst or (error.worst == sofar.worst and not sofar.where)
    return Error(
        worst=max(sofar.worst, error.worst),
        absolute=max(sofar.absolute, error.absolute),
        over=sofar.over + error.over,
        total=sofar.total + error.total,
        worst_tile=max(sofar.worst_tile, error.worst_tile),
        where=where if worse else sofar.where,
    )
