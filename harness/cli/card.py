"""The card of one project: verdict, build, kernels, check and timing. Figures are rounded only here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from harness.outcome import Cause, Stage, Verdict
from harness.records import (
    BINDING_WARNING,
    BinaryCalls,
    BuildResult,
    CheckResult,
    DeviceKernel,
    Diagnostic,
    EmulatedCheck,
    Finding,
    Grade,
    Ratio,
    TimingResult,
    WorkloadCheck,
)
from harness.records.timing import BlockTelemetry
from harness.report.evidence import all_counts, evidence_lines, notable, short_name, spills, total
from harness.text import clean

_COLOURS = {Verdict.CORRECT: "green", Verdict.NOT_MEASURED: "yellow", Verdict.INFRA: "yellow"}
_CALLS_SHOWN = 4
_DIAGNOSTICS_SHOWN = 4
_KERNELS_SHOWN = 6
# So that 80 columns, less the card's frame, break no figure and few names.
_NAME_COLUMNS, _CLASS_COLUMNS = 18, 13


def untrusted(text: str) -> Text:
    """Text of a student's, without what could drive a terminal, never read as markup."""
    return Text(clean(text))


def plain_table(*columns: str, right: Collection[str] = (), whole: Collection[str] = ()) -> Table:
    """A table without a frame; `right` are aligned to the right, `right` and `whole` are never wrapped."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        aligned = name in right
        table.add_column(
            name, justify="right" if aligned else "left", no_wrap=aligned or name in whole, overflow="fold"
        )
    return table


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
    errors = ("worst error", "allowed")
    table = plain_table("workload", "dtype", "inputs", *errors, "", right=errors)
    for one in check.workloads:
        worst = "-" if one.worst_error is None else f"{one.worst_error:.3g}"
        allowed = "-" if one.allowed_error is None else f"{one.allowed_error:.3g}"
        # A drawn shape has no name.
        dims = " ".join(f"{name}={size}" for name, size in (one.dims or {}).items())
        name = dims if one.hidden else one.workload
        outcome = "ok" if one.skipped is None else f"not judged: {one.skipped}"
        if one.finding is not None:
            outcome = "failed"
        table.add_row(name, one.dtype, _inputs(one), worst, allowed, outcome)
    for label in check.not_run:
        workload, _, rest = label.partition(" ")
        dtype, _, inputs = rest.partition(", ")
        table.add_row(workload, dtype, inputs, "-", "-", "not run")
    return table


def _inputs(one: WorkloadCheck) -> str:
    """What a case was made with, where that is not the task's own values, contiguous, of a known shape."""
    words = ["hidden shape"] if one.hidden else []
    words += [one.values] if one.values != "task" else []
    return ", ".join(words + ([one.layout] if one.layout != "contiguous" else []))


def _emulated_lines(emulated: EmulatedCheck) -> list[RenderableType]:
    """The check on the emulated GPU, labeled as such."""
    style = "green" if emulated.outcome == "correct" else "yellow"
    head = Text("\nemulated GPU (the kernels' PTX on this CPU; not a result of a GPU): ", style="dim")
    head.append(emulated.outcome.replace("_", " "), style=f"bold {style}")
    lines: list[RenderableType] = [head, untrusted(emulated.message)]
    if emulated.check is not None and emulated.check.workloads:
        lines.append(_check_table(emulated.check))
    return [*lines, Text(f"{emulated.wall_s:.1f} s", style="dim")]


def _timing_table(timing: TimingResult) -> Table:
    figures = ("median us", "IQR us", "outside us")
    table = plain_table("workload", "", *figures, "speedup, 95% CI", "of light", " ", right=figures)
    for workload in timing.workloads:
        light = "not known" if workload.speed_of_light is None else f"{workload.speed_of_light:.0%}"
        for one in (workload.student, *workload.references):
            lane, first = one.scored_lane, one is workload.student
            table.add_row(
                workload.workload if first else "",
                one.name,
                f"{lane.inside.median_us:.1f}",
                f"{lane.inside.q3_us - lane.inside.q1_us:.1f}",
                f"{lane.outside_us:.1f} +-{lane.uncertainty_us:.0f}",
                ratio_text(workload.speedup) if first else "",
                light if first else "",
                " ".join(one.flags),
            )
    return table


def _borrowed(calls: BinaryCalls) -> str:
    return ", ".join(calls.borrowed[:_CALLS_SHOWN]) + (", ..." if len(calls.borrowed) > _CALLS_SHOWN else "")


def _flags_line(grade: Grade) -> str:
    """The flags, and the library calls that may do the project's work for it, where the task minds."""
    calls = grade.build.calls if grade.build is not None and grade.flags_of_work else None
    shown = "" if calls is None else _borrowed(calls)
    return f"flags: {', '.join(grade.flags)}" + (f" ({shown})" if shown else "")


def _build_lines(build: BuildResult, everything: bool) -> list[RenderableType]:
    lines: list[RenderableType] = [Text(_build_line(build))]
    lines += diagnostic_lines(build.diagnostics, None if everything else _DIAGNOSTICS_SHOWN)
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
    if build.calls is not None and build.calls.borrowed:
        lines.append(Text(clean(f"it calls   {_borrowed(build.calls)}"), style="yellow"))
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
        lines += [Text(clean(_flags_line(grade)), style="yellow")] if grade.flags else []
    if grade.emulated is not None:
        lines += _emulated_lines(grade.emulated)
    if grade.check is not None:
        mode = {"strict": ", float32 strict", "tf32": ", TF32 allowed", None: ""}[grade.check.precision]
        lines.append(Text(f"\ncheck: errors as multiples of the tolerance{mode}", style="dim"))
        lines.append(_check_table(grade.check))
    if grade.timing is not None and grade.timing.workloads:
        lines += [Text("\ntime: in-process figures, and the judge's outside clock", style="dim")]
        lines.append(_timing_table(grade.timing))
        lines.append(Text(f"speedup over the fastest reference: {ratio_text(grade.timing.speedup)}"))
        lines += [Text(clean(line), style="dim") for line in score_lines(grade.timing)]
    beside = evidence_lines(grade)
    if beside:
        lines.append(Text("\nbeside the verdict", style="dim"))
        lines += [Text(line) for line in beside]
    lines.append(
        Text(f"\nsandbox {grade.sandbox}, protocol {grade.protocol}, {grade.wall_s:.1f} s", style="dim")
    )
    console.print(Panel(Group(*lines), title=title, title_align="left", expand=False))


def diagnostic_lines(diagnostics: Sequence[Diagnostic], limit: int | None = _DIAGNOSTICS_SHOWN) -> list[Text]:
    """Kind, place and message, the source line below; `limit` None shows all."""
    lines: list[Text] = []
    for one in diagnostics[:limit]:
        place = ":".join(str(part) for part in (one.file, one.line, one.column) if part is not None)
        head = Text.assemble((one.kind, "bold red"), "  ")
        if place:
            head.append(f"{clean(place)}: ", "bold")
        head.append(clean(one.message).replace("\n", " "))
        lines.append(head)
        if one.source is not None:
            lines.append(Text(f"    {clean(one.source).strip()}"))
        if one.advice is not None:
            lines.append(Text(f"    help: {clean(one.advice)}", style="cyan"))
    more = len(diagnostics) - len(diagnostics[:limit])
    if more:
        lines.append(Text(f"and {more} more: `liftbench show` and the build log have them", style="dim"))
    return lines


def kernel_table(kernels: tuple[DeviceKernel, ...], everything: bool) -> list[RenderableType]:
    """The longest kernels, or with `everything` all of them with every class of instruction."""
    shown = kernels if everything else kernels[:_KERNELS_SHOWN]
    if not shown:
        return []
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
    table.add_column("kernel", overflow="fold", min_width=_NAME_COLUMNS)
    table.add_column("for", no_wrap=True)
    for name in ("regs", "smem B", "stack B", "spills", "instr."):
        table.add_column(name, justify="right")
    table.add_column("of which", overflow="fold", min_width=_CLASS_COLUMNS)
    for one in shown:
        classes = all_counts(one) if everything else notable(one)
        figures = [str(n) for n in (one.registers, one.shared_bytes, one.stack_bytes)]
        cells = [short_name(one.name), one.architecture, *figures, spills(one), total(one), classes]
        table.add_row(*(Text(cell) for cell in cells))
    lines: list[RenderableType] = [Text("\nkernels: as compiled; counts are of the code", style="dim"), table]
    if len(shown) < len(kernels):
        lines.append(Text(f"and {len(kernels) - len(shown)} shorter ones", style="dim"))
    return lines


def score_lines(timing: TimingResult) -> list[str]:
    """How memory was shared, the conditions of each workload, other modes of timing, and notes."""
    facts = "; ".join(f"{name} {value}" for name, value in sorted(timing.transport_facts.items()))
    lines = [f"memory shared by {timing.transport}" + (f" ({facts})" if facts else "")]
    if timing.timed_share is not None:
        lines.append(f"{timing.timed_share:.1%} of the time stage was timed calls")
    for one in timing.workloads:
        label = f"{one.workload} {one.dtype}"
        lines += [f"{label}: {_conditions(one.telemetry)}"] if one.telemetry else []
        for contender in (one.student, *one.references):
            figures = ", ".join(f"{other.mode} {other.claimed_us:.1f} us" for other in contender.secondary)
            if figures:
                lines.append(f"{label}: {contender.name} by its own account, never ranked: {figures}")
    return [*lines, *(f"note: {note}" for note in timing.notes)]


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
        known = [extent for extent in extents if extent is not None]
        if known:
            low, high = min(one.low for one in known), max(one.high for one in known)
            said.append(f"{name} {low:.0f} to {high:.0f} {unit}")
    held = sorted({reason for block in blocks for reason in block.held_down_by or ()})
    return ", ".join(said + ([f"clocks held down by {' and '.join(held)}"] if held else []))
