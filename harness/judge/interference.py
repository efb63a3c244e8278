"""Whether a student's frozen process slows down the references that it is compared with.

SIGSTOP stops threads, not the kernel's work for a process. So references are measured with the student
frozen, with its process gone, and with an idle reference in its place as control.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.device.telemetry import SamplePair
from harness.records.timing import Interference

State = Literal["frozen", "gone", "control"]
"""Of the student's process during a reference's turn; `control`: an idle reference is frozen instead."""
FLAG: Final = "interference"
MARGIN: Final = 0.05
"""Excess below which nothing is called interference (our choice), or 3 sigma where that is more."""
LIVES: Final = 3
CAUSE_FACTOR: Final = 2.0
CAUSE_PER_S: Final = 300.0
"""More interrupts or softirqs per second by both count as a cause. A quiet machine has 300 to 1,000."""


@dataclass(frozen=True)
class ReferenceTurn:
    name: str
    state: State
    life: int
    """Which process of the student's: 0 is the one that is scored."""
    us: float
    interrupts_per_s: float | None = None
    softirqs_per_s: float | None = None


def rates(samples: SamplePair | None) -> tuple[float | None, float | None]:
    """(interrupts, softirqs) per second between two samples of the machine; None where they are unknown."""
    if samples is None:
        return None, None
    before, after = samples
    elapsed_s = max(after.at_s - before.at_s, 1e-6)
    counts = ((before.interrupts, after.interrupts), (before.softirqs, after.softirqs))
    interrupts, softirqs = (None if a is None or b is None else (b - a) / elapsed_s for a, b in counts)
    return interrupts, softirqs


def _excess(turns: Sequence[ReferenceTurn], state: State) -> tuple[float, float] | None:
    """(mean log ratio of `state` to `gone` over references, its standard error by a pooled variance), or
    None."""
    groups: dict[tuple[str, State], list[float]] = defaultdict(list)
    for turn in turns:
        groups[turn.name, turn.state].append(math.log(turn.us))
    names = [n for n in {turn.name for turn in turns} if groups[n, state] and groups[n, "gone"]]
    if not names:
        return None
    pairs = [(groups[name, state], groups[name, "gone"]) for name in names]
    values = [group for pair in pairs for group in pair]
    freedom = sum(len(group) - 1 for group in values)
    squares = sum((x - statistics.fmean(group)) ** 2 for group in values for x in group)
    variance = squares / freedom if freedom else math.inf
    mean = statistics.fmean(statistics.fmean(a) - statistics.fmean(b) for a, b in pairs)
    error = math.sqrt(sum(variance * (1 / len(a) + 1 / len(b)) for a, b in pairs)) / len(pairs)
    return mean, error


def judge_interference(turns: Sequence[ReferenceTurn]) -> Interference | None:
    """What the turns of all lives show; None where a state is missing. The scored process must show it,
    beyond the control, and so must one of the others that were measured: one slow phase of a machine looks
    the same."""
    scored = _excess([turn for turn in turns if turn.life == 0], "frozen")
    if scored is None:
        return None
    control = _excess([turn for turn in turns if turn.state != "frozen"], "control")
    usual = 0.0 if control is None else max(0.0, control[0])
    lives = sorted({turn.life for turn in turns})
    by_life = (_excess([turn for turn in turns if turn.life == life], "frozen") for life in lives)
    slowed = sum(_seen(excess, usual) for excess in by_life)
    return Interference(
        excess=math.expm1(scored[0]),
        control=None if control is None else math.expm1(control[0]),
        uncertainty=math.expm1(3 * scored[1]) if math.isfinite(scored[1]) else None,
        seen=_seen(scored, usual) and slowed >= min(2, len(lives)),
        lives=len(lives),
        lives_slowed=slowed,
        cause=_cause(turns),
    )


def _seen(excess: tuple[float, float] | None, usual: float) -> bool:
    return excess is not None and excess[0] - usual > max(math.log1p(MARGIN), 3 * excess[1])


def _cause(turns: Sequence[ReferenceTurn]) -> str | None:
    for what, field in (("interrupts", "interrupts_per_s"), ("softirqs", "softirqs_per_s")):
        known = [(t.state, rate) for t in turns if (rate := getattr(t, field)) is not None]
        both = [[rate for state, rate in known if state == one] for one in ("frozen", "gone")]
        frozen, gone = (statistics.fmean(values) if values else math.nan for values in both)
        if frozen > CAUSE_FACTOR * gone + CAUSE_PER_S:  # not where one is unknown
            return f"{frozen:,.0f} {what} per second while it stood frozen, {gone:,.0f} without it"
    return None


def words(found: Interference) -> str:
    control = "" if found.control is None else f" (control {100 * found.control:+.0f} %)"
    cause = "" if found.cause is None else f": {found.cause}"
    return f"references took {100 * found.excess:+.0f} %{control} while its process stood frozen{cause}"


def is_cheat(found: Interference) -> bool:
    return found.seen and found.cause is not None and found.lives >= LIVES == found.lives_slowed
