"""A few SVG marks and axes, drawn as strings.

Every text that enters the markup is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "start") -> str:
    """Text with its baseline at y."""
    place = f'x="{_number(x)}" y="{_number(y)}"'
    return f'<text {place} class="{kind}" text-anchor="{anchor}">{escape(content)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    start, end = f'x1="{_number(x1)}" y1="{_number(y1)}"', f'x2="{_number(x2)}" y2="{_number(y2)}"'
    return f'<line {start} {end} class="{kind}"/>'


def dot(x: float, y: float, radius: float, kind: str, title: str = "") -> str:
    """A circle; the title is what a pointer shows."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" class="{kind}">{inner}</circle>'
    )


def box(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    """A rectangle with slightly rounded corners."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(max(width, 0.0))}" '
        f'height="{_number(height)}" rx="1.5" class="{kind}">{inner}</rect>'
    )


def path(points: Sequence[tuple[float, float]], kind: str, *, closed: bool = False) -> str:
    """A line through points, or the area inside them."""
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
        """The pixel of value, clipped to the axis."""
        value = min(max(value, self.low), self.high)
        if self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.left + share * (self.right - self.left)

    def holds(self, value: float) -> bool:
        """Whether value lies on the axis."""
        return self.low <= value <= self.high


# In order of how much a reader wants to see them.
_RATIOS = (1.0, 2.0, 0.5, 10.0, 5.0, 0.2, 1.5, 0.1, 100.0, 1.25, 0.8, 20.0, 3.0, 1.1, 0.9, 50.0, 0.7)
_TICK_ROOM = 38.0  # px, a label such as 1.25x and a gap


def ratio_axis(values: Sequence[float], left: float, right: float) -> tuple[Axis, list[float]]:
    """A log axis that holds values and 1, and ticks at round ratios that leave each other room."""
    low, high = min(1.0, *values), max(1.0, *values)
    low, high = max(0.05, low / 1.06), min(200.0, max(high, low * 1.1) * 1.06)
    axis = Axis(low, high, left, right, log=True)
    ticks: list[float] = []
    for tick in filter(axis.holds, _RATIOS):
        if all(abs(axis.at(tick) - axis.at(other)) >= _TICK_ROOM for other in ticks):
            ticks.append(tick)
    return axis, sorted(ticks)


def point_axis(values: Sequence[float], left: float, right: float) -> tuple[Axis, list[float]]:
    """A linear axis in shares that holds values and 0, within -1 to 1, and ticks in round points."""
    low, high = max(-1.0, min(0.0, *values)), min(1.0, max(0.0, *values))
    span = max(high - low, 0.1)
    step = next(step for step in (0.02, 0.05, 0.1, 0.2, 0.25, 0.5) if span / step <= 6)
    first, last = math.floor(low / step), max(math.ceil(high / step), math.floor(low / step) + 1)
    return Axis(first * step, last * step, left, right), [i * step for i in range(first, last + 1)]
