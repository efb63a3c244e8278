"""What came of one reveal: the judge's own figures, and what the worker says.

Whatever a worker sends, what comes out is well formed or absent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

Mode = Literal["eager", "graph", "queued", "warm"]
"""How calls are made. All but `eager` are for CUDA, and secondary figures."""
SecondaryMode = Literal["graph", "queued", "warm"]
_MODES: dict[str, Mode] = {mode: mode for mode in get_args(Mode)}
EACH = 512
"""Single calls that a worker may report beside their sum."""


@dataclass(frozen=True)
class CallTimes:
    """One reveal."""

    outside_s: float
    """From before the descriptor is handed over until the worker is frozen for the snapshot."""
    latency_s: float
    """From `done` until nothing that the worker does can change the snapshot."""
    claim_ns: int | None
    """What the worker says of all calls together; None where it made no well-formed claim."""
    each_ns: tuple[int, ...] = ()
    """What it says of single calls: the first ones, or none."""
    aside_ns: int = 0
    """What it says it spent on copying a reference's results into the judge's buffers. A claim, too."""
    mode: Mode = "eager"
    """How it says it made the calls: `eager` where it could not do as asked (some ops resist capture)."""


def call_times(
    answer: dict[str, Any], calls: int, *, outside_s: float, latency_s: float, most_s: float
) -> CallTimes:
    """From a worker's answer, in which only `ns` is known to be a list; a claim beyond `most_s` is none."""
    most = int(most_s * 1e9)

    def duration(value: object) -> int | None:
        return value if type(value) is int and 0 <= value <= most else None

    each = [duration(value) for value in answer["ns"][:EACH]]
    mode = _MODES.get(str(answer.get("mode")), "eager")
    return CallTimes(
        outside_s=outside_s,
        latency_s=latency_s,
        claim_ns=duration(answer.get("total_ns")) if answer.get("calls") == calls else None,
        each_ns=() if None in each or len(each) > calls else tuple(ns for ns in each if ns is not None),
        aside_ns=duration(answer.get("aside_ns")) or 0,
        mode="eager" if answer.get("why") else mode,
    )
