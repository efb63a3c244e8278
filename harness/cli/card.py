"""The card that `grade` prints: one project's verdict and how it came about.

Owns: the layout of the card. Does not own: any figure on it. Invariant: what was not reached or is
not known says so; nothing is rounded but here.
"""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.outcome import Verdict
from harness.records import BuildResult, CheckResult, Grade, Ratio, TimingResult, WorkloadTiming

_COLOURS = {Verdict.CORRECT: "green", Verdict.NOT_MEASURED: "yellow", Verdict.INFRA: "yellow"}
_SAFE = str.maketrans({chr(c): " " for c in range(32) if c not in (9, 10)} | {chr(127): " "})


def untrusted(text: str) -> Text:
    """Text of a student's, without control characters, never read as markup."""
    return Text(text.translate(_SAFE))


def ratio_text(ratio: Ratio) -> str:
    """Such as `1.31x (1.11, 1.44)`, and whether it can be told from 1."""
    if ratio.low is None or ratio.high is None:
        return f"{ratio.value:.2f}x (n/a)"
    note = "" if ratio.distinguishable else ", not distinguishable from 1"
    return f"{ratio.value:.2f}x ({ratio.low:.2f}, {ratio.high:.2f}){note}"


def _build_line(build: BuildResult) -> str:
    compiler = "" if build.compiler_s is None else f", compilers {build.compiler_s:.1f} s"
    cached = "from the cache" if build.cache_hit else f"{build.wall_s:.1f} s"
    where = ", ".join(build.architectures) or build.backend
    return (
        f"build      {'ok' if build.ok else 'failed'}, {cached}{compiler}, {where}, {build.units or 0} units"
    )


def _check_table(check: CheckResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, side in (
        ("workload", "left"),
        ("dtype", "left"),
        ("worst error", "right"),
        ("allowed", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    table.add_column("")
    for one in check.workloads:
        worst = "-" if one.worst_error is None else f"{one.worst_error:.3g}"
        allowed = "-" if one.allowed_error is None else f"{one.allowed_error:.3g}"
        table.add_row(one.workload, one.dtype, worst, allowed, "ok" if one.finding is None else "failed")
    for label in check.not_run:
        workload, _, dtype = label.partition(" ")
        table.add_row(workload, dtype, "-", "-", "not run")
    return table


def _timing_rows(table: Table, timing: WorkloadTiming) -> None:
    for index, one in enumerate((timing.student, *timing.references)):
        lane = one.scored_lane.inside
        light = "" if timing.speed_of_light is None else f"{timing.speed_of_light:.0%}"
        table.add_row(
            timing.workload if index == 0 else "",
            one.name,
            f"{lane.median_us:.1f}",
            f"{lane.q3_us - lane.q1_us:.1f}",
            f"{one.scored_lane.outside_us:.1f} +-{one.scored_lane.uncertainty_us:.0f}",
            ratio_text(timing.speedup) if index == 0 else "",
            (light or "unknown") if index == 0 else "",
            " ".join(one.flags),
        )


def _timing_table(timing: TimingResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("workload")
    table.add_column("")
    for name in ("median us", "IQR us", "outside us"):
        table.add_column(name, justify="right")
    for name in ("speedup, 95% CI", "of light", ""):
        table.add_column(name)
    for one in timing.workloads:
        _timing_rows(table, one)
    return table


def print_card(grade: Grade, console: Console, title: str) -> None:
    """Print the card."""
    head = Text.assemble(
        (str(grade.verdict), f"bold {_COLOURS.get(grade.verdict, 'red')}"), f"  at stage {grade.stage}"
    )
    lines: list[RenderableType] = [head, untrusted(grade.finding.message)]
    if grade.build is not None:
        lines.append(Text(_build_line(grade.build)))
        lines += [Text(f"note: {w}", style="dim") for w in grade.build.warnings]
    if grade.check is not None:
        lines += [
            Text("\ncheck: errors as multiples of the tolerance", style="dim"),
            _check_table(grade.check),
        ]
    if grade.timing is not None and grade.timing.workloads:
        lines += [Text("\ntime: in-process figures, and the judge's outside clock", style="dim")]
        lines.append(_timing_table(grade.timing))
        lines.append(Text(f"speedup over the fastest reference: {ratio_text(grade.timing.speedup)}"))
        if grade.timing.flags:
            lines.append(Text(f"flags: {', '.join(grade.timing.flags)}", style="yellow"))
    lines.append(
        Text(f"\nsandbox {grade.sandbox}, protocol {grade.protocol}, {grade.wall_s:.1f} s", style="dim")
    )
    console.print(Panel(Group(*lines), title=title, title_align="left", expand=False))
