"""Numbers in words: the only module that rounds.

ASCII but for `bar`. None never prints as a number; a share below 1 never prints as 100 %, one above 0 never
as 0 %.
"""

from __future__ import annotations

import re

from harness.report.comparison_schema import Bounded, MetricRow, Unit

NOT_AVAILABLE = "n/a"
UNKNOWN = "unknown"
NOT_MEASURED = "not measured"
_MINUS = re.compile(r"(?<![\w.])-(?=[\d$])")
_TIMES_BEFORE = re.compile(r"\bx(?= ?\d)")
_TIMES_AFTER = re.compile(r"(?<=\d)x\b")


def typeset(text: str) -> str:
    """-3 pts -> −3 pts, x1.31 -> ×1.31, 1.31x -> 1.31×, 30 x 5 -> 30 × 5; only for our own text."""
    text = _MINUS.sub("\N{MINUS SIGN}", text)
    return _TIMES_AFTER.sub("\N{MULTIPLICATION SIGN}", _TIMES_BEFORE.sub("\N{MULTIPLICATION SIGN}", text))


def percent(share: float | None) -> str:
    """0.62 -> 62%."""
    if share is None:
        return NOT_AVAILABLE
    if 0.0 < share < 0.005:
        return "<1%"
    if 0.995 <= share < 1.0:
        return ">99%"
    return f"{100 * share:.0f}%"


def bar(share: float, width: int) -> str:
    """A bar of at most width columns in eighths of one; something where share is above 0."""
    eighths = min(max(round(8 * width * share), share > 0.0), 8 * width)
    return (
        "\N{FULL BLOCK}" * (eighths // 8) + " \u258f\u258e\u258d\u258c\u258b\u258a\u2589"[eighths % 8].strip()
    )


def ascii_bar(share: float, width: int) -> str:
    return "#" * min(max(round(width * share), share > 0.0), width)


def signed_points(difference: float) -> str:
    """0.26 -> +26; a rounded zero has no sign."""
    rounded = round(100 * difference)
    return f"{rounded:+d}" if rounded else "0"


def ratio(value: float | None) -> str:
    if value is None:
        return NOT_AVAILABLE
    return f"{value:.2f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def speedup(value: float | None) -> str:
    return NOT_AVAILABLE if value is None else ratio(value) + "x"


def level(unit: Unit, value: float | None) -> str:
    return percent(value) if unit == "share" else speedup(value)


def change(unit: Unit, value: float | None) -> str:
    if value is None:
        return NOT_AVAILABLE
    return signed_points(value) + " pts" if unit == "share" else "x" + ratio(value)


def bare_change(unit: Unit, value: float) -> str:
    return change(unit, value).removesuffix(" pts")


def bounds(unit: Unit, one: Bounded) -> str:
    """(+17, +35), (x1.11, x1.44) or n/a."""
    if one.low is None or one.high is None:
        return NOT_AVAILABLE
    return f"({bare_change(unit, one.low)}, {bare_change(unit, one.high)})"


def lifted(unit: Unit, lift: float | None, one: Bounded) -> str:
    if lift is None:
        return NOT_AVAILABLE
    return f"{change(unit, lift)} {'(no interval)' if one.low is None else bounds(unit, one)}"


def share_bounds(one: Bounded) -> str:
    return "" if one.low is None else f"({percent(one.low)}, {percent(one.high)})"


def families(row: MetricRow) -> str:
    """6, or 6 (4 differ) where the others show no difference."""
    differ = "" if row.n_different == row.n_families else f" ({row.n_different} differ)"
    return f"{row.n_families}{differ}"


def per_usd(unit: Unit, value: float | None) -> str:
    """Points, or per cent of a ratio, per extra dollar."""
    if value is None:
        return NOT_AVAILABLE
    figure = f"{value:+,.0f}" if abs(value) >= 99.5 else f"{value:+.2g}"
    return f"{figure} pts/$" if unit == "share" else f"{figure}%/$"


def p_value(p: float | None) -> str:
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
    return dollars(0.0) if abs(amount) < 0.0001 else f"{'-' if amount < 0 else '+'}{dollars(abs(amount))}"


def signed_count(count: float) -> str:
    """3104.2 -> +3,104; above 9,999 in thousands."""
    if abs(count) >= 9_999.5:
        return f"{'-' if count < 0 else '+'}{tokens(abs(count))}"
    return f"{round(count):+,d}" if round(count) else "0"


def confidence(alpha: float) -> str:
    return f"{100 * (1 - alpha):g}% CI"


def seconds(duration: float | None) -> str:
    if duration is None:
        return NOT_AVAILABLE
    if duration >= 120:
        return f"{duration / 60:.0f} min" if duration < 7200 else f"{duration / 3600:.1f} h"
    return f"{duration:.1f} s" if duration < 10 else f"{duration:.0f} s"


def microseconds(duration: float | None) -> str:
    """4630.4 -> 4.63 ms; empty for None."""
    if duration is None:
        return ""
    return f"{duration:.3g} us" if duration < 999.5 else f"{duration / 1000:.3g} ms"


def relative_change(after: float | None, before: float | None) -> str:
    if after is None or not before:
        return NOT_AVAILABLE
    rounded = round(100 * (after / before - 1))
    return f"{rounded:+d}%" if rounded else "0%"


def plural(count: int, noun: str) -> str:
    """3, task -> 3 tasks; 1, family -> 1 family; 2, family -> 2 families."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"
