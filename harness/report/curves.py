"""Figures with a line per arm: fast_p, and the primary metric turn by turn.

A band is drawn only where there is an interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from markupsafe import Markup

from harness.report import figures as f
from harness.report.records import FastLevel, TurnPoint, Unit
from harness.report.svg import Axis, dot, figure, line, path, point_axis, ratio_axis, text
from harness.report.typeset import typeset
from harness.text import shorten

_WIDTH: Final = 460.0
_LEFT: Final = 44.0
_TOP, _BOTTOM = 14.0, 176.0
_LABEL_GAP: Final = 15.0


def _apart(ends: Sequence[float]) -> list[float]:
    """Heights of labels, in the given order, moved so that two stand at least a line apart."""
    if len(ends) != 2 or abs(ends[0] - ends[1]) >= _LABEL_GAP:
        return list(ends)
    middle, half = sum(ends) / 2, _LABEL_GAP / 2
    return [middle - half, middle + half] if ends[0] < ends[1] else [middle + half, middle - half]


def fast_curve(arms: Sequence[tuple[str, str, Sequence[FastLevel]]]) -> Markup:
    """Share of kernels correct and faster than each threshold.

    arms: one or two (name, `control` or `treatment`, levels).
    """
    arms = [arm for arm in arms if arm[2]]
    if not arms:
        return Markup("")
    right = _WIDTH - 84.0
    x, y = Axis(0.0, 2.0, _LEFT, right), Axis(0.0, 1.0, _BOTTOM, _TOP)
    marks = [line(_LEFT, y.at(s), right, y.at(s), "grid") for s in (0.0, 0.25, 0.5, 0.75, 1.0)]
    marks += [text(_LEFT - 8, y.at(s) + 4, f"{100 * s:.0f}%", "tick", "end") for s in (0.0, 0.5, 1.0)]
    marks.append(line(x.at(1.0), _TOP, x.at(1.0), _BOTTOM, "zero"))
    for level in arms[0][2]:
        label = typeset(f"{level.threshold:g}x")
        marks.append(text(x.at(level.threshold), _BOTTOM + 18, label, "tick", "middle"))
    for _, kind, levels in arms:
        marks += _band(x, y, [(one.threshold, one.low, one.high) for one in levels], kind)
    for _, kind, levels in arms:
        places = [(x.at(one.threshold), y.at(one.share)) for one in levels]
        marks.append(path(places, f"curve {kind}-line"))
        for place, one in zip(places, levels, strict=True):
            marks.append(dot(*place, 3.6, kind, f.percent(one.share)))
    heights = _apart([y.at(levels[-1].share) for _, _, levels in arms])
    for (name, kind, levels), height in zip(arms, heights, strict=True):
        strong = "figure strong" if kind == "treatment" else "figure"
        marks.append(text(right + 10, height + 4, f"{name} {f.percent(levels[-1].share)}", strong))
    said = "speedup that a correct kernel exceeds"
    marks.append(text((_LEFT + right) / 2, _BOTTOM + 36, said, "tick", "middle"))
    return figure(_WIDTH, _BOTTOM + 44, "Share of kernels correct and faster than each threshold", marks)


def _band(x: Axis, y: Axis, ends: Sequence[tuple[float, float | None, float | None]], kind: str) -> list[str]:
    known = [(at, low, high) for at, low, high in ends if low is not None and high is not None]
    if len(known) < 2:
        return []
    upper = [(x.at(at), y.at(high)) for at, _, high in known]
    lower = [(x.at(at), y.at(low)) for at, low, _ in reversed(known)]
    return [path([*upper, *lower], f"band {kind}-band", closed=True)]


def turn_curve(unit: Unit, points: Sequence[TurnPoint]) -> Markup:
    """The lift after every turn with its interval: how much of it is there at once, how much by repair."""
    lifts = [(p.turn, p.lift, p.low, p.high) for p in points if p.lift is not None]
    if not lifts:
        return Markup("")
    right = _WIDTH - 70.0
    ends = [v for _, *values in lifts for v in values if v is not None]
    made, ticks = (ratio_axis if unit == "ratio" else point_axis)(ends, _BOTTOM, _TOP + 14)
    x = Axis(0.5, points[-1].turn + 0.5, _LEFT + 16, right)
    marks = [line(_LEFT + 16, made.at(tick), right, made.at(tick), "grid") for tick in ticks]
    for tick in ticks:
        label = typeset(f"x{tick:g}" if unit == "ratio" else f.signed_points(tick))
        marks.append(text(_LEFT + 8, made.at(tick) + 4, label, "tick", "end"))
    none = made.at(1.0 if unit == "ratio" else 0.0)
    marks.append(line(_LEFT + 16, none, right, none, "zero"))
    marks.append(path([(x.at(turn), made.at(lift)) for turn, lift, _, _ in lifts], "curve treatment-line"))
    for turn, lift, low, high in lifts:
        if low is not None and high is not None:
            marks.append(line(x.at(turn), made.at(low), x.at(turn), made.at(high), "whisker"))
        marks.append(dot(x.at(turn), made.at(lift), 4.5, "treatment", f.change(unit, lift)))
        marks.append(text(x.at(turn) + 9, made.at(lift) - 8, typeset(f.change(unit, lift)), "figure strong"))
        marks.append(text(x.at(turn), _BOTTOM + 18, shorten(str(turn), 4), "tick", "middle"))
    marks.append(text((_LEFT + right) / 2, _BOTTOM + 36, "after turn", "tick", "middle"))
    return figure(_WIDTH, _BOTTOM + 44, "Lift after every turn", marks)
