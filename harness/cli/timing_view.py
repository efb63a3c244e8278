"""An A/A calibration on the terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.judge.clock import MOST_DOUBT
from harness.records import Ratio
from harness.records.timing import Calibration, FalseAlarms, SizeFigures

ALLOWED_ALARMS = 0.05
"""protocols.md: the A/A false-alarm rate is published, and is at most this."""


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _bytes(count: int) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 1 << 20 else f"{count / 2**10:.3g} KiB"


def _ratio(found: Ratio) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.3f} (n/a)"
    return f"{found.value:.3f} ({found.low:.3f}, {found.high:.3f})"


def _sizes(calibration: Calibration) -> Table:
    table = _table("moved", "lane", "inside us", "outside us", "u us", "u %", "L us", "of L")
    for one in calibration.sizes:
        table.add_row(
            _bytes(one.bytes_moved),
            one.lane,
            f"{one.inside_us:.1f}",
            f"{one.outside_us:.1f}",
            f"{one.uncertainty_us:.1f}",
            f"{100 * one.uncertainty_us / one.outside_us:.0f}",
            f"{one.latency_us:.0f}",
            f"{one.outside_us / one.latency_us:.1f}x",
        )
    return table


def _hand_shakes(calibration: Calibration) -> Table:
    table = _table("moved", "lane", "c05 us", "median us", "95 % us", "reveals")
    for size in calibration.sizes:
        for one in size.hand_shake:
            figures = [f"{us:.1f}" for us in (one.c05_us, one.median_us, one.p95_us)]
            table.add_row(_bytes(size.bytes_moved), one.lane, *figures, str(one.reveals))
    return table


def _equals(sizes: tuple[SizeFigures, ...]) -> Table:
    table = _table("moved", "A/A by own clocks", "A/A by the outside clock", "processes differ by")
    for one in sizes:
        spread = "n/a" if one.process_spread is None else f"{100 * one.process_spread:.1f} %"
        table.add_row(_bytes(one.bytes_moved), _ratio(one.ratio), _ratio(one.outside_ratio), spread)
    return table


def _alarms(alarms: tuple[FalseAlarms, ...]) -> Table:
    table = _table("protocol", "clock", "interval alone", "and at least 2 %", "comparisons")
    for one in alarms:
        rates = (f"{100 * rate:.1f} %" for rate in (one.rate, one.rate_with_gate))
        table.add_row(one.protocol, one.clock, *rates, f"{one.comparisons:,}")
    return table


def _meaning(calibration: Calibration) -> Iterator[str]:
    """What follows, and what to do."""
    if calibration.noisy:
        what = f"{calibration.disturbed_blocks} of {calibration.blocks} blocks were disturbed"
        why = f" ({'; '.join(calibration.disturbances[:3])})" if calibration.disturbances else ""
        yield f"noisy host: {what}{why}, or an A/A interval is wider than 5 %."
        yield (
            "Speedups measured now are shown and never ranked. End other programs, give liftbench two cores "
            "that nothing else uses (taskset, isolcpus, cpusets), avoid shared virtual machines, and repeat."
        )
    else:
        what = f"{calibration.disturbed_blocks} of {calibration.blocks} blocks were disturbed"
        yield f"quiet host: {what}, and every A/A interval is within 5 %."
    if calibration.noisy:
        yield "Intervals are wide on such a host, so few false alarms now say nothing of a quiet one."
        return
    worst = max(calibration.false_alarms, key=lambda one: one.rate_with_gate)
    if worst.rate_with_gate > ALLOWED_ALARMS:
        yield (
            f'"Faster" by {worst.protocol} (clock: {worst.clock}) is a false alarm in '
            f"{100 * worst.rate_with_gate:.1f} % of comparisons of equals; 5 % are allowed. Equal processes "
            "differ, which an interval over blocks of one pair cannot see: rank by `full` only."
        )
    else:
        yield f'"Faster" is a false alarm in at most {100 * worst.rate_with_gate:.1f} % (5 % are allowed).'
    coarse = [one for one in calibration.sizes if one.uncertainty_us > MOST_DOUBT * one.outside_us]
    if coarse:
        largest = max(one.bytes_moved for one in coarse)
        yield f"u is above 5 % of calls that move up to {_bytes(largest)}: no claim is used there."


def timing_view(calibration: Calibration) -> RenderableType:
    """Everything, with a heading before each table."""
    parts: list[RenderableType] = [
        Text(
            f"{calibration.task} against itself: {calibration.processes} equal processes, sandbox "
            f"{calibration.sandbox}, transport {calibration.transport}, {calibration.wall_s} s",
            style="bold",
        )
    ]
    for heading, table in (
        ("what a reveal costs without work (c05 is taken off)", _hand_shakes(calibration)),
        (
            "one call: within u both clocks agree, L is the latency of the snapshot",
            _sizes(calibration),
        ),
        ("two equal processes: 1 is right (95 % interval over blocks)", _equals(calibration.sizes)),
        ('false alarms: equals called "faster", by resampling blocks', _alarms(calibration.false_alarms)),
    ):
        parts += [Text(f"\n{heading}", style="dim"), table]
    parts += [Text(""), *(Text(line) for line in _meaning(calibration))]
    return Group(*parts)
