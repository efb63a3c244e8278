"""Lines under a timing: how it was measured, and what else the machine did meanwhile.

What is not known is left out, not guessed.
"""

from __future__ import annotations

from collections.abc import Iterable

from harness.records import ContenderTiming, TimingResult, WorkloadTiming
from harness.records.timing import BlockTelemetry, Extent


def score_lines(timing: TimingResult) -> list[str]:
    """For the card, in order."""
    facts = "; ".join(f"{name} {value}" for name, value in sorted(timing.transport_facts.items()))
    lines = [f"memory shared by {timing.transport}" + (f" ({facts})" if facts else "")]
    for one in timing.workloads:
        lines += [f"{one.workload} {one.dtype}: {line}" for line in _workload_lines(one)]
    return [*lines, *(f"note: {note}" for note in timing.notes)]


def _workload_lines(one: WorkloadTiming) -> Iterable[str]:
    if one.telemetry:
        yield _conditions(one.telemetry)
    for contender in (one.student, *one.references):
        if contender.secondary:
            yield _secondary(contender)


def _secondary(contender: ContenderTiming) -> str:
    figures = ", ".join(f"{other.mode} {other.claimed_us:.1f} us" for other in contender.secondary)
    return f"{contender.name} by its own account, never ranked: {figures}"


def _conditions(blocks: tuple[BlockTelemetry, ...]) -> str:
    disturbed = sum(bool(block.disturbed) for block in blocks)
    said = [f"{len(blocks)} blocks" + (f", {disturbed} of them disturbed" if disturbed else "")]
    stolen = sum(block.steal_s or 0.0 for block in blocks)
    said += [f"{stolen:.2f} s taken by the hypervisor"] if stolen else []
    for name, unit, extents in (
        ("SM clock", "MHz", [block.sm_mhz for block in blocks]),
        ("power", "W", [block.power_w for block in blocks]),
        ("temperature", "C", [block.temperature_c for block in blocks]),
    ):
        said += _range(name, unit, extents)
    held = sorted({reason for block in blocks for reason in block.held_down_by or ()})
    return ", ".join(said + ([f"clocks held down by {' and '.join(held)}"] if held else []))


def _range(name: str, unit: str, extents: list[Extent | None]) -> list[str]:
    known = [extent for extent in extents if extent is not None]
    if not known:
        return []
    low, high = min(one.low for one in known), max(one.high for one in known)
    return [f"{name} {low:.0f} to {high:.0f} {unit}"]
