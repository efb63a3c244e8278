"""The figures of the HTML report, drawn as SVG.

Every text that enters the markup is escaped. A value that does not exist is stated in words, not drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from harness.report import figures
from harness.report.comparison_schema import Comparison, FamilyLift, MetricRow
from harness.report.figures import typeset
from harness.report.schema import FastLevel, TrialRow
from harness.text import shorten

_WIDTH: Final = 460.0
_LEFT: Final = 126.0
_RIGHT: Final = _WIDTH - 62.0
_ROOM: Final = 36.0  # for a figure to the left of a dot at the start of the axis
_CURVE_LEFT: Final = 44.0
_TOP, _BOTTOM = 14.0, 176.0
_LABEL_GAP: Final = 15.0
_QUARTERS: Final = (0.0, 0.25, 0.5, 0.75, 1.0)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _tag(name: str, kind: str, title: str = "", **places: float) -> str:
    """An element with numbers as attributes; the title is what a pointer shows."""
    attributes = " ".join(f'{key}="{_number(value)}"' for key, value in places.items())
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<{name} {attributes} class="{kind}">{inner}</{name}>'


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    place = f'x="{_number(x)}" y="{_number(y)}"'
    return f'<text {place} class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return _tag("line", kind, x1=x1, y1=y1, x2=x2, y2=y2)


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    return _tag("circle", kind, title, cx=x, cy=y, r=radius)


def path(points: Sequence[tuple[float, float]], kind: str, *, closed: bool = False) -> str:
    steps = " L".join(f"{_number(x)} {_number(y)}" for x, y in points)
    return f'<path d="M{steps}{" Z" if closed else ""}" class="{kind}"/>'


def figure(width: float, height: float, label: str, marks: Sequence[str]) -> Markup:
    """The <svg> element; label is what a screen reader says."""
    return Markup(
        f'<svg viewBox="0 0 {_number(width)} {_number(height)}" role="img" aria-label="{escape(label)}">'
        f"{''.join(marks)}</svg>"
    )


@dataclass(frozen=True)
class Axis:
    """A horizontal (or, with left > right, reversed) scale from data to pixels."""

    low: float
    high: float
    left: float
    right: float
    log: bool = False

    def at(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)


# The most wanted first.
_RATIOS = (1.0, 2.0, 0.5, 10.0, 5.0, 0.2, 1.5, 0.1, 100.0, 1.25, 0.8, 20.0, 3.0, 1.1, 0.9, 50.0, 0.7)
_TICK_ROOM = 38.0  # px, a label such as 1.25x and a gap


def ratio_axis(values: Sequence[float], left: float, right: float) -> tuple[Axis, list[float]]:
    """A log axis that holds values and 1, and ticks at round ratios that leave each other room."""
    low, high = min(1.0, *values), max(1.0, *values)
    low, high = max(0.05, low / 1.06), min(200.0, max(high, low * 1.1) * 1.06)
    axis = Axis(low, high, left, right, log=True)
    ticks: list[float] = []
    for tick in _RATIOS:
        if low <= tick <= high and all(abs(axis.at(tick) - axis.at(other)) >= _TICK_ROOM for other in ticks):
            ticks.append(tick)
    return axis, sorted(ticks)


def point_axis(values: Sequence[float], left: float, right: float) -> tuple[Axis, list[float]]:
    """A linear axis in shares that holds values and 0, within -1 to 1, and ticks in round points."""
    low, high = max(-1.0, min(0.0, *values)), min(1.0, max(0.0, *values))
    span = max(high - low, 0.1)
    step = next(step for step in (0.02, 0.05, 0.1, 0.2, 0.25, 0.5) if span / step <= 6)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return Axis(first * step, last * step, left, right), [i * step for i in range(first, last + 1)]


def _vertical_grid(
    axis: Axis, ticks: Sequence[float], labels: Sequence[str], top: float, bottom: float, gap: float
) -> list[str]:
    marks = []
    for tick, label in zip(ticks, labels, strict=True):
        marks.append(line(axis.at(tick), top, axis.at(tick), bottom, "grid"))
        marks.append(text(axis.at(tick), bottom + gap, typeset(label), "tick", "middle"))
    return marks


def levels(comparison: Comparison) -> Markup:
    """Both arms' compile rate, correctness and deployed speed, joined by their difference."""
    y, shares = 26.0, Axis(0.0, 1.0, _LEFT + _ROOM, _RIGHT)
    marks = _vertical_grid(shares, _QUARTERS, [figures.percent(q) for q in _QUARTERS], y - 12, y + 82, 16)
    for row in (comparison.row("compiles"), comparison.row("correct")):
        marks += _pair(row, shares, y + 6)
        y += 52
    deployed = comparison.row("deployed")
    values = [v for v in (deployed.control, deployed.treatment) if v is not None]
    y += 44 if values else 24
    axis, ticks = ratio_axis([*values, 1.25], _LEFT + _ROOM, _RIGHT)
    if values:
        marks += _vertical_grid(axis, ticks, [f"{tick:g}x" for tick in ticks], y - 12, y + 26, 16)
    marks += _pair(deployed, axis, y + 6)
    rows = "; ".join(_described(comparison.row(m)) for m in ("compiles", "correct", "deployed"))
    return figure(_WIDTH, y + 52 if values else y + 24, f"Levels of both arms. {rows}", marks)


def _described(row: MetricRow) -> str:
    control, treatment = figures.level(row.unit, row.control), figures.level(row.unit, row.treatment)
    measured = f"{control} without and {treatment} with"
    return f"{row.label} {_unmeasured(row) or measured}"


def _unmeasured(row: MetricRow) -> str:
    return f"{figures.NOT_MEASURED} ({row.not_measured})" if row.not_measured else ""


def _pair(row: MetricRow, axis: Axis, y: float) -> list[str]:
    """A hollow and a filled dot, each with its figure on the outer side."""
    marks = [text(_LEFT - 14, y + 4, row.label, "name", "end")]
    if row.control is None or row.treatment is None:
        return [*marks, text(_LEFT + _ROOM, y + 4, _unmeasured(row) or figures.NOT_AVAILABLE, "tick")]
    a, b = axis.at(row.control), axis.at(row.treatment)
    sides = ("start", "end") if b < a else ("end", "start")
    shift = -11 if b >= a else 11
    return [
        *marks,
        line(a, y, b, y, "bridge"),
        dot(a, y, 5.5, "control"),
        dot(b, y, 5.5, "treatment"),
        text(a + shift, y + 4, typeset(figures.level(row.unit, row.control)), "figure", sides[0]),
        text(b - shift, y + 4, typeset(figures.level(row.unit, row.treatment)), "figure strong", sides[1]),
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
    labels = [f"x{tick:g}" if row.unit == "ratio" else figures.signed_points(tick) for tick in ticks]
    marks = _vertical_grid(axis, ticks, labels, 12, bottom + 16, 16)
    none = axis.at(1.0 if row.unit == "ratio" else 0.0)
    marks.append(line(none, 6, none, bottom + 16, "zero"))
    for index, family in enumerate(families):
        marks += _family(row, family, axis, 24.0 + 22 * index)
    marks += _diamond(row, axis, bottom)
    interval = "" if row.low is None else f", {confidence} {figures.bounds(row.unit, row)}"
    label = f"Lift in {row.label} by family: all families {figures.change(row.unit, row.lift)}{interval}"
    return figure(_WIDTH, bottom + 40, label, marks)


def _family(row: MetricRow, family: FamilyLift, axis: Axis, y: float) -> list[str]:
    marks = [text(_LEFT - 14, y + 4, shorten(family.family, 16), "name", "end")]
    if len(family.tasks) > 1:
        for task in family.tasks:
            title = f"{task.task}: {figures.change(row.unit, task.lift)}"
            marks.append(dot(axis.at(task.lift), y, 2.4, "task", title))
    marks.append(dot(axis.at(family.lift), y, 4.5, "treatment", figures.change(row.unit, family.lift)))
    marks.append(
        text(_WIDTH - 4, y + 4, typeset(figures.bare_change(row.unit, family.lift)), "figure", "end")
    )
    return marks


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
        text(_WIDTH - 4, y + 4, typeset(figures.bare_change(row.unit, row.lift)), "figure strong", "end"),
    ]


def speed_strip(arms: Sequence[tuple[str, str, Sequence[TrialRow]]]) -> Markup:
    """Every correct kernel's speedup: (label, kind, trials) per arm, one lane each."""
    values = [row.speedup for _, _, rows in arms for row in rows if row.speedup is not None]
    if not values:
        return Markup("")
    axis, ticks = ratio_axis(values, _LEFT, _WIDTH - 14.0)
    lane, top = 62.0, 14.0
    bottom = top + lane * len(arms)
    marks = _vertical_grid(axis, ticks, [f"{tick:g}x" for tick in ticks], top, bottom, 18)
    marks.append(line(axis.at(1.0), top - 6, axis.at(1.0), bottom, "zero"))
    for index, (label, kind, rows) in enumerate(arms):
        middle = top + lane * (index + 0.5)
        speeds = sorted(((r.speedup, r) for r in rows if r.speedup is not None), key=lambda pair: pair[0])
        marks.append(text(_LEFT - 14, middle, shorten(label, 16), "name", "end"))
        marks.append(text(_LEFT - 14, middle + 15, f"{len(speeds)} correct", "tick", "end"))
        for place, (value, row) in enumerate(speeds):
            title = f"{row.task}, run {row.repeat}: {figures.speedup(value)}"
            height = middle + 5.4 * (place * 4 % 9 - 4)  # neighbors lie apart
            marks.append(dot(axis.at(value), height, 2.6, f"single kind-{kind}", title))
    marks.append(
        text((axis.left + axis.right) / 2, bottom + 36, "reference time / student time", "tick", "middle")
    )
    return figure(_WIDTH, bottom + 44, f"Speedups of {len(values)} correct kernels by arm", marks)


def _apart(ends: Sequence[float]) -> list[float]:
    """Heights of labels, in the given order, moved at least a line apart."""
    if len(ends) != 2 or abs(ends[0] - ends[1]) >= _LABEL_GAP:
        return list(ends)
    middle, half = sum(ends) / 2, math.copysign(_LABEL_GAP / 2, ends[1] - ends[0])
    return [middle - half, middle + half]


def fast_curve(arms: Sequence[tuple[str, str, Sequence[FastLevel]]]) -> Markup:
    """Share of kernels correct and faster than each threshold.

    arms: one or two (name, `control` or `treatment`, levels).
    """
    arms = [arm for arm in arms if arm[2]]
    if not arms:
        return Markup("")
    right = _WIDTH - 104.0
    x, y = Axis(0.0, 2.0, _CURVE_LEFT, right), Axis(0.0, 1.0, _BOTTOM, _TOP)
    marks = [line(_CURVE_LEFT, y.at(s), right, y.at(s), "grid") for s in _QUARTERS]
    marks += [text(_CURVE_LEFT - 8, y.at(s) + 4, figures.percent(s), "tick", "end") for s in (0.0, 0.5, 1.0)]
    marks.append(line(x.at(1.0), _TOP, x.at(1.0), _BOTTOM, "zero"))
    for level in arms[0][2]:
        label = typeset(f"{level.threshold:g}x")
        marks.append(text(x.at(level.threshold), _BOTTOM + 18, label, "tick", "middle"))
    marks += [_band(x, y, levels, kind) for _, kind, levels in arms]
    for _, kind, levels in arms:
        places = [(x.at(one.threshold), y.at(one.share)) for one in levels]
        marks.append(path(places, f"curve {kind}-line"))
        for place, one in zip(places, levels, strict=True):
            marks.append(dot(*place, 3.6, kind, figures.percent(one.share)))
    heights = _apart([y.at(levels[-1].share) for _, _, levels in arms])
    for (name, kind, levels), height in zip(arms, heights, strict=True):
        strong = "figure strong" if kind == "treatment" else "figure"
        marks.append(text(right + 10, height + 4, f"{name} {figures.percent(levels[-1].share)}", strong))
    caption = "speedup that a correct kernel exceeds"
    marks.append(text((_CURVE_LEFT + right) / 2, _BOTTOM + 36, caption, "tick", "middle"))
    return figure(_WIDTH, _BOTTOM + 44, "Share of kernels correct and faster than each threshold", marks)


def _band(x: Axis, y: Axis, levels: Sequence[FastLevel], kind: str) -> str:
    """The area between the ends of the intervals, where two points or more have one."""
    upper = [(x.at(one.threshold), y.at(one.high)) for one in levels if one.high is not None]
    lower = [(x.at(one.threshold), y.at(one.low)) for one in levels if one.low is not None]
    return path([*upper, *reversed(lower)], f"band {kind}-band", closed=True) if len(upper) > 1 else ""
