"""Outputs of a large problem compared with the truth, a part at a time.

Where the op treats rows apart (rows.py), the truth is computed for blocks of rows: of all of them in a
check, as far as the work allows, and of a secret sample in a timed call. Else it is computed whole. Which
rows are compared is drawn after the outputs are in, anew for every call. Rows that hold what no answer may
hold (the poison, NaN, an infinity) are always among them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from harness.judge.compare import Error, compare, worst_error
from harness.judge.problem import Problem
from harness.judge.rows import Outputs, Tensors
from harness.records import Operand
from harness.suite.sizes import PART_BYTES, row_bytes
from harness.suite.tolerance import Tolerance, tolerance

LEAST_ROWS = 32
"""Of a timed call [own]: an answer that is wrong in a share f of its rows passes a call with at most (1 -
f)^32."""
_SAMPLE_BYTES = 256 << 20
_CHECK_FLOPS = {"cpu": 50e9, "cuda": 50e12}
"""Of the truth of one call in a check: about 5 s of float64 work [own, not measured on a GPU]."""
_TIMED_SHARE = 0.1
_MOST_SUSPECTS = 64
_PIECE = 1 << 24
"""Elements that are compared at once."""
_secret = random.SystemRandom()


@dataclass(frozen=True)
class Compared:
    """One output of a call."""

    operand: Operand
    error: Error
    allowed: float
    rule: Tolerance


def sampled_rows(problem: Problem, *, timed: bool) -> tuple[int, int]:
    """(rows that are compared in a call, rows)."""
    task, workload = problem.task, problem.workload
    rows = problem.shape(task.outputs[0])[0]
    flops_per_row = (problem.flops or 0) / max(rows, 1)
    flops = _CHECK_FLOPS["cpu" if problem.device.type == "cpu" else "cuda"] * (_TIMED_SHARE if timed else 1.0)
    affordable = rows if flops_per_row == 0 else max(1, int(flops / flops_per_row))
    wanted = rows
    if timed:
        wanted = max(LEAST_ROWS, _SAMPLE_BYTES // row_bytes(task, workload, problem.dtype))
    return min(rows, wanted, affordable), rows


def missed(wrong: int, compared: int, rows: int) -> float:
    """The chance that none of `wrong` rows is among `compared` of `rows`, drawn without replacement."""
    if wrong + compared > rows:
        return 0.0
    return math.comb(rows - wrong, compared) / math.comb(rows, compared)


def compared_outputs(problem: Problem, inputs: Tensors, outputs: Outputs, *, timed: bool) -> list[Compared]:
    """Every output of a call against the truth. Raises HarnessBug where the reference is at fault."""
    parts = _parts(problem, outputs, timed=timed)
    task = problem.task
    rules = [tolerance(task, operand, problem.dtype) for operand in task.outputs]
    allowed = [1.0] * len(rules)
    errors = _errors(problem, inputs, outputs, parts, rules, allowed)
    if any(error.over for error in errors):
        # Only now the reference's own error matters.
        own = _own_errors(problem, inputs, parts, rules)
        allowed = [rule.allowed(one) for rule, one in zip(rules, own, strict=True)]
        errors = _errors(problem, inputs, outputs, parts, rules, allowed)
    return [Compared(*one) for one in zip(task.outputs, errors, allowed, rules, strict=True)]


def _parts(problem: Problem, outputs: Outputs, *, timed: bool) -> list[torch.Tensor | None]:
    """Rows of each part; [None] for all at once."""
    if not problem.rows_apart:
        return [None]
    count, rows = sampled_rows(problem, timed=timed)
    chosen = list(range(rows)) if count == rows else _secret.sample(range(rows), count)
    if count < rows:
        chosen = list(dict.fromkeys([*chosen, *_suspects(outputs)]))
    block = max(1, PART_BYTES // row_bytes(problem.task, problem.workload, problem.dtype))
    return [torch.tensor(chosen[start : start + block]) for start in range(0, len(chosen), block)]


def _suspects(outputs: Outputs) -> list[int]:
    """Rows, some of them if there are many, with the poison, NaN or an infinity in any output."""
    found: set[int] = set()
    for out in outputs:
        rows = max(1, _PIECE // max(1, out[0].numel()))
        for start in range(0, out.shape[0], rows):
            piece = out[start : start + rows]
            bad = ~piece.isfinite() if piece.is_floating_point() else piece == -1
            found |= {start + int(row) for row in bad.flatten(1).any(dim=1).nonzero()[:, 0]}
    return _secret.sample(sorted(found), min(len(found), _MOST_SUSPECTS))


def _truths(
    problem: Problem, inputs: Tensors, parts: list[torch.Tensor | None]
) -> Iterator[tuple[torch.Tensor | None, Tensors, Outputs]]:
    for rows in parts:
        given = inputs if rows is None else problem.rows_of(inputs, rows)
        yield rows, given, problem.truth(given) if rows is None else problem.truth_of(given)


def _errors(
    problem: Problem,
    inputs: Tensors,
    outputs: Outputs,
    parts: list[torch.Tensor | None],
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


def _own_errors(
    problem: Problem, inputs: Tensors, parts: list[torch.Tensor | None], rules: list[Tolerance]
) -> list[float]:
    """The worst of PyTorch's own, by output."""
    own = [0.0] * len(rules)
    for rows, given, truths in _truths(problem, inputs, parts):
        answers = problem.reference(given) if rows is None else problem.reference_of(given)
        for index, truth in enumerate(truths):
            for _, ours, theirs in _pieces(answers[index], truth):
                own[index] = max(own[index], worst_error(ours, theirs, rules[index].f))
    return own


def _pieces(actual: torch.Tensor, truth: torch.Tensor) -> Iterator[tuple[int, torch.Tensor, torch.Tensor]]:
    """(first index, ...) along the first axis; the tolerance goes by rows of the last axis, which stay
    whole."""
    if truth.dim() < 2:
        yield 0, actual, truth
        return
    rows = max(1, _PIECE // max(1, truth[0].numel()))
    for start in range(0, truth.shape[0], rows):
        yield start, actual[start : start + rows], truth[start : start + rows]


def _joined(sofar: Error, error: Error, rows: torch.Tensor | None, start: int) -> Error:
    where = error.where
    if where:
        first = where[0] + start
        where = (first if rows is None else int(rows[first]), *where[1:])
    worse = error.worst > sofar.worst or (error.worst == sofar.worst and not sofar.where)
    return replace(
        sofar,
        worst=max(sofar.worst, error.worst),
        absolute=max(sofar.absolute, error.absolute),
        over=sofar.over + error.over,
        total=sofar.total + error.total,
        worst_tile=max(sofar.worst_tile, error.worst_tile),
        where=where if worse else sofar.where,
    )
