"""What all estimates share: the record of an interval, checks of inputs, the mean."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

DUST: Final = 1e-12
"""Differences below this share of the largest input are rounding errors and count as ties."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A two-sided confidence interval in the units of the estimate; low < high."""

    low: float
    high: float


def require(condition: bool, message: str) -> None:
    """ValueError(message) unless condition."""
    if not condition:
        raise ValueError(message)


def share(value: float, name: str) -> float:
    """value, which lies strictly between 0 and 1, else ValueError."""
    require(0.0 < value < 1.0, f"{name} must lie strictly between 0 and 1, got {value}")
    return value


def finite(values: Iterable[float], name: str) -> list[float]:
    """values: (n,), n >= 1 and every one finite, else ValueError."""
    checked = [float(value) for value in values]
    require(bool(checked), f"{name}: at least one value is needed")
    require(all(map(math.isfinite, checked)), f"{name}: every value must be finite")
    return checked


def mean_of(values: Sequence[float]) -> float:
    """The mean of values: (n,), n >= 1."""
    return math.fsum(values) / len(values)  # fsum: the result does not depend on the order
