"""The card that `grade` prints: one project's verdict and how it came about.

What was not reached or is not known says so; nothing is rounded but here.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.cli.diagnostic_view import CARD_LIMIT, diagnostic_lines
from harness.cli.kernel_table import kernel_table
from harness.cli.score_view import score_lines
from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    BINDING_WARNING,
    BinaryCalls,
    BuildResult,
    CheckResult,
    Diagnostic,
    Finding,
    Grade,
    Ratio,
    TimingResult,
    WorkloadCheck,
    WorkloadTiming,
)
from harness.report.evidence import evidence_lines
from harness.text import clean

_COLOURS = {Verdict.CORRECT: "green", Verdict.NOT_MEASURED: "yellow", Verdict.INFRA: "yellow"}
_CALLS_SHOWN = 4


def untrusted(text: str) -> Text:
    """Text of a student's, without what could drive a terminal, never read as markup."""
    return Text(clean(text))


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
    how = "ok" if build.ok else "failed"
    if build.jit:
        return f"build      {how}, jit: universal project, compiles when it runs, {build.backend}, {cached}"
    return f"build      {how}, {cached}{compiler}, {where}, {build.units or 0} units"


def _check_table(check: CheckResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name, side in (
        ("workload", "left"),
        ("dtype", "left"),
        ("inputs", "left"),
        ("worst error", "right"),
        ("allowed", "right"),
    ):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    table.add_column("")
    for one in check.workloads:
        worst = "-" if one.worst_error is None else f"{one.worst_error:.3g}"
        allowed = "-" if one.allowed_error is None else f"{one.allowed_error:.3g}"
        name = _sizes(one) if one.hidden else one.workload
        table.add_row(name, one.dtype, _inputs(one), worst, allowed, _outcome(one))
    for label in check.not_run:
        workload, _, rest = label.partition(" ")
        dtype, _, inputs = rest.partition(", ")
        table.add_row(workload, dtype, inputs, "-", "-", "not run")
    return table


def _sizes(one: WorkloadCheck) -> str:
    """A drawn shape, in place of a name."""
    return " ".join(f"{name}={size}" for name, size in (one.dims or {}).items())


def _inputs(one: WorkloadCheck) -> str:
    """What a case was made with, where that is not the task's own values, contiguous, of a known shape."""
    words = ["hidden shape"] if one.hidden else []
    words += [one.values] if one.values != "task" else []
    return ", ".join(words + ([one.layout] if one.layout != "contiguous" else []))


def _outcome(one: WorkloadCheck) -> str:
    """How a case ended."""
    if one.finding is not None:
        return "failed"
    return "ok" if one.skipped is None else f"not judged: {one.skipped}"


def _check_title(check: CheckResult) -> str:
    lane = {"strict": ", float32 strict", "tf32": ", TF32 allowed", None: ""}[check.precision]
    return f"\ncheck: errors as multiples of the tolerance{lane}"


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
            (light or "not known") if index == 0 else "",
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


def _borrowed(calls: BinaryCalls) -> str:
    names = calls.borrowed
    return ", ".join(names[:_CALLS_SHOWN]) + (", ..." if len(names) > _CALLS_SHOWN else "")


def _calls_line(grade: Grade) -> list[RenderableType]:
    """What the library calls that may do its work for it, where the task minds."""
    calls = grade.build.calls if grade.build is not None else None
    if not grade.flags:
        return []
    shown = _borrowed(calls) if calls is not None and grade.flags_of_work else ""
    text = f"flags: {', '.join(grade.flags)}" + (f" ({shown})" if shown else "")
    return [Text(untrusted(text).plain, style="yellow")]


def _build_lines(build: BuildResult, everything: bool) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(_build_line(build))]
    lines += diagnostic_lines(build.diagnostics, None if everything else CARD_LIMIT)
    lines += [Text(f"warning: {clean(w)}", style="yellow") for w in build.binding_warnings]
    notes = [w for w in build.warnings if not w.startswith(BINDING_WARNING)]
    lines += [Text(f"note: {clean(w)}", style="dim") for w in notes]
    return [*lines, *kernel_table(build.kernels or (), everything)]


def _said(finding: Finding, diagnostics: Sequence[Diagnostic]) -> tuple[str, str]:
    """What to print of a failed build above its diagnostics, and below: what these say is not repeated."""
    if not diagnostics:
        return finding.message, ""
    first, _, rest = finding.message.partition("\n")
    above = "" if diagnostics[0].message in first else first
    return above, rest if finding.cause is Cause.BAD_BUILD_TOML else ""


def print_build(build: BuildResult, console: Console, title: str, package: Path | None) -> None:
    """Print the card of a build without a grade; `package` is where its variant lies."""
    lines = _build_lines(build, everything=False)
    if build.finding is not None:
        above, below = _said(build.finding, build.diagnostics)
        lines.insert(0, Text.assemble((str(build.finding.cause), "bold red"), "  ", untrusted(above)))
        lines += [untrusted(below)] if below else []
    if build.abi is not None:
        lines.append(Text(f"ABI        {build.abi}"))
    if build.calls is not None and build.calls.borrowed:
        lines.append(Text(untrusted(f"it calls   {_borrowed(build.calls)}").plain, style="yellow"))
    if package is not None:
        lines.append(Text(f"package    {package}"))
    console.print(Panel(Group(*lines), title=title, title_align="left", expand=False))


def print_card(grade: Grade, console: Console, title: str, *, all_kernels: bool = False) -> None:
    """Print the card; with `all_kernels` every compiled kernel, class of instruction and diagnostic."""
    head = Text.assemble(
        (str(grade.verdict), f"bold {_COLOURS.get(grade.verdict, 'red')}"), f"  at stage {grade.stage}"
    )
    said = grade.build.diagnostics if grade.build is not None and grade.stage is Stage.BUILD else ()
    above, below = _said(grade.finding, said)
    lines: list[RenderableType] = [head, *([untrusted(above)] if above else [])]
    if grade.build is not None:
        lines += _build_lines(grade.build, all_kernels)
        lines += [untrusted(below)] if below else []
        lines += _calls_line(grade)
    if grade.check is not None:
        lines += [
            Text(_check_title(grade.check), style="dim"),
            _check_table(grade.check),
        ]
    if grade.timing is not None and grade.timing.workloads:
        lines += [Text("\ntime: in-process figures, and the judge's outside clock", style="dim")]
        lines.append(_timing_table(grade.timing))
        lines.append(Text(f"speedup over the fastest reference: {ratio_text(grade.timing.speedup)}"))
        lines += [Text(untrusted(line).plain, style="dim") for line in score_lines(grade.timing)]
    beside = evidence_lines(grade)
    if beside:
        lines.append(Text("\nbeside the verdict", style="dim"))
        lines += [Text(line) for line in beside]
    lines.append(
        Text(f"\nsandbox {grade.sandbox}, protocol {grade.protocol}, {grade.wall_s:.1f} s", style="dim")
    )
    console.print(Panel(Group(*lines), title=title, title_align="left", expand=False))
