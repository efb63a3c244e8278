"""The text report that is printed at the end of a run.

Wrapped to the width of the terminal, the same text with and without color; ASCII but for the bars of a
UTF-8 terminal. Data is never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.text import Text

from harness.report import figures, wording
from harness.report.comparison_schema import Comparison, MetricRow
from harness.report.schema import ArmSummary, Reading, Summary

Line = tuple[str, str]
Bar = Callable[[float, int], str]
"""From a share, 0 to 1, and a width in columns."""
_GAP: Final = "   "
_LABEL, _BAR, _LEVEL, _LIFT = 14, 8, 7, 10
_STYLE: Final = {"helps": "bold green", "hurts": "bold red", "inconclusive": "bold yellow"}
_SHOWN: Final = ("compiles", "correct_emulated", "correct", "deployed")
_MOVEMENTS: Final = 3
_FILES: Final = 6


def print_summary(summary: Summary, console: Console) -> None:
    bar = figures.bar if console.encoding.lower().startswith("utf") else figures.ascii_bar
    for text, style in summary_lines(summary, max(60, console.width), bar):
        # Text, not str: a model or task named [red] is data, not markup.
        safe = text.encode(console.encoding, "replace").decode(console.encoding)
        console.print(Text(safe, style=style), soft_wrap=True, highlight=False)


def summary_lines(summary: Summary, width: int, bar: Bar) -> Iterable[Line]:
    """The report as lines with styles, wrapped to width columns."""
    if summary.matrix_leads:
        yield from _matrices(summary, width)
    for index, comparison in enumerate(summary.comparisons):
        if index or summary.matrix_leads:
            yield "", ""
        yield from _block(summary, comparison, width, bar)
    if not summary.comparisons:
        yield from _rates_only(summary, width)
    if summary.matrices and not summary.matrix_leads:
        yield "", ""
        yield from _matrices(summary, width)
    for reading in summary.readings:
        yield "", ""
        yield from _reading(summary, reading, width)
    if failed := wording.why_builds_failed(summary):
        yield "why builds failed", "dim"
        for line in failed:
            yield from _wrapped(line, width, "", "  ")
    if not summary.progress.finished:
        yield "no trial has finished", "yellow"
    for note in (wording.owed_line(summary), wording.gap_line(summary), *summary.warnings):
        if note:
            yield from _wrapped(note, width, "yellow")


def _wrapped(text: str, width: int, style: str, indent: str = "") -> Iterable[Line]:
    for line in textwrap.wrap(text, width, subsequent_indent=indent + "  ", initial_indent=indent) or [""]:
        yield line, style


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [f"{first:<{widths[0]}}", *(f"{c:>{n}}" for c, n in zip(others, widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return lines


def _title(summary: Summary, what: str, width: int) -> Iterable[Line]:
    head = summary.head
    what = f"{what}, briefing {head.briefing}"
    place = _GAP.join([wording.plan_line(summary), head.device, f"sandbox {head.sandbox}"])
    whole = f"{what}{' ' * 8}{place}"
    if len(whole) <= width:
        yield whole, "bold"
    else:
        yield from _wrapped(what, width, "bold")
        yield from _wrapped(place, width, "")


def _block(summary: Summary, comparison: Comparison, width: int, bar: Bar) -> Iterable[Line]:
    with_skill = summary.arm(comparison.model, comparison.treatment)
    without = summary.arm(comparison.model, comparison.control)
    yield from _wrapped(wording.headline(comparison), width, _STYLE[comparison.conclusion.decision])
    yield from _title(summary, f"{wording.model_name(summary, comparison.model)} x {comparison.label}", width)
    control = "without" if comparison.control_label.startswith("without skill") else "old"
    interval = f"{figures.confidence(summary.head.alpha)}, by family"
    yield _columns("", ("", control), ("", "with"), "lift", interval), "dim"
    shown = list(_metrics(comparison, width, bar))
    yield from shown
    yield from _spending(without, with_skill)
    if not comparison.row("deployed").not_measured and not any(wording.FOOTNOTE in text for text, _ in shown):
        yield wording.FOOTNOTE, "dim"
    yield from _decision(comparison, (without, with_skill), width)
    yield from _details(comparison, width)


def _columns(
    label: str, control: tuple[str, str], treatment: tuple[str, str], lift: str, interval: str = ""
) -> str:
    """control and treatment: a bar and its figure."""
    levels = "".join(f" {bar:<{_BAR}}{level:>{_LEVEL}}" for bar, level in (control, treatment))
    return f"{label:<{_LABEL}}{levels}{lift:>{_LIFT}}{_GAP}{interval}".rstrip()


def _cells(label: str, row: MetricRow, bar: Bar) -> str:
    levels = [value or 0.0 for value in (row.control, row.treatment)]
    whole = 1.0 if row.unit == "share" else max(levels)
    control, treatment = (bar(value / whole if whole else 0.0, _BAR) for value in levels)
    return _columns(
        label,
        (control, figures.level(row.unit, row.control)),
        (treatment, figures.level(row.unit, row.treatment)),
        figures.change(row.unit, row.lift),
        figures.bounds(row.unit, row),
    )


def _metrics(comparison: Comparison, width: int, bar: Bar) -> Iterable[Line]:
    placebo = comparison.placebo_row
    for row in comparison.rows:
        if row.metric in _SHOWN:
            label = row.label + ("*" if row.metric == "deployed" else "")
            style = "bold" if row.role == "primary" else ""
            line = _cells(label, row, bar)
            beside = f"{line:<78}{wording.FOOTNOTE}"
            if row.not_measured:
                yield f"{label:<{_LABEL}}{figures.NOT_MEASURED} ({row.not_measured})", style
            else:
                yield (beside if row.metric == "deployed" and len(beside) <= width else line), style
        if placebo is not None and placebo.metric == row.metric and not placebo.not_measured:
            yield _cells("  vs placebo", placebo, bar), ""


def _spending(without: ArmSummary, with_skill: ArmSummary) -> Iterable[Line]:
    """Tokens and dollars per correct kernel; dollars only where one of them is known."""
    for what, field in (("tokens", "tokens_per_correct"), ("dollars", "cost_usd_per_correct")):
        cells = [wording.per_correct(arm, what) for arm in (without, with_skill)]
        if cells == [figures.NOT_MEASURED] * 2:
            return
        if cells != [figures.UNKNOWN] * 2:
            change = figures.relative_change(getattr(with_skill, field), getattr(without, field))
            label = "tokens/correct" if what == "tokens" else "$/correct"
            yield _columns(label, ("", cells[0]), ("", cells[1]), change), ""
        elif what == "tokens":
            yield "tokens/correct  unknown: not reported with the replies", "dim"
            return


def _decision(comparison: Comparison, sides: Sequence[ArmSummary], width: int) -> Iterable[Line]:
    made = comparison.conclusion
    lost = sum(side.infra_trials for side in sides)
    infra = wording.infra_line(sum(side.infra_failures for side in sides), lost)
    verdict, style = f"decision (on {made.metric}): {made.decision}", _STYLE[made.decision]
    if made.decision == "inconclusive":
        yield from _wrapped(f"{verdict}: {made.reason}", width, style)
        yield from [(infra, "")] if infra else []
    else:
        yield verdict, style
        yield from _wrapped(infra, width, style, "  ") if infra else []
        yield from _wrapped(made.reason, width, "dim", "  ")
    for caveat in comparison.caveats:
        yield from _wrapped(caveat, width, "dim", "  ")


def _details(comparison: Comparison, width: int) -> Iterable[Line]:
    found = comparison.transitions
    if found is not None and found.movements:
        moved = ", ".join(m.words.removesuffix(" of trials") for m in found.movements[:_MOVEMENTS])
        yield from _wrapped(f"where lift comes from (net): {moved}", width, "")
    for change in ("removed", "introduced"):
        if clear := wording.clear_errors(comparison, change):
            yield from _wrapped(f"errors {change}: {'; '.join(map(wording.error_rates, clear))}", width, "")
    if comparison.turns:
        yield f"{comparison.primary.label}, {wording.TURNS_NOTE}", "dim"
        yield from ((line, "") for line in _table(wording.turn_table(comparison)))
    if comparison.kernelbench_fast_p:
        first, last = wording.KERNELBENCH_NOTES
        yield first, "dim"
        yield from ((line, "") for line in _table(wording.kernelbench_table(comparison)))
        yield f"  {last}", "dim"


def _rates_only(summary: Summary, width: int) -> Iterable[Line]:
    """A run without a pair of arms to compare."""
    for arm in summary.arms:
        yield from _title(summary, f"{wording.model_name(summary, arm.model)}, {arm.label}", width)
        rates = ("compiles", arm.compiled, summary.build_gap), ("correct", arm.correct, summary.check_gap)
        for label, rate, gap in rates:
            if rate is None:
                yield f"{label:<{_LABEL}}{figures.NOT_MEASURED} ({gap.reason if gap else 'unknown'})", ""
                continue
            interval = f"{_GAP}95% CI {figures.share_bounds(rate)}" if rate.n else ""
            share = f"{label:<{_LABEL}}{figures.percent(rate.share):>{_LEVEL}}"
            yield f"{share}{_GAP}{rate.count} of {rate.n}{interval}", ""
        if arm.correct is not None:
            yield f"{'tokens/correct':<{_LABEL}}{wording.per_correct(arm, 'tokens'):>{_LEVEL}}", ""
        yield "", ""


def _matrices(summary: Summary, width: int) -> Iterable[Line]:
    for index, matrix in enumerate(summary.matrices):
        if index:
            yield "", ""
        yield f"decision and lift in {summary.head.metric}, against {matrix.control_label}", "dim"
        rows = wording.matrix_table(summary, matrix, intervals=False)
        lines = _table(rows)
        if max(map(len, lines)) > width:  # too wide for columns
            header, *others = rows
            pairs = ((row[0], *pair) for row in others for pair in zip(header[1:], row[1:], strict=True))
            lines = [f"{model} x {name}: {cell}" for model, name, cell in pairs]
        for line in lines:
            yield from _wrapped(line, width, "")


def _reading(summary: Summary, reading: Reading, width: int) -> Iterable[Line]:
    who = f"{wording.model_name(summary, reading.model)} x {reading.label}"
    yield from _wrapped(f"what was read: {who}", width, "dim")
    if not reading.files:
        yield "nothing: no trial asked for a file", ""
    for name, share, tokens in wording.reading_table(reading)[: len(reading.skills) + _FILES]:
        lead = "" if name.startswith("skill ") else "  "
        about = f", about {tokens} tokens" if tokens else ""
        yield from _wrapped(f"{lead}{name}: {share} trials{about}", width, "")
    if (more := len(reading.files) - _FILES) > 0:
        yield f"  and {figures.plural(more, 'file')} more in report.json", ""
