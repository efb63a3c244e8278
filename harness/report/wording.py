"""Sentences and tables that the terminal, HTML and Markdown reports share.

Nothing is escaped here: every renderer does that for its format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from harness.report import figures
from harness.report.comparison_schema import Comparison, ErrorClass, Matrix, Spending
from harness.report.schema import ArmSummary, Reading, Summary
from harness.text import clean, shorten

Table = list[list[str]]
"""The header, then the rows."""
FOOTNOTE: Final = "* failed or not clearly faster: 1.0x"
TURNS_NOTE: Final = "turn by turn (decided on the last; dollars per trial so far)"
KERNELBENCH_NOTES: Final = (
    "KernelBench's problems, fast_p: correct and faster than the reference by",
    "ours: by family, the judge's clock; theirs: over kernels, times as claimed",
)
_LEAST_USD: Final = 0.0001
_COMMON_CAUSES: Final = 2
_CAUSE_CHARS: Final = 120
_PLACE: Final = re.compile(r"^(?:[^\s:/]+/)*([^\s:/]+)(?::\d+)?: ")  # folders and line of the first error
_COUNTED: Final = {
    "deployed": "deployed",
    "correct": "correct",
    "compiles": "compiling",
    "correct_emulated": "correct on the emulated GPU",
}


def model_name(summary: Summary, name: str) -> str:
    """`provider/model` without the provider; a recording has the name of the model that it recorded."""
    labels = summary.replies.model_labels
    return short_model(name, labels if len(summary.head.models) == 1 else ())


def short_model(name: str, labels: Sequence[str]) -> str:
    """The same of a run of one model, whose replies have these labels."""
    provider, _, model = name.partition("/")
    if provider == "replay" and len(labels) == 1:
        model = labels[0].partition("/")[2] or labels[0]
    return clean(model or name)


def plan_line(summary: Summary) -> str:
    head = summary.head
    return f"{figures.plural(len(head.tasks), 'task')} x {figures.plural(head.repeats, 'run')}"


def infra_line(failures: int, lost: int) -> str | None:
    """How many failures were ours; None without any."""
    parts = []
    if failures > lost:  # the last failure of a lost trial was not retried
        parts.append(f"{figures.plural(failures - lost, 'infra failure')} retried, not scored")
    if lost:
        parts.append(f"{figures.plural(lost, 'trial')} lost to infra, not scored")
    return "; ".join(parts) or None


def owed_line(summary: Summary) -> str | None:
    owed, planned = summary.progress.owed, summary.progress.planned
    if not owed:
        return None
    return f"{owed:,} of {figures.plural(planned, 'planned trial')} not measured yet: resume to finish"


def gap_line(summary: Summary) -> str | None:
    gap = summary.build_gap or summary.check_gap
    if gap is None:
        return None
    what = "every stage" if summary.build_gap else "correctness and speed"
    trials = figures.plural(gap.trials, "trial")
    return f"{what} {figures.NOT_MEASURED} in {trials} ({gap.reason}): {gap.message}"


def headline(comparison: Comparison) -> str:
    """Such as `helps: x1.26 deployed (x1.11, x1.44); $0.42 per extra correct kernel, +$0.03 a trial`."""
    row, decision = comparison.primary, comparison.conclusion.decision
    if row.not_measured or row.lift is None:
        return f"{decision}: {comparison.conclusion.reason}"
    interval = "(no interval)" if row.low is None else figures.bounds(row.unit, row)
    lift = f"{decision}: {figures.change(row.unit, row.lift)} {_COUNTED[row.metric]} {interval}"
    return f"{lift}; {', '.join(_spent(comparison.spending))}" if comparison.spending else lift


def headlines(summary: Summary) -> list[str]:
    """One per comparison, with its model and skill where there are several."""
    if len(summary.comparisons) == 1:
        return [headline(summary.comparisons[0])]
    lines = []
    for one in summary.comparisons:
        against = "" if one.control_label == "without skill" else f" against {one.control_label}"
        lines.append(f"{model_name(summary, one.model)} x {one.label}{against}: {headline(one)}")
    return lines


def _spent(spending: Spending) -> Iterable[str]:
    """Per additional correct kernel, then per trial; dollars where they are known, else tokens."""
    price = _price(spending)
    yield from [price] if price else []
    counts = [
        f"{figures.signed_count(count)} {kind}"
        for kind, count in (("input", spending.input_tokens), ("output", spending.output_tokens))
        if count is not None and round(count)
    ]
    per_trial = [f"{' and '.join(counts)} tokens"] if counts else []
    if spending.cost_usd is not None and abs(spending.cost_usd) >= _LEAST_USD:
        per_trial.insert(0, figures.signed_dollars(spending.cost_usd))
    if per_trial:
        yield f"{', '.join(per_trial)} a trial"
    elif spending.cost_usd is None and spending.tokens is None:
        yield "tokens and cost unknown"
    else:
        yield "no extra cost"


def _price(spending: Spending) -> str | None:
    one = spending
    if one.extra_correct is None:
        return None
    if one.extra_correct <= 0.0:
        return "no additional correct kernel"
    usd, count = one.cost_usd_per_extra_correct, one.tokens_per_extra_correct
    amount: Callable[[float], str]
    if usd is not None:
        ends = (one.cost_usd_per_extra_correct_low, one.cost_usd_per_extra_correct_high)
        amount = figures.dollars
        shown = figures.dollars(usd) if usd >= _LEAST_USD else None
    else:
        ends = (one.tokens_per_extra_correct_low, one.tokens_per_extra_correct_high)
        amount = figures.tokens
        shown = f"{figures.tokens(count)} tokens" if count is not None and count > 0.0 else None
    return shown and f"{shown} per extra correct kernel ({_interval(one, ends, amount)})"


def _interval(
    spending: Spending, ends: tuple[float | None, float | None], worded: Callable[[float], str]
) -> str:
    """The interval of a price, or why it has none, and whether the gain is significant."""
    low, high = ends
    text = "no interval"
    if spending.per_extra_correct_unbounded:
        text = "interval not finite"
    elif low is not None and high is not None:
        text = f"{worded(low)}, {worded(high)}"
    return text if spending.extra_correct_sure else f"{text}: a gain that is not certain"


def why_builds_failed(summary: Summary) -> list[str]:
    """The most frequent first errors of each arm's failed builds.

    Such as `without skill: build.toml: unknown key 'capabilities' (11 of 12)`.
    """
    lines = []
    for arm in dict.fromkeys(count.arm for group in summary.build_failures for count in group.counts):
        found = [(group.count(arm), group.example) for group in summary.build_failures if group.count(arm)]
        failed = sum(count for count, _ in found)
        label = next((one.label for one in summary.arms if one.arm == arm), arm)
        for count, example in sorted(found, key=lambda pair: -pair[0])[:_COMMON_CAUSES]:
            cause = shorten(_PLACE.sub(r"\1: ", example), _CAUSE_CHARS)
            lines.append(f"{label}: {cause} ({count} of {failed})")
    return lines


def clear_errors(comparison: Comparison, change: str) -> list[ErrorClass]:
    return [one for one in comparison.error_classes if one.change == change]


def error_rates(one: ErrorClass) -> str:
    """Such as `first build error syntax 21% -> 0%`."""
    name = one.name if one.group == "cause" else f"first build error {one.name}"
    return f"{name} {figures.percent(one.control.share)} -> {figures.percent(one.treatment.share)}"


def per_correct(arm: ArmSummary, what: str) -> str:
    """Tokens or dollars per correct kernel, or why there is no such figure."""
    if arm.correct is None:
        return figures.NOT_MEASURED
    total = arm.usage.tokens if what == "tokens" else arm.usage.cost_usd
    if total is None and arm.scored:
        return figures.UNKNOWN
    if not arm.correct.count:
        return figures.NOT_AVAILABLE
    if what == "tokens":
        return figures.tokens(arm.tokens_per_correct)
    return figures.dollars(arm.cost_usd_per_correct)


def kernelbench_table(comparison: Comparison) -> Table:
    """fast_p by our rules and by KernelBench's, over the same trials."""
    rows = [["over", "ours: without", "with", "lift", "CI", "theirs: without", "with"]]
    for point in comparison.kernelbench_fast_p:
        cells = [figures.NOT_AVAILABLE] * 4
        if (ours := point.ours) is not None:
            cells = [figures.percent(ours.control), figures.percent(ours.treatment)]
            cells += [figures.change("share", ours.lift), figures.bounds("share", ours)]
        theirs = [figures.percent(point.control), figures.percent(point.treatment)]
        rows.append([f"{point.threshold:g}x", *cells, *theirs])
    return rows


def turn_table(comparison: Comparison) -> Table:
    """The primary metric and what was spent after every turn."""
    unit = comparison.primary.unit
    rows = [["after turn", "without", "with", "lift", "CI", "$ without", "$ with", "lift/$"]]
    for point in comparison.turns:
        cells = [str(point.turn), figures.level(unit, point.control), figures.level(unit, point.treatment)]
        cells += [figures.change(unit, point.lift), figures.bounds(unit, point)]
        cells += [figures.dollars(point.control_cost_usd), figures.dollars(point.treatment_cost_usd)]
        rows.append([*cells, figures.per_usd(unit, point.lift_per_usd)])
    return rows


def matrix_table(summary: Summary, matrix: Matrix, *, intervals: bool) -> Table:
    """A row per model: decision and lift of every skill."""
    rows = [["", *matrix.columns]]
    for row in matrix.rows:
        cells = []
        for cell in row.cells:
            lift = figures.change(matrix.unit, cell.lift)
            shown = figures.lifted(matrix.unit, cell.lift, cell) if intervals else lift
            cells.append(f"{cell.decision} {shown}")
        rows.append([model_name(summary, row.model), *cells])
    return rows


def reading_table(reading: Reading) -> Sequence[tuple[str, str, str]]:
    """Name, share of trials and tokens of every skill and file that was read."""
    rows = []
    for index, one in enumerate((*reading.skills, *reading.files)):
        whole = index < len(reading.skills)
        share = f"{figures.percent(one.trials.share)} of {one.trials.n}"
        name = f"skill {one.file}" if whole else one.file
        rows.append((name, share, "" if whole or one.tokens is None else figures.tokens(one.tokens)))
    return rows
