"""What else goes on while something is measured, and what the judge does to have less of it.

A turn is called disturbed by what the machine shows, never by the figures measured in it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

from harness.device.telemetry import HostTelemetry, Telemetry, Turn, disturbed


@dataclass
class Watched:
    """One turn."""

    reason: str | None = None
    """Why it was disturbed, once it is over; None if it was not."""
    samples: Turn | None = None
    """At the machine, before and after it, once it is over; None where nobody looked."""


class Conditions(Protocol):
    """Looks at the machine around a turn."""

    @property
    def around_lives(self) -> bool:
        """Whether it looks while no contender runs: before one is thawed or started, and after it is frozen
        or killed. Else it looks while the contender of the turn waits for its reveals."""
        ...

    def watched(self) -> AbstractContextManager[Watched]:
        """Around a turn."""
        ...


class TelemetryConditions:
    """Looks at all that telemetry knows before and after a turn, for the record."""

    around_lives = False
    """A GPU's clocks fall as soon as its process has gone."""

    def __init__(self, telemetry: Telemetry, kept_processes: int = 0) -> None:
        """`kept_processes`: of ours, that stand frozen on the GPU while another has its turn."""
        self._telemetry = telemetry
        self._kept_processes = kept_processes

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        """Looks before and after the turn."""
        watched = Watched()
        before = self._telemetry.sample()
        yield watched
        watched.samples = (before, self._telemetry.sample())
        watched.reason = disturbed(*watched.samples, self._kept_processes)


class HostConditions(TelemetryConditions):
    """The CPU target: nobody else may want the cores."""

    around_lives = True
    """A contender's own threads must not be counted: it could have its slow turns dropped."""

    def __init__(self) -> None:
        super().__init__(HostTelemetry())


def settle_judge() -> None:
    """Have malloc reuse large blocks: page faults on them are most of the judge's time otherwise. And have
    torch use one thread here: others would go on spinning for a while, on a contender's core."""
    import torch

    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    libc.mallopt(-3, 32 << 20)  # M_MMAP_THRESHOLD, at its maximum
    libc.mallopt(-1, 1 << 30)  # M_TRIM_THRESHOLD


@contextmanager
def pinned(cpus: frozenset[int] | None) -> Iterator[None]:
    """Keep the calling thread on `cpus`."""
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
