"""The first screen: what a user sees on stdout at the end of a run.

ASCII from us, no markup read from data, and no line of ours that needs more than 80 columns; the same text
with and without colour.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from rich.console import Console
from rich.text import Text

from harness.report import figures as f
from harness.report.details import Line, decisions, details, whole_run, wrapped
from harness.report.headline import headline
from harness.report.matrix import matrix_leads
from harness.report.records import ArmSummary, Comparison, MetricRow, Summary

_GAP: Final = "   "
_LABEL, _CONTROL, _TREATMENT, _LIFT = 14, 7, 9, 10
_STYLE: Final = {"helps": "bold green", "hurts": "bold red", "inconclusive": "bold yellow"}
_SHOWN: Final = ("compiles", "correct", "deployed")


def _beside(left: str, right: str, width: int, style: str, gap: str = "     ") -> Iterable[Line]:
    """left and right on one line where they fit, else below each other."""
    if len(left) + len(gap) + len(right) <= width:
        yield left + gap + right, style
    else:
        yield left, style
        yield from wrapped(right, width, style, "  ")


def _columns(label: str, control: str, treatment: str, lift: str, interval: str = "") -> str:
    cells = f"{label:<{_LABEL}}{control:>{_CONTROL}}{treatment:>{_TREATMENT}}{lift:>{_LIFT}}"
    return f"{cells}{_GAP}{interval}".rstrip()


def _cells(label: str, row: MetricRow) -> str:
    control, treatment = f.level(row.unit, row.control), f.level(row.unit, row.treatment)
    return _columns(label, control, treatment, f.change(row.unit, row.lift), f.interval(row))


def _metric(row: MetricRow, width: int) -> Line:
    label = row.label + ("*" if row.metric == "deployed" else "")
    style = "bold" if row.role == "primary" else ""
    if row.not_measured:
        return f"{label:<{_LABEL}}{f.NOT_MEASURED} ({row.not_measured})", style
    line = _cells(label, row)
    beside = f"{line:<63}{f.FOOTNOTE}"
    return (beside if row.metric == "deployed" and len(beside) <= width else line), style


def _spending(without: ArmSummary, with_skill: ArmSummary) -> Iterable[Line]:
    """Tokens and dollars per correct kernel; dollars only where something is known of them."""
    change = f.relative_change(with_skill.tokens_per_correct, without.tokens_per_correct)
    cells = [f.per_correct(arm, "tokens") for arm in (without, with_skill)]
    if cells == [f.NOT_MEASURED] * 2:
        return
    if cells == [f.UNKNOWN] * 2:
        yield "tokens/correct  unknown: not reported with the replies", "dim"
        return
    yield _columns("tokens/correct", cells[0], cells[1], change), ""
    cells = [f.per_correct(arm, "dollars") for arm in (without, with_skill)]
    if cells != [f.UNKNOWN] * 2:
        change = f.relative_change(with_skill.cost_usd_per_correct, without.cost_usd_per_correct)
        yield _columns("$/correct", cells[0], cells[1], change), ""


def _short_control(comparison: Comparison) -> str:
    return "without" if comparison.control_label.startswith("without skill") else "old"


def _place(summary: Summary) -> str:
    head = summary.head
    return _GAP.join([f.plan_line(summary), head.device, f"sandbox {head.sandbox}"])


def _title(summary: Summary, what: str, width: int) -> Iterable[Line]:
    place = _place(summary)
    if len(what) + 8 + len(place) <= width:
        yield f"{what}{' ' * 8}{place}", "bold"
        return
    yield from wrapped(what, width, "bold")
    # The parts of the place stay whole; only a part that is too wide alone is broken.
    line = ""
    for part in place.split(_GAP):
        if line and len(line) + len(_GAP) + len(part) > width:
            yield line, ""
            line = part
        else:
            line = f"{line}{_GAP}{part}" if line else part
    yield from wrapped(line, width, "")


def _block(summary: Summary, comparison: Comparison, width: int) -> Iterable[Line]:
    with_skill = summary.arm(comparison.model, comparison.treatment)
    without = summary.arm(comparison.model, comparison.control)
    yield from wrapped(headline(comparison), width, _STYLE[comparison.conclusion.decision])
    yield from _title(summary, f"{f.model_name(summary, comparison.model)} x {comparison.label}", width)
    control, interval = _short_control(comparison), f"{f.confidence(summary.head.alpha)}, by family"
    yield _columns("", control, "with", "lift", interval), "dim"
    shown: list[Line] = []
    for row in comparison.rows:
        if row.metric in _SHOWN:
            shown.append(_metric(row, width))
        placebo = comparison.placebo_row
        if placebo is not None and placebo.metric == row.metric and not placebo.not_measured:
            shown.append((_cells("  vs placebo", placebo), ""))
    yield from shown
    yield from _spending(without, with_skill)
    deployed = comparison.row("deployed")
    if not deployed.not_measured and not any(f.FOOTNOTE in text for text, _ in shown):
        yield f.FOOTNOTE, "dim"
    yield from _decision(comparison, (without, with_skill), width)
    yield from details(comparison, width)


def _decision(comparison: Comparison, sides: Iterable[ArmSummary], width: int) -> Iterable[Line]:
    sides = list(sides)
    made = comparison.conclusion
    failures = sum(side.infra_failures for side in sides)
    infra = f.infra_line(failures, sum(side.infra_trials for side in sides))
    verdict = f"decision (on {made.metric}): {made.decision}"
    style = _STYLE[made.decision]
    if made.decision == "inconclusive":
        yield from wrapped(f"{verdict}: {made.reason}", width, style)
        if infra:
            yield infra, ""
    else:
        yield from _beside(verdict, infra, width, style, " " * 8) if infra else [(verdict, style)]
        yield from wrapped(made.reason, width, "dim", "  ")
    for caveat in comparison.caveats:
        yield from wrapped(caveat, width, "dim", "  ")


def _rates_only(summary: Summary, width: int) -> Iterable[Line]:
    """A run without a pair of arms to compare."""
    for arm in summary.arms:
        yield from _title(summary, f"{f.model_name(summary, arm.model)}, {arm.label}", width)
        for label, rate, gap in (
            ("compiles", arm.compiled, summary.build_gap),
            ("correct", arm.correct, summary.check_gap),
        ):
            if rate is None:
                yield f"{label:<{_LABEL}}{f.NOT_MEASURED} ({gap.reason if gap else 'unknown'})", ""
                continue
            share = f.percent(rate.count / rate.n if rate.n else None)
            known = rate.low is not None and rate.high is not None
            spread = f"95% CI ({f.percent(rate.low)}, {f.percent(rate.high)})" if known else ""
            yield (
                f"{label:<{_LABEL}}{share:>{_CONTROL}}{_GAP}{rate.count} of {rate.n}{_GAP}{spread}".rstrip(),
                "",
            )
        if arm.correct is not None:
            yield f"{'tokens/correct':<{_LABEL}}{f.per_correct(arm, 'tokens'):>{_CONTROL}}", ""
        yield "", ""


def _notes(summary: Summary) -> Iterable[Line]:
    progress = summary.progress
    if not progress.finished:
        yield "no trial has finished", "yellow"
    if owed := f.owed_line(progress.owed, progress.planned):
        yield owed, "yellow"
    if gap := f.gap_line(summary):
        yield gap, "yellow"
    for warning in summary.warnings:
        yield warning, "yellow"


def summary_lines(summary: Summary, width: int) -> Iterable[Line]:
    """The text report as lines with styles, wrapped to width columns."""
    leads = matrix_leads(summary)
    if leads:
        yield from decisions(summary, width)
    for index, comparison in enumerate(summary.comparisons):
        if index or leads:
            yield "", ""
        yield from _block(summary, comparison, width)
    if not summary.comparisons:
        yield from _rates_only(summary, width)
    yield from whole_run(summary, width)
    for text, style in _notes(summary):
        yield from wrapped(text, width, style)


def print_summary(summary: Summary, console: Console) -> None:
    """Print the first screen; colour only where the console has it."""
    for text, style in summary_lines(summary, max(60, console.width)):
        # Text, not str: a model or task named [red] is data, not markup.
        safe = text.encode(console.encoding, "replace").decode(console.encoding)
        console.print(Text(safe, style=style), soft_wrap=True, highlight=False)
