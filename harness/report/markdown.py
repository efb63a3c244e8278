"""report.md: a short report for a pull request or an issue.

No cell can be read as markup or as a second line.
"""

from __future__ import annotations

from harness.report import figures as f
from harness.report.headline import headlines
from harness.report.matrix import matrix_leads
from harness.report.records import Comparison, Matrix, Reading, Summary
from harness.text import clean


def _markdown(value: str) -> str:
    """Text in a Markdown table: one line, no markup."""
    text = " ".join(clean(value).split())
    return "".join("\\" + c if c in "\\`*_{}[]<>()#!|~" else c for c in text)


def _comparison(summary: Summary, comparison: Comparison) -> list[str]:
    made, interval = comparison.conclusion, f"{f.confidence(summary.head.alpha)}, by family"
    lines = [
        f"## {_markdown(comparison.model)} x {_markdown(comparison.label)}",
        "",
        f"**{made.decision}** on {made.metric}, against {_markdown(comparison.control_label)}: "
        f"{_markdown(made.reason)}.",
        "",
        f"| metric | control | with | lift | {interval} | p | p, Holm | families |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in comparison.rows:
        if row.not_measured:
            lines.append(
                f"| {_markdown(row.label)} | not measured ({_markdown(row.not_measured)}) | | | | | | |"
            )
            continue
        levels = [
            f.level(row.unit, row.control),
            f.level(row.unit, row.treatment),
            f.change(row.unit, row.lift),
        ]
        tested = f.p_value(row.p_value) if row.role != "descriptive" else ""
        holm = f.p_value(row.p_holm) if row.role == "secondary" else row.role
        cells = [_markdown(row.label), *levels, f.interval(row), tested, holm, f.families(row)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(f"- {_markdown(caveat)}" for caveat in comparison.caveats), ""]
    return [*lines, *_origin(comparison), *_turns(comparison, interval), *_kernelbench(comparison, interval)]


def _kernelbench(comparison: Comparison, interval: str) -> list[str]:
    """Both scores side by side, over the same trials of KernelBench's problems."""
    if not comparison.kernelbench_fast_p:
        return []
    lines = [
        "fast\\_p on KernelBench's problems: ours by family on the judge's clock; theirs by its own "
        "rules, plain means over kernels, over eager, times as the processes claim them.",
        "",
        f"| correct and faster than | ours, control | with | lift | {interval} | theirs, control | with |",
        "|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for point in comparison.kernelbench_fast_p:
        lines.append("| " + " | ".join(f.fast_p_cells(point)) + " |")
    return [*lines, ""]


def _origin(comparison: Comparison) -> list[str]:
    """Where the lift comes from, and which errors changed for sure."""
    lines = []
    if comparison.transitions is not None and comparison.transitions.movements:
        moved = (_markdown(movement.words) for movement in comparison.transitions.movements)
        lines += ["Where the lift comes from (net):", "", *(f"- {words}" for words in moved), ""]
    clear = [one for one in comparison.error_classes if one.change in ("removed", "introduced")]
    for one in clear:
        rates = [f.percent(rate.count / rate.n if rate.n else None) for rate in (one.control, one.treatment)]
        said = (
            f"{one.change}: {one.name}, {rates[0]} to {rates[1]} of trials (p, Holm: {f.p_value(one.p_holm)})"
        )
        lines.append(f"- {_markdown(said)}")
    return [*lines, ""] if clear else lines


def _turns(comparison: Comparison, interval: str) -> list[str]:
    if not comparison.turns:
        return []
    row = comparison.row(comparison.conclusion.metric)
    lines = [
        f"| turn | {row.label}, control | with | lift | {interval} | $ control | $ with | lift per $ |",
        "|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for point in comparison.turns:
        cells = [str(point.turn), f.level(row.unit, point.control), f.level(row.unit, point.treatment)]
        cells += [f.change(row.unit, point.lift), f.bounds(row.unit, point.low, point.high)]
        cells += [f.dollars(point.control_cost_usd), f.dollars(point.treatment_cost_usd)]
        lines.append("| " + " | ".join([*cells, f.per_usd(row.unit, point.lift_per_usd)]) + " |")
    return [*lines, ""]


def _matrix(summary: Summary, matrix: Matrix) -> list[str]:
    lines = [
        f"## Decisions on {summary.head.metric}, against {_markdown(matrix.control_label)}",
        "",
        "| model | " + " | ".join(map(_markdown, matrix.columns)) + " |",
        "|---" * (1 + len(matrix.columns)) + "|",
    ]
    for row in matrix.rows:
        cells = [f"**{c.decision}** {f.lifted(matrix.unit, c.lift, c.low, c.high)}" for c in row.cells]
        lines.append("| " + " | ".join([_markdown(row.model), *cells]) + " |")
    return [*lines, ""]


def _reading(reading: Reading) -> list[str]:
    lines = [
        f"## What was read: {_markdown(reading.model)} x {_markdown(reading.label)}",
        "",
        "| file | trials | tokens |",
        "|---|--:|--:|",
    ]
    for index, one in enumerate((*reading.skills, *reading.files)):
        whole = index < len(reading.skills)
        share = f"{f.percent(one.trials.count / one.trials.n if one.trials.n else None)} of {one.trials.n}"
        name = f"skill {one.file}" if whole else one.file
        lines.append(f"| {_markdown(name)} | {share} | {'' if whole else f.tokens(one.tokens)} |")
    return [*lines, ""]


def report_markdown(summary: Summary) -> str:
    """A short report for a pull request or an issue."""
    head, progress = summary.head, summary.progress
    leading = summary.matrices if matrix_leads(summary) else ()
    lines = [
        f"# liftbench: {_markdown(head.run_id)}",
        "",
        *(line for matrix in leading for line in _matrix(summary, matrix)),
        *(f"**{_markdown(text)}**  " for text in headlines(summary)),
        *([""] if summary.comparisons else []),
        f"{f.plan_line(summary)}, {_markdown(head.device)}, sandbox {_markdown(head.sandbox)}, "
        f"protocol {head.protocol}",
        "",
    ]
    notes = [
        f.owed_line(progress.owed, progress.planned),
        f.infra_line(progress.infra_failures, progress.infra_trials),
        f.gap_line(summary),
        *summary.warnings,
    ]
    lines += [f"- {_markdown(note)}" for note in notes if note]
    for matrix in () if leading else summary.matrices:
        lines += ["", *_matrix(summary, matrix)]
    for comparison in summary.comparisons:
        lines += ["", *_comparison(summary, comparison)]
    lines += ["", "| model | arm | scored | compiles | correct | tokens/correct | $/correct |"]
    lines.append("|---|---|--:|--:|--:|--:|--:|")
    for arm in summary.arms:
        rates = [
            f.NOT_MEASURED if rate is None else f"{f.percent(rate.count / rate.n if rate.n else None)}"
            for rate in (arm.compiled, arm.correct)
        ]
        cells = [_markdown(arm.model), _markdown(arm.label), str(arm.scored), *rates]
        cells += [f.per_correct(arm, "tokens"), f.per_correct(arm, "dollars")]
        lines.append("| " + " | ".join(cells) + " |")
    lines.append("")
    for reading in summary.readings:
        lines += _reading(reading)
    return "\n".join(lines)
