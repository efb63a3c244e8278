"""All numbers of both protocols, `quick` and `full`: how much is checked, and how much is timed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.records import Protocol

RatioUnit = Literal["blocks", "process pairs"]
CONFIRMATIONS = 2
"""Fresh processes that must repeat a false claim before it is called a cheat (3 in all)."""


@dataclass(frozen=True)
class CheckSize:
    """How many cases a check has, beside the task's own workloads."""

    hidden: int
    """Hidden shapes."""
    hidden_bytes: int
    """Maximum size of a hidden shape's operands."""
    seeds: int
    """Further inputs of each workload."""
    repeats: int
    """Calls on the first inputs of each workload."""
    everywhere: bool
    """Every kind of values and layout on every workload that is small enough, else on one of them."""
    small_bytes: int
    """Maximum size of workloads for adversarial values and layouts (the smallest one, if none is)."""


# Five seeds as KernelBench. The rest is our choice: `quick` should cost little more than the workloads alone.
CHECK_SIZES: dict[Protocol, CheckSize] = {
    "quick": CheckSize(
        hidden=2, hidden_bytes=2 << 20, seeds=1, repeats=3, everywhere=False, small_bytes=3 << 18
    ),
    "full": CheckSize(
        hidden=6, hidden_bytes=64 << 20, seeds=4, repeats=3, everywhere=True, small_bytes=64 << 20
    ),
}
EMULATED_SIZES: dict[Protocol, CheckSize] = {
    "quick": CheckSize(
        hidden=2, hidden_bytes=1 << 18, seeds=0, repeats=2, everywhere=False, small_bytes=1 << 18
    ),
    "full": CheckSize(
        hidden=6, hidden_bytes=1 << 20, seeds=1, repeats=3, everywhere=True, small_bytes=1 << 20
    ),
}
"""On the emulated GPU, beside the CPU target's workloads. Fresh inputs come with hidden shapes and values."""


@dataclass(frozen=True)
class Numbers:
    """How much is timed."""

    clean_blocks: int
    """Undisturbed blocks after which it may stop."""
    most_blocks: int
    fresh_processes: bool
    """Each turn is in a process of its own, so that a block compares process pairs."""
    compiled: bool
    stage_s: float = 0.0
    """Blocks of all timed workloads together take at least this long, however wide the interval is: stopping
    at a narrow one would make it too narrow."""
    least_samples: int = 0
    least_measured_s: float = 0.0
    """Time in calls of each candidate, before the interval may stop it."""
    half_width: float | None = None
    """Relative half-width of the 95 % interval of the median at which it may stop; None: blocks decide."""
    most_s: float = 0.0
    """Time spent on one candidate and workload, after which it stops and is flagged."""
    warm_up_s: float = 0.5
    warm_up_calls: int = 10
    batch_sets: tuple[int, int] = (2, 128)
    """Fewest and most input sets revealed at once; the workload's time decides, and memory."""
    avoidable: float = 0.02
    """Of a batch of calls: the most that a reveal's constant, which can be avoided, should be."""
    calls_per_visit: tuple[int, int] = (1, 3)
    """Single reveals beside each batch: their number is secret."""
    probed: float = 1.0
    """Share of visits with a reveal of adversarial values."""
    secondary: bool = False
    flush: bool = False
    """On the host: write other memory before each reveal. (A device's transport always flushes its cache.)"""

    @property
    def unit(self) -> RatioUnit:
        return "process pairs" if self.fresh_processes else "blocks"


_NUMBERS: dict[Protocol, Numbers] = {
    "quick": Numbers(
        clean_blocks=10,
        most_blocks=120,
        fresh_processes=False,
        compiled=False,
        stage_s=5.5,
        warm_up_s=0.2,
        batch_sets=(2, 256),
        avoidable=0.08,
        calls_per_visit=(1, 1),
        probed=0.5,
    ),
    "full": Numbers(
        clean_blocks=10,
        most_blocks=20,
        fresh_processes=True,
        compiled=True,
        least_samples=50,
        least_measured_s=0.5,
        half_width=0.005,
        most_s=15.0,
        batch_sets=(8, 256),
        secondary=True,
        flush=True,
    ),
}

# A kernel of 10 us beside a reveal of some 100 us: only large batches make the constant small. Uncalibrated.
_ON_DEVICE: dict[Protocol, dict[str, Any]] = {
    "quick": {
        "clean_blocks": 6,
        "most_blocks": 10,
        "stage_s": 0.0,
        "warm_up_s": 0.5,
        "avoidable": 0.02,
        "batch_sets": (2, 1024),
        "calls_per_visit": (1, 3),
        "probed": 1.0,
    },
    "full": {"batch_sets": (8, 2048), "flush": False},
}


def numbers_of(protocol: Protocol, *, on_device: bool) -> Numbers:
    numbers = _NUMBERS[protocol]
    return replace(numbers, **_ON_DEVICE[protocol]) if on_device else numbers
