"""The report's figures: levels of both arms, lifts by family, single speedups, causes.

A value that does not exist is said in words, not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from harness.report import figures as f
from harness.report.records import Comparison, FailureGroup, FamilyLift, MetricRow, TrialRow
from harness.report.svg import Axis, box, dot, figure, line, path, point_axis, ratio_axis, text
from harness.report.typeset import typeset
from harness.text import shorten

_WIDTH: Final = 460.0
_LEFT: Final = 126.0
_RIGHT: Final = _WIDTH - 62.0
_ROOM: Final = 36.0  # for a figure to the left of a dot at the axis' start


def _tick(row: MetricRow, value: float) -> str:
    return typeset(f"x{value:g}" if row.unit == "ratio" else f.signed_points(value))


def levels(comparison: Comparison) -> Markup:
    """Both arms' compile rate, correctness and deployed speed, joined by their difference."""
    marks: list[str] = []
    y = 26.0
    shares = Axis(0.0, 1.0, _LEFT + _ROOM, _RIGHT)
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        marks.append(line(shares.at(share), y - 12, shares.at(share), y + 82, "grid"))
        marks.append(text(shares.at(share), y + 98, f"{100 * share:.0f}%", "tick", "middle"))
    for name in ("compiles", "correct"):
        row = comparison.row("compiles" if name == "compiles" else "correct")
        marks += _pair(row, shares, y + 6)
        y += 52
    deployed = comparison.row("deployed")
    values = [v for v in (deployed.control, deployed.treatment) if v is not None]
    y += 44 if values else 24
    axis, ticks = ratio_axis([*values, 1.25], _LEFT + _ROOM, _RIGHT)
    for tick in ticks if values else []:
        marks.append(line(axis.at(tick), y - 12, axis.at(tick), y + 26, "grid"))
        marks.append(text(axis.at(tick), y + 42, typeset(f"{tick:g}x"), "tick", "middle"))
    marks += _pair(deployed, axis, y + 6)
    said = "; ".join(_said(comparison.row(m)) for m in ("compiles", "correct", "deployed"))
    return figure(_WIDTH, y + 52 if values else y + 24, f"Levels of both arms. {said}", marks)


def _said(row: MetricRow) -> str:
    if row.not_measured:
        return f"{row.label} {f.NOT_MEASURED} ({row.not_measured})"
    control, treatment = f.level(row.unit, row.control), f.level(row.unit, row.treatment)
    return f"{row.label} {control} without and {treatment} with"


def _pair(row: MetricRow, axis: Axis, y: float) -> list[str]:
    """A hollow and a filled dot, each with its figure on the outer side."""
    marks = [text(_LEFT - 14, y + 4, row.label, "name", "end")]
    if row.control is None or row.treatment is None:
        why = f"{f.NOT_MEASURED} ({row.not_measured})" if row.not_measured else f.NOT_AVAILABLE
        return [*marks, text(_LEFT + _ROOM, y + 4, why, "tick")]
    a, b = axis.at(row.control), axis.at(row.treatment)
    sides = ("start", "end") if b < a else ("end", "start")
    shift = -11 if b >= a else 11
    return [
        *marks,
        line(a, y, b, y, "bridge"),
        dot(a, y, 5.5, "control"),
        dot(b, y, 5.5, "treatment"),
        text(a + shift, y + 4, typeset(f.level(row.unit, row.control)), "figure", sides[0]),
        text(b - shift, y + 4, typeset(f.level(row.unit, row.treatment)), "figure strong", sides[1]),
    ]


def forest(row: MetricRow, confidence: str) -> Markup:
    """The lift of every family (dot), its tasks (small), and of all families (diamond)."""
    families = sorted(row.per_family, key=lambda family: -family.lift)
    if row.lift is None or not families:
        return Markup("")
    core = [family.lift for family in families] + [v for v in (row.lift, row.low, row.high) if v is not None]
    core += [task.lift for family in families for task in family.tasks]
    make = ratio_axis if row.unit == "ratio" else point_axis
    axis, ticks = make(core, _LEFT, _RIGHT)
    bottom = 24.0 + 22 * len(families) + 14
    marks = [line(axis.at(tick), 12, axis.at(tick), bottom + 16, "grid") for tick in ticks]
    marks += [text(axis.at(tick), bottom + 32, _tick(row, tick), "tick", "middle") for tick in ticks]
    none = axis.at(1.0 if row.unit == "ratio" else 0.0)
    marks.append(line(none, 6, none, bottom + 16, "zero"))
    for index, family in enumerate(families):
        marks += _family(row, family, axis, 24.0 + 22 * index)
    marks += _diamond(row, axis, bottom)
    interval = "" if row.low is None else f", {confidence} {f.interval(row)}"
    label = f"Lift in {row.label} by family: all families {f.change(row.unit, row.lift)}{interval}"
    return figure(_WIDTH, bottom + 40, label, marks)


def _family(row: MetricRow, family: FamilyLift, axis: Axis, y: float) -> list[str]:
    marks = [text(_LEFT - 14, y + 4, shorten(family.family, 16), "name", "end")]
    if len(family.tasks) > 1:
        marks += [
            dot(axis.at(task.lift), y, 2.4, "task", f"{task.task}: {f.change(row.unit, task.lift)}")
            for task in family.tasks
        ]
    marks.append(dot(axis.at(family.lift), y, 4.5, "treatment", f.change(row.unit, family.lift)))
    marks.append(text(_WIDTH - 4, y + 4, typeset(_bare(row, family.lift)), "figure", "end"))
    return marks


def _bare(row: MetricRow, value: float) -> str:
    return f.change(row.unit, value).removesuffix(" pts")


def _diamond(row: MetricRow, axis: Axis, y: float) -> list[str]:
    assert row.lift is not None
    middle = axis.at(row.lift)
    low = middle - 5 if row.low is None else axis.at(row.low)
    high = middle + 5 if row.high is None else axis.at(row.high)
    corners = [(low, y), (middle, y - 7), (high, y), (middle, y + 7)]
    return [
        line(8, y - 16, _WIDTH - 4, y - 16, "rule"),
        text(_LEFT - 14, y + 4, "all families", "name strong", "end"),
        path(corners, "diamond", closed=True),
        text(_WIDTH - 4, y + 4, typeset(_bare(row, row.lift)), "figure strong", "end"),
    ]


def speed_strip(arms: Sequence[tuple[str, str, Sequence[TrialRow]]]) -> Markup:
    """Every correct kernel's speedup: (label, kind, trials) per arm, one lane each."""
    values = [row.speedup for _, _, rows in arms for row in rows if row.speedup is not None]
    if not values:
        return Markup("")
    axis, ticks = ratio_axis(values, _LEFT, _WIDTH - 14.0)
    lane, top = 62.0, 14.0
    bottom = top + lane * len(arms)
    marks = [line(axis.at(tick), top, axis.at(tick), bottom, "grid") for tick in ticks]
    marks += [text(axis.at(t), bottom + 18, typeset(f"{t:g}x"), "tick", "middle") for t in ticks]
    marks.append(line(axis.at(1.0), top - 6, axis.at(1.0), bottom, "zero"))
    for index, (label, kind, rows) in enumerate(arms):
        middle = top + lane * (index + 0.5)
        speeds = sorted(((r.speedup, r) for r in rows if r.speedup is not None), key=lambda pair: pair[0])
        marks.append(text(_LEFT - 14, middle, shorten(label, 16), "name", "end"))
        marks.append(text(_LEFT - 14, middle + 15, f"{len(speeds)} correct", "tick", "end"))
        for (x, offset), (value, row) in zip(_swarm([axis.at(v) for v, _ in speeds]), speeds, strict=True):
            title = f"{row.task}, run {row.repeat}: {f.speedup(value)}"
            marks.append(dot(x, middle + offset, 2.6, f"single kind-{kind}", title))
    marks.append(
        text((axis.left + axis.right) / 2, bottom + 36, "reference time / student time", "tick", "middle")
    )
    return figure(_WIDTH, bottom + 44, f"Speedups of {len(values)} correct kernels by arm", marks)


def _swarm(places: Sequence[float]) -> list[tuple[float, float]]:
    """Sorted x positions with y offsets so that dots of 5 px overlap little, within 25 px."""
    placed: list[tuple[float, float]] = []
    offsets = sorted((5.4 * i for i in range(-4, 5)), key=abs)
    for x in places:
        near = [p for p in placed[-40:] if x - p[0] < 5.4]
        free = (o for o in offsets if all(math.hypot(x - px, o - py) >= 5.2 for px, py in near))
        placed.append((x, next(free, offsets[len(placed) % len(offsets)])))
    return placed


def causes(groups: Sequence[FailureGroup], arms: Mapping[str, tuple[str, str]]) -> Markup:
    """Failures by cause, one bar per arm; arms: id to (label, kind)."""
    if not groups:
        return Markup("")
    width, left, bar = 640.0, 168.0, 11.0
    most = max(count.count for group in groups for count in group.counts) or 1
    axis = Axis(0.0, most, left, width - 40)
    marks: list[str] = []
    y = 6.0
    for group in groups:
        height = (bar + 3) * len(group.counts)
        marks.append(text(left - 14, y + height / 2 + 3, group.cause.value.replace("_", " "), "name", "end"))
        for count in group.counts:
            label, kind = arms[count.arm]
            title = f"{label}: {count.count}"
            marks.append(box(left, y, max(axis.at(count.count) - left, 1.0), bar, f"kind-{kind}", title))
            marks.append(text(axis.at(count.count) + 7, y + bar - 1.5, str(count.count), "figure"))
            y += bar + 3
        y += 9
    return figure(width, y, "Failures by cause and arm", marks)
