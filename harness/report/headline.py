"""The conclusion in one sentence: the decision, the lift, and what it costs.

The same words in terminal, HTML and Markdown; unknown is said, and no price where nothing was gained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from harness.report import figures as f
from harness.report.records import Comparison, Spending, Summary

_LEAST_USD: Final = 0.0001  # less is no cost that anyone would plan with
_COUNTS: Final = {"deployed": "deployed", "correct": "correct", "compiles": "compiling"}


def headline(comparison: Comparison) -> str:
    """Such as `helps: x1.26 deployed (x1.11, x1.44); $0.42 per extra correct kernel, +$0.03 a trial`."""
    row = comparison.row(comparison.conclusion.metric)
    verdict = comparison.conclusion.decision
    if row.not_measured or row.lift is None:
        return f"{verdict}: {comparison.conclusion.reason}"
    interval = f.interval(row)
    spread = "(no interval)" if interval == f.NOT_AVAILABLE else interval
    lift = f"{verdict}: {f.change(row.unit, row.lift)} {_COUNTS[row.metric]} {spread}"
    money = ", ".join(spent(comparison.spending)) if comparison.spending else ""
    return f"{lift}; {money}" if money else lift


def headlines(summary: Summary) -> list[str]:
    """One per comparison; with who was compared where there are several."""
    said = [headline(comparison) for comparison in summary.comparisons]
    if len(said) == 1:
        return said
    return [f"{_who(summary, c)}: {text}" for c, text in zip(summary.comparisons, said, strict=True)]


def _who(summary: Summary, comparison: Comparison) -> str:
    against = "" if comparison.control_label == "without skill" else f" against {comparison.control_label}"
    return f"{f.model_name(summary, comparison.model)} x {comparison.label}{against}"


def spent(spending: Spending) -> Iterable[str]:
    """Per additional correct kernel, then per trial; dollars where they are known, else tokens."""
    per_correct = _per_correct(spending)
    yield from [per_correct] if per_correct else []
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


def _per_correct(spending: Spending) -> str | None:
    gained = spending.extra_correct
    if gained is None:
        return None
    if gained <= 0.0:
        return "no additional correct kernel"
    dollars, tokens = spending.cost_usd_per_extra_correct, spending.tokens_per_extra_correct
    if dollars is not None:
        ends = spending.cost_usd_per_extra_correct_low, spending.cost_usd_per_extra_correct_high
        said = _ends(spending, ends, f.dollars)
        return f"{f.dollars(dollars)} per extra correct kernel ({said})" if dollars >= _LEAST_USD else None
    if tokens is not None and tokens > 0.0:
        ends = spending.tokens_per_extra_correct_low, spending.tokens_per_extra_correct_high
        return f"{f.tokens(tokens)} tokens per extra correct kernel ({_ends(spending, ends, f.tokens)})"
    return None


def _ends(spending: Spending, ends: tuple[float | None, float | None], worded: Callable[[float], str]) -> str:
    """What stands in brackets behind a price: its interval, why it has none, and whether the gain is sure."""
    low, high = ends
    said = "no interval"
    if spending.per_extra_correct_unbounded:
        said = "interval not finite"
    elif low is not None and high is not None:
        said = f"{worded(low)}, {worded(high)}"
    return said if spending.extra_correct_sure else f"{said}: a gain that is not certain"
