"""trials.csv, report.md and junit.xml.

Owns: flat renderings for spreadsheets, pull requests and CI. Does not own: figures or files
(write.py). Invariant: no cell can be read as a formula, as markup or as a second line.
"""

from __future__ import annotations

import csv
import io
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from harness.outcome import Verdict
from harness.report import figures as f
from harness.report.clean import clean, shorten
from harness.report.records import Comparison, Summary, TrialRow

COLUMNS: Final = (
    "task", "family", "model", "arm", "repeat", "verdict", "stage", "cause", "headline", "build_wall_s",
    "compiler_s", "cache_hit", "jit", "worst_error", "speedup", "speedup_low", "speedup_high", "flags",
    "tokens", "cost_usd", "folder",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets evaluate (OWASP, CSV Injection)


def _cell(value: object) -> object:
    """A value as it stands in a cell: unknown is empty, text is never a formula."""
    if isinstance(value, tuple):
        value = "; ".join(value)
    if not isinstance(value, str):
        return value
    text = " ".join(clean(value).split("\n"))
    return "'" + text if text.startswith(_FORMULA) else text


def trials_csv(trials: Sequence[TrialRow]) -> str:
    """One line per trial, RFC 4180 with \\n; an empty cell is unknown or not reached."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in trials:
        writer.writerow([_cell(getattr(row, column)) for column in COLUMNS])
    return out.getvalue()


def _markdown(value: str) -> str:
    """Text in a Markdown table: one line, no markup."""
    text = " ".join(clean(value).split())
    return "".join("\\" + c if c in "\\`*_{}[]<>()#!|~" else c for c in text)


def _comparison(comparison: Comparison) -> list[str]:
    made = comparison.conclusion
    lines = [
        f"## {_markdown(comparison.model)} x {_markdown(comparison.label)}",
        "",
        f"**{made.decision}** on {made.metric}, against {_markdown(comparison.control_label)}: "
        f"{_markdown(made.reason)}.",
        "",
        "| metric | control | with | lift | 95% CI, by family | p | p, Holm | families |",
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
        cells = [_markdown(row.label), *levels, f.interval(row), tested, holm, str(row.n_families)]
        lines.append("| " + " | ".join(cells) + " |")
    return [*lines, "", *(f"- {_markdown(caveat)}" for caveat in comparison.caveats), ""]


def report_markdown(summary: Summary) -> str:
    """A short report for a pull request or an issue."""
    head, progress = summary.head, summary.progress
    lines = [
        f"# liftbench: {_markdown(head.run_id)}",
        "",
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
    for comparison in summary.comparisons:
        lines += ["", *_comparison(comparison)]
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
    return "\n".join(lines)


def junit_xml(summary: Summary) -> str:
    """One suite per model and arm: infra is an error, not measured is skipped."""
    root = ElementTree.Element("testsuites", name=summary.head.run_id)
    suites: dict[tuple[str, str], list[TrialRow]] = defaultdict(list)
    for row in summary.trials:
        suites[row.model, row.arm].append(row)
    for (model, arm), rows in suites.items():
        verdicts = [row.verdict for row in rows]
        skipped, errors = verdicts.count(Verdict.NOT_MEASURED), verdicts.count(Verdict.INFRA)
        failures = len(rows) - skipped - errors - verdicts.count(Verdict.CORRECT)
        counts = {"tests": len(rows), "failures": failures, "errors": errors, "skipped": skipped}
        suite = ElementTree.SubElement(
            root, "testsuite", {"name": f"{model} {arm}"} | {k: str(v) for k, v in counts.items()}
        )
        for row in rows:
            case = ElementTree.SubElement(suite, "testcase", classname=row.task, name=f"run {row.repeat}")
            if row.verdict is Verdict.CORRECT:
                continue
            kind = {Verdict.INFRA: "error", Verdict.NOT_MEASURED: "skipped"}.get(row.verdict, "failure")
            ElementTree.SubElement(case, kind, message=shorten(clean(row.headline), 200)).text = clean(
                row.message
            )
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
