"""Sentences and tables that the terminal, HTML and Markdown reports share.

Nothing is escaped here: every renderer does that for its format.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from harness.report import figures as f
from harness.report.effects import Comparison, ErrorClass, Matrix, Spending
from harness.report.records import ArmSummary, Reading, Summary
from harness.text import clean

Table = list[list[str]]
"""The header, then the rows."""
FOOTNOTE: Final = "* failed or slower counts as 1.0x"
TURNS_NOTE: Final = "turn by turn (decided on the last; dollars per trial so far)"
KERNELBENCH_NOTES: Final = (
    "KernelBench's problems, fast_p: correct and faster than the reference by",
    "ours: by family, the judge's clock; theirs: over kernels, times as claimed",
)
_LEAST_USD: Final = 0.0001
_COUNTED: Final = {"deployed": "deployed", "correct": "correct", "compiles": "compiling"}


def model_name(summary: Summary, name: str) -> str:
    """`provider/model` without the provider; a recording has the name of the model that it recorded."""
    provider, _, model = name.partition("/")
    labels = summary.replies.model_labels
    if provider == "replay" and len(labels) == 1 and len(summary.head.models) == 1:
        model = labels[0].partition("/")[2] or labels[0]
    return clean(model or name)


def plan_line(summary: Summary) -> str:
    head = summary.head
    return f"{f.plural(len(head.tasks), 'task')} x {f.plural(head.repeats, 'run')}"


def infra_line(failures: int, lost: int) -> str | None:
    """How many failures were ours; None without any."""
    parts = []
    if failures > lost:  # the last failure of a lost trial was not retried
        parts.append(f"{f.plural(failures - lost, 'infra failure')} retried, not scored")
    if lost:
        parts.append(f"{f.plural(lost, 'trial')} lost to infra, not scored")
    return "; ".join(parts) or None


def owed_line(summary: Summary) -> str | None:
    owed, planned = summary.progress.owed, summary.progress.planned
    if not owed:
        return None
    return f"{owed:,} of {f.plural(planned, 'planned trial')} not measured yet: resume to finish"


def gap_line(summary: Summary) -> str | None:
    gap = summary.build_gap or summary.check_gap
    if gap is None:
        return None
    what = "every stage" if summary.build_gap else "correctness and speed"
    return f"{what} {f.NOT_MEASURED} in {f.plural(gap.trials, 'trial')} ({gap.reason}): {gap.message}"


def headline(comparison: Comparison) -> str:
    """Such as `helps: x1.26 deployed (x1.11, x1.44); $0.42 per extra correct kernel, +$0.03 a trial`."""
    row, decision = comparison.primary, comparison.conclusion.decision
    if row.not_measured or row.lift is None:
        return f"{decision}: {comparison.conclusion.reason}"
    interval = "(no interval)" if row.low is None else f.bounds(row.unit, row)
    lift = f"{decision}: {f.change(row.unit, row.lift)} {_COUNTED[row.metric]} {interval}"
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
        f"{f.signed_count(count)} {kind}"
        for kind, count in (("input", spending.input_tokens), ("output", spending.output_tokens))
        if count is not None and round(count)
    ]
    per_trial = [f"{' and '.join(counts)} tokens"] if counts else []
    if spending.cost_usd is not None and abs(spending.cost_usd) >= _LEAST_USD:
        per_trial.insert(0, f.signed_dollars(spending.cost_usd))
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
        ends, amount = (one.cost_usd_per_extra_correct_low, one.cost_usd_per_extra_correct_high), f.dollars
        shown = f.dollars(usd) if usd >= _LEAST_USD else None
    else:
        ends, amount = (one.tokens_per_extra_correct_low, one.tokens_per_extra_correct_high), f.tokens
        shown = f"{f.tokens(count)} tokens" if count is not None and count > 0.0 else None
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


def clear_errors(comparison: Comparison, change: str) -> list[ErrorClass]:
    return [one for one in comparison.error_classes if one.change == change]


def error_rates(one: ErrorClass) -> str:
    """Such as `first build error syntax 21% -> 0%`."""
    name = one.name if one.group == "cause" else f"first build error {one.name}"
    return f"{name} {f.percent(one.control.share)} -> {f.percent(one.treatment.share)}"


def per_correct(arm: ArmSummary, what: str) -> str:
    """Tokens or dollars per correct kernel, or why there is no such figure."""
    if arm.correct is None:
        return f.NOT_MEASURED
    total = arm.usage.tokens if what == "tokens" else arm.usage.cost_usd
    if total is None and arm.scored:
        return f.UNKNOWN
    if not arm.correct.count:
        return f.NOT_AVAILABLE
    return f.tokens(arm.tokens_per_correct) if what == "tokens" else f.dollars(arm.cost_usd_per_correct)


def kernelbench_table(comparison: Comparison) -> Table:
    """fast_p by our rules and by KernelBench's, over the same trials."""
    rows = [["over", "ours: without", "with", "lift", "CI", "theirs: without", "with"]]
    for point in comparison.kernelbench_fast_p:
        cells = [f.NOT_AVAILABLE] * 4
        if (ours := point.ours) is not None:
            cells = [f.percent(ours.control), f.percent(ours.treatment)]
            cells += [f.change("share", ours.lift), f.bounds("share", ours)]
        rows.append([f"{point.threshold:g}x", *cells, f.percent(point.control), f.percent(point.treatment)])
    return rows


def turn_table(comparison: Comparison) -> Table:
    """The primary metric and what was spent after every turn."""
    unit = comparison.primary.unit
    rows = [["after turn", "without", "with", "lift", "CI", "$ without", "$ with", "lift/$"]]
    for point in comparison.turns:
        cells = [str(point.turn), f.level(unit, point.control), f.level(unit, point.treatment)]
        cells += [f.change(unit, point.lift), f.bounds(unit, point)]
        cells += [f.dollars(point.control_cost_usd), f.dollars(point.treatment_cost_usd)]
        rows.append([*cells, f.per_usd(unit, point.lift_per_usd)])
    return rows


def matrix_table(summary: Summary, matrix: Matrix, *, intervals: bool) -> Table:
    """A row per model: decision and lift of every skill."""
    rows = [["", *matrix.columns]]
    for row in matrix.rows:
        cells = [
            f"{c.decision} {f.lifted(matrix.unit, c.lift, c) if intervals else f.change(matrix.unit, c.lift)}"
            for c in row.cells
        ]
        rows.append([model_name(summary, row.model), *cells])
    return rows


def reading_table(reading: Reading) -> Sequence[tuple[str, str, str]]:
    """Name, share of trials and tokens of every skill and file that was read."""
    rows = []
    for index, one in enumerate((*reading.skills, *reading.files)):
        whole = index < len(reading.skills)
        share = f"{f.percent(one.trials.share)} of {one.trials.n}"
        name = f"skill {one.file}" if whole else one.file
        rows.append((name, share, "" if whole or one.tokens is None else f.tokens(one.tokens)))
    return rows
