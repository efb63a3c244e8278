"""Which skills help which models: the compatibility matrix.

A matrix exists only where there is more than one model or more than one skill or combination.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from harness.report.records import Comparison, Matrix, MatrixCell, MatrixRow, Summary

LEADS_ABOVE: Final = 3
"""Comparisons: with more of them nobody reads a sentence for each before the table of them all."""


def matrix_leads(summary: Summary) -> bool:
    """Whether the matrix stands before the headlines."""
    return bool(summary.matrices) and len(summary.comparisons) > LEADS_ABOVE


def _cell(comparison: Comparison) -> MatrixCell:
    row = comparison.row(comparison.conclusion.metric)
    return MatrixCell(
        arm=comparison.treatment,
        decision=comparison.conclusion.decision,
        lift=row.lift,
        low=row.low,
        high=row.high,
    )


def matrices(comparisons: Sequence[Comparison]) -> Iterable[Matrix]:
    """One matrix per kind of control; every model was given every arm."""
    for label in dict.fromkeys(c.control_label for c in comparisons):
        members = [c for c in comparisons if c.control_label == label]
        if len(members) < 2:
            continue
        columns = {c.treatment: c.label for c in members}
        yield Matrix(
            control_label=label,
            unit=members[0].row(members[0].conclusion.metric).unit,
            columns=tuple(columns.values()),
            rows=tuple(
                MatrixRow(model=model, cells=tuple(_cell(c) for c in members if c.model == model))
                for model in dict.fromkeys(c.model for c in members)
            ),
        )
