"""The lines of the text report under a decision: where the lift comes from, turns, the matrix, what was read.

ASCII from us; a part that says nothing is left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from harness.report import figures as f
from harness.report.matrix import matrix_leads
from harness.report.records import (
    Comparison,
    ErrorClass,
    KernelBenchPoint,
    Matrix,
    Reading,
    Summary,
    TurnPoint,
)

Line = tuple[str, str]
"""Text and rich style."""
_MOVEMENTS: Final = 3
_FILES: Final = 6


def wrapped(text: str, width: int, style: str, indent: str = "") -> Iterable[Line]:
    """One or more lines of at most width, later ones indented."""
    for line in textwrap.wrap(text, width, subsequent_indent=indent + "  ", initial_indent=indent) or [""]:
        yield line, style


def details(comparison: Comparison, width: int) -> Iterable[Line]:
    """What stands under one decision."""
    found = comparison.transitions
    if found is not None and found.movements:
        moved = ", ".join(m.words.removesuffix(" of trials") for m in found.movements[:_MOVEMENTS])
        yield from wrapped(f"where lift comes from (net): {moved}", width, "")
    for change in ("removed", "introduced"):
        clear = [one for one in comparison.error_classes if one.change == change]
        if clear:
            yield from wrapped(f"errors {change}: {'; '.join(map(_class, clear))}", width, "")
    if comparison.turns:
        yield from _turns(comparison, comparison.turns)
    if comparison.kernelbench_fast_p:
        yield from _kernelbench(comparison.kernelbench_fast_p)


def _kernelbench(points: Sequence[KernelBenchPoint]) -> Iterable[Line]:
    """Both scores side by side, over the same trials of KernelBench's problems."""
    yield "KernelBench's problems, fast_p: correct and faster than the reference by", "dim"
    rows = [["over", "ours: without", "with", "lift", "CI", "theirs: without", "with"]]
    rows += [f.fast_p_cells(point) for point in points]
    for line in _table(rows):
        yield line, ""
    yield "  ours: by family, the judge's clock; theirs: over kernels, times as claimed", "dim"


def _class(one: ErrorClass) -> str:
    rates = [f.percent(rate.count / rate.n if rate.n else None) for rate in (one.control, one.treatment)]
    name = one.name if one.group == "cause" else f"first build error {one.name}"
    return f"{name} {rates[0]} -> {rates[1]}"


def _table(rows: Sequence[Sequence[str]]) -> Iterable[str]:
    """Columns as wide as they need, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *others in rows:
        cells = [f"{first:<{widths[0]}}", *(f"{c:>{w}}" for c, w in zip(others, widths[1:], strict=True))]
        yield "  ".join(cells).rstrip()


def _turns(comparison: Comparison, points: Sequence[TurnPoint]) -> Iterable[Line]:
    row = comparison.row(comparison.conclusion.metric)
    rows = [["after turn", "without", "with", "lift", "CI", "$ without", "$ with", "lift/$"]]
    for point in points:
        rows.append(
            [
                str(point.turn),
                f.level(row.unit, point.control),
                f.level(row.unit, point.treatment),
                f.change(row.unit, point.lift),
                f.bounds(row.unit, point.low, point.high),
                f.dollars(point.control_cost_usd),
                f.dollars(point.treatment_cost_usd),
                f.per_usd(row.unit, point.lift_per_usd),
            ]
        )
    yield f"{row.label}, turn by turn (decided on the last; dollars per trial so far)", "dim"
    for line in _table(rows):
        yield line, ""


def decisions(summary: Summary, width: int) -> Iterable[Line]:
    """Every matrix of the run, an empty line between two."""
    for index, matrix in enumerate(summary.matrices):
        if index:
            yield "", ""
        yield from _matrix(summary, matrix, width)


def whole_run(summary: Summary, width: int) -> Iterable[Line]:
    """What stands under all decisions."""
    if summary.matrices and not matrix_leads(summary):
        yield "", ""
        yield from decisions(summary, width)
    for reading in summary.readings:
        yield "", ""
        yield from _reading(summary, reading, width)


def _matrix(summary: Summary, matrix: Matrix, width: int) -> Iterable[Line]:
    yield f"decision and lift in {summary.head.metric}, against {matrix.control_label}", "dim"
    rows = [["", *matrix.columns]]
    for row in matrix.rows:
        cells = [f"{c.decision} {f.change(matrix.unit, c.lift)}" for c in row.cells]
        rows.append([f.model_name(summary, row.model), *cells])
    lines = list(_table(rows))
    if max(map(len, lines)) > width:  # too many or too long names for columns
        lines = [
            f"{row[0]} x {name}: {cell}"
            for row in rows[1:]
            for name, cell in zip(rows[0][1:], row[1:], strict=True)
        ]
    for line in lines:
        yield from wrapped(line, width, "")


def _reading(summary: Summary, reading: Reading, width: int) -> Iterable[Line]:
    who = f"{f.model_name(summary, reading.model)} x {reading.label}"
    yield from wrapped(f"what was read: {who}", width, "dim")
    if not reading.files:
        yield "nothing: no trial asked for a file", ""
    names = [("skill ", one) for one in reading.skills] + [("  ", one) for one in reading.files[:_FILES]]
    for lead, one in names:
        share = f.percent(one.trials.count / one.trials.n if one.trials.n else None)
        tokens = "" if one.tokens is None else f", about {f.tokens(one.tokens)} tokens"
        yield from wrapped(f"{lead}{one.file}: {share} of {one.trials.n} trials{tokens}", width, "")
    more = len(reading.files) - _FILES
    if more > 0:
        yield f"  and {f.plural(more, 'file')} more in report.json", ""
