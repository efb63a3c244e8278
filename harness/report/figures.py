"""How numbers are worded: the only place that rounds.

ASCII; None never prints as a number; a share below 1 never prints as 100 %, one above 0 never as 0 %.
"""

from __future__ import annotations

from harness.report.records import ArmSummary, KernelBenchPoint, MetricRow, Summary, Unit
from harness.text import clean

NOT_AVAILABLE = "n/a"
UNKNOWN = "unknown"
NOT_MEASURED = "not measured"
FOOTNOTE = "* failed or slower counts as 1.0x"


def percent(share: float | None) -> str:
    """0.62 -> 62%."""
    if share is None:
        return NOT_AVAILABLE
    if 0.0 < share < 0.005:
        return "<1%"
    if 0.995 <= share < 1.0:
        return ">99%"
    return f"{100 * share:.0f}%"


def signed_points(difference: float) -> str:
    """0.26 -> +26; a rounded zero has no sign."""
    rounded = round(100 * difference)
    return f"{rounded:+d}" if rounded else "0"


def ratio(value: float | None) -> str:
    """1.256 -> 1.26."""
    if value is None:
        return NOT_AVAILABLE
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def speedup(value: float | None) -> str:
    """1.256 -> 1.26x."""
    return NOT_AVAILABLE if value is None else ratio(value) + "x"


def level(unit: Unit, value: float | None) -> str:
    """One arm's value of a metric."""
    return percent(value) if unit == "share" else speedup(value)


def change(unit: Unit, value: float | None) -> str:
    """A lift: +26 pts, or x1.26."""
    if value is None:
        return NOT_AVAILABLE
    return signed_points(value) + " pts" if unit == "share" else "x" + ratio(value)


def bounds(unit: Unit, low: float | None, high: float | None) -> str:
    """(+17, +35), (x1.11, x1.44) or n/a."""
    if low is None or high is None:
        return NOT_AVAILABLE
    return f"({change(unit, low).removesuffix(' pts')}, {change(unit, high).removesuffix(' pts')})"


def lifted(unit: Unit, value: float | None, low: float | None, high: float | None) -> str:
    """+26 pts (+17, +35), +26 pts (no interval), or n/a once."""
    if value is None:
        return NOT_AVAILABLE
    ends = "(no interval)" if low is None or high is None else bounds(unit, low, high)
    return f"{change(unit, value)} {ends}"


def fast_p_cells(point: KernelBenchPoint) -> list[str]:
    """A row of both rules: threshold; ours without, with, lift and bounds; theirs without and with."""
    cells = [NOT_AVAILABLE] * 4
    if (ours := point.ours) is not None:
        cells = [percent(ours.control), percent(ours.treatment), change("share", ours.lift)]
        cells.append(bounds("share", ours.low, ours.high))
    return [f"{point.threshold:g}x", *cells, percent(point.control), percent(point.treatment)]


def interval(row: MetricRow) -> str:
    """The bounds of a row's lift."""
    return bounds(row.unit, row.low, row.high)


def families(row: MetricRow) -> str:
    """6, or 6 (4 differ) where the others show no difference."""
    differ = "" if row.n_different == row.n_families else f" ({row.n_different} differ)"
    return f"{row.n_families}{differ}"


def per_usd(unit: Unit, value: float | None) -> str:
    """Points, or per cent of a ratio, for a dollar that the skill costs more."""
    if value is None:
        return NOT_AVAILABLE
    figure = f"{value:+,.0f}" if abs(value) >= 99.5 else f"{value:+.2g}"
    return f"{figure} pts/$" if unit == "share" else f"{figure}%/$"


def p_value(p: float | None) -> str:
    """0.0312 -> 0.031."""
    if p is None:
        return NOT_AVAILABLE
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def tokens(count: float | None) -> str:
    """21300 -> 21k."""
    if count is None:
        return UNKNOWN
    if count < 0:
        return f"-{tokens(-count)}"
    if count < 999.5:
        return f"{count:.0f}"
    if count < 999_500:
        return f"{count / 1e3:.1f}k" if count < 9_950 else f"{count / 1e3:.0f}k"
    return f"{count / 1e6:.1f}M"


def dollars(amount: float | None) -> str:
    """0.0314 -> $0.031."""
    if amount is None:
        return UNKNOWN
    if amount < 0:
        return f"-{dollars(-amount)}"
    if 0 < amount < 0.0001:
        return "<$0.0001"
    return f"${amount:.2f}" if amount >= 0.1 or amount == 0 else f"${amount:.2g}"


def signed_dollars(amount: float) -> str:
    """0.031 -> +$0.031; less than a hundredth of a cent is none."""
    return dollars(0.0) if abs(amount) < 0.0001 else f"{'-' if amount < 0 else '+'}{dollars(abs(amount))}"


def signed_count(count: float) -> str:
    """3104.2 -> +3,104; above 9,999 in thousands."""
    if abs(count) >= 9_999.5:
        return f"{'-' if count < 0 else '+'}{tokens(abs(count))}"
    return f"{round(count):+,d}" if round(count) else "0"


def confidence(alpha: float) -> str:
    """0.05 -> 95% CI, 0.025 -> 97.5% CI."""
    return f"{100 * (1 - alpha):g}% CI"


def seconds(duration: float | None) -> str:
    """4.21 -> 4.2 s."""
    if duration is None:
        return NOT_AVAILABLE
    if duration >= 120:
        return f"{duration / 60:.0f} min" if duration < 7200 else f"{duration / 3600:.1f} h"
    return f"{duration:.1f} s" if duration < 10 else f"{duration:.0f} s"


def per_correct(arm: ArmSummary, what: str) -> str:
    """Tokens or dollars per correct kernel; says why where there is none."""
    if arm.correct is None:
        return NOT_MEASURED
    total = arm.usage.tokens if what == "tokens" else arm.usage.cost_usd
    if total is None and arm.scored:
        return UNKNOWN
    if not arm.correct.count:
        return NOT_AVAILABLE
    return tokens(arm.tokens_per_correct) if what == "tokens" else dollars(arm.cost_usd_per_correct)


def relative_change(after: float | None, before: float | None) -> str:
    """14 after 21 -> -33%."""
    if after is None or not before:
        return NOT_AVAILABLE
    rounded = round(100 * (after / before - 1))
    return f"{rounded:+d}%" if rounded else "0%"


def plural(count: int, noun: str) -> str:
    """3, task -> 3 tasks; 1, family -> 1 family; 2, family -> 2 families."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def model_name(summary: Summary, name: str) -> str:
    """`provider/model` without the provider; a recording goes by whose replies it holds, if it says."""
    provider, _, model = name.partition("/")
    labels = summary.replies.model_labels
    if provider == "replay" and len(labels) == 1 and len(summary.head.models) == 1:
        model = labels[0].partition("/")[2] or labels[0]
    return clean(model or name)


def plan_line(summary: Summary) -> str:
    """`30 tasks x 5 runs`."""
    head = summary.head
    return f"{plural(len(head.tasks), 'task')} x {plural(head.repeats, 'run')}"


def infra_line(failures: int, lost: int) -> str | None:
    """What failed for reasons of ours; None when nothing did."""
    parts = []
    if failures > lost:  # the last failure of a lost trial was not retried
        parts.append(f"{plural(failures - lost, 'infra failure')} retried, not scored")
    if lost:
        parts.append(f"{plural(lost, 'trial')} lost to infra, not scored")
    return "; ".join(parts) or None


def owed_line(owed: int, planned: int) -> str | None:
    """What is still owed; None when nothing is."""
    if not owed:
        return None
    return f"{owed:,} of {plural(planned, 'planned trial')} not measured yet: resume to finish"


def gap_line(summary: Summary) -> str | None:
    """Which stages this machine could not run, and why; None when it ran them all."""
    gap = summary.build_gap or summary.check_gap
    if gap is None:
        return None
    what = "every stage" if summary.build_gap else "correctness and speed"
    return f"{what} {NOT_MEASURED} in {plural(gap.trials, 'trial')} ({gap.reason}): {gap.message}"
