"""Records of an A/A calibration: the clock against contenders that are the same."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from harness.records.base import SCHEMA_VERSION, Protocol, Record
from harness.records.grade import Ratio


class HandShake(Record):
    """What a reveal costs without any work, per call: the null project."""

    lane: Literal["call", "batch"]
    reveals: int
    c05_us: float
    """5th percentile: what is taken off every outside figure."""
    median_us: float
    p95_us: float


class SizeFigures(Record):
    """The same reference at one size."""

    workload: str
    dtype: str
    bytes_moved: int
    hand_shake: tuple[HandShake, ...]
    lane: Literal["call", "batch"]
    """Which would be scored: `batch` where a call is shorter than 10 L."""
    inside_us: float
    """By the worker's own clock, per call."""
    outside_us: float
    uncertainty_us: float
    """u: a figure further from the outside one contradicts it."""
    latency_us: float
    """L: from `done` until nothing can change any more."""
    ratio: Ratio
    """Of two processes of it, by blocks as in `quick`, by their own clocks. 1 is right."""
    outside_ratio: Ratio
    """The same by the outside clock."""
    process_spread: float | None
    """Standard deviation between equal processes, as a share: what an interval over blocks leaves out."""


class FalseAlarms(Record):
    """How often one of two equal contenders would be called faster; at most 2.5 % would be right for each
    direction of a 95 % interval, and 5 % is what protocols allow."""

    protocol: Protocol
    """Whose rule: `quick`, blocks of one pair of processes; `full`, one ratio per pair of processes."""
    clock: Literal["inside", "outside"]
    comparisons: int
    """Resampled from the recorded blocks, so they are not independent."""
    rate: float
    """By the interval alone."""
    rate_with_gate: float
    """And an effect of at least 2 %."""


class Calibration(Record):
    """What `liftbench doctor --timing` has measured."""

    schema_version: Literal[1] = SCHEMA_VERSION
    task: str
    """Whose reference was timed."""
    transport: str
    transport_facts: dict[str, str] = Field(default_factory=dict)
    sandbox: str = ""
    processes: int
    """Of the same reference."""
    sizes: tuple[SizeFigures, ...]
    false_alarms: tuple[FalseAlarms, ...]
    blocks: int
    disturbed_blocks: int
    disturbances: tuple[str, ...]
    noisy: bool
    """More than 10 % of the blocks were disturbed, or an A/A interval is wider than 5 %."""
    wall_s: float | None = None
