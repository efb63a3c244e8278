"""Reports a run: prints its table, and writes report.html, report.json, report.md, trials.csv and junit.xml.

`python -m harness.report.write > docs/report.schema.json` renews the published JSON Schema of report.json.
"""

from __future__ import annotations

import csv
import io
import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from jinja2 import Environment, FileSystemLoader
from rich.console import Console

from harness.files import write_atomically
from harness.outcome import Verdict
from harness.records import TrialRecord
from harness.report import figures, wording
from harness.report.comparison_schema import MetricRow
from harness.report.headline import keep_headline
from harness.report.html import TEMPLATES, render_html
from harness.report.schema import ArmSummary, Summary, TrialRow
from harness.report.summary import summarise
from harness.report.terminal import print_summary
from harness.report.transcripts import Transcript, read_transcript
from harness.study.store import RunStore
from harness.text import clean, first_line, shorten

COLUMNS: Final = (
    "task", "family", "model", "arm", "repeat", "verdict", "emulated", "stage", "cause", "headline",
    "build_wall_s", "compiler_s", "cache_hit", "jit", "worst_error", "speedup", "speedup_low", "speedup_high",
    "flags", "tokens", "cost_usd", "folder",
)  # fmt: skip
_REASONS: Final = 5
"""At most this many different reasons for lost trials are printed."""
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets evaluate (OWASP, CSV Injection)


def _cell(value: object) -> object:
    if isinstance(value, tuple):
        value = "; ".join(value)
    if not isinstance(value, str):
        return value
    text = " ".join(clean(value).split("\n"))
    return "'" + text if text.startswith(_FORMULA) else text


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """RFC 4180 with \\n; no cell is evaluated by a spreadsheet, None is an empty one."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return out.getvalue()


def trials_csv(trials: Sequence[TrialRow]) -> str:
    """One line per trial; an empty cell is unknown or not reached."""
    return csv_text(COLUMNS, ([getattr(row, column) for column in COLUMNS] for row in trials))


def junit_xml(summary: Summary) -> str:
    """One suite per model and arm: infra is an error, not measured is skipped."""
    root = ElementTree.Element("testsuites", name=summary.head.run_id)
    for model, arm in dict.fromkeys((row.model, row.arm) for row in summary.trials):
        rows = [row for row in summary.trials if (row.model, row.arm) == (model, arm)]
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


def _escaped(value: str) -> str:
    text = " ".join(clean(value).split())
    return "".join("\\" + c if c in "\\`*_{}[]<>#!|~" else c for c in text)


def _table(rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table of escaped cells with its header; the first `left` columns are aligned to the left."""
    head, *body = (f"| {' | '.join(map(_escaped, row))} |" for row in rows)
    return "\n".join([head, "|" + "---|" * left + "--:|" * (len(rows[0]) - left), *body])


def _arm(arm: ArmSummary) -> list[str]:
    rates = [
        figures.NOT_MEASURED if rate is None else figures.percent(rate.share)
        for rate in (arm.compiled, arm.correct)
    ]
    costs = [wording.per_correct(arm, "tokens"), wording.per_correct(arm, "dollars")]
    return [arm.model, arm.label, str(arm.scored), *rates, *costs]


def _metric(row: MetricRow) -> list[str]:
    if row.not_measured:
        return [row.label, f"{figures.NOT_MEASURED} ({row.not_measured})", *[""] * 6]
    cells = [row.label, figures.level(row.unit, row.control), figures.level(row.unit, row.treatment)]
    cells += [figures.change(row.unit, row.lift), figures.bounds(row.unit, row)]
    cells += [figures.p_value(row.p_value) if row.role != "descriptive" else ""]
    return [
        *cells,
        figures.p_value(row.p_holm) if row.role == "secondary" else row.role,
        figures.families(row),
    ]


def report_markdown(summary: Summary) -> str:
    """A short report for a pull request or an issue. No value is read as markup."""
    made = Environment(loader=FileSystemLoader(TEMPLATES), trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"esc": _escaped, "table": _table, "metric": _metric, "arm": _arm}
    infra = wording.infra_line(summary.progress.infra_failures, summary.progress.infra_trials)
    notes = [wording.owed_line(summary), infra, wording.gap_line(summary), *summary.warnings]
    ci = f"{figures.confidence(summary.head.alpha)}, by family"
    template = made.get_template("report.md.j2")
    return template.render(s=summary, w=wording, f=figures, notes=notes, ci=ci) + "\n"


def report_json(summary: Summary) -> str:
    """The whole Summary; reads back with Summary.model_validate_json."""
    return json.dumps(summary.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def schema_text() -> str:
    """JSON Schema (draft 2020-12) of report.json, as published."""
    made = Summary.model_json_schema(mode="serialization") | {"title": "liftbench report"}
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def write_reports(
    folder: Path, summary: Summary, transcripts: Mapping[str, Transcript] | None = None
) -> tuple[Path, ...]:
    """Write every file into folder, each atomically, after all are rendered; returns their paths.

    transcripts: by the trial's folder, for report.html.
    """
    texts = {
        "report.html": render_html(summary, transcripts),
        "report.json": report_json(summary),
        "report.md": report_markdown(summary),
        "trials.csv": trials_csv(summary.trials),
        "junit.xml": junit_xml(summary),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return tuple(folder / name for name in texts)


def report_run(store: RunStore, *, json_output: bool, quiet: bool = False) -> Summary:
    """Write the reports into the run's folder and print the table, or the JSON; lost trials go to stderr.

    With `quiet` nothing is printed.
    """
    run, size, trials = store.run(), store.trials_bytes, store.load()
    summary = summarise(run, trials, run.lock.families)
    summary = summary.model_copy(update={"warnings": (*summary.warnings, *_grader_warnings(store.notes()))})
    write_reports(store.folder, summary, {one.key.folder: read_transcript(store, one) for one in trials})
    keep_headline(store, summary, size)
    if quiet:
        return summary
    if json_output:
        print(summary.model_dump_json(indent=1))
    else:
        console = Console()
        if summary.progress.scored:
            print_summary(summary, console)
        else:
            console.print(f"nothing is scored: 0 of {summary.progress.planned} trials", highlight=False)
        console.print(f"\nreport: {store.folder / 'report.html'}", highlight=False, soft_wrap=True)
        sys.stdout.flush()  # before what follows on stderr
    for line in _loss_lines(summary, trials):
        print(line, file=sys.stderr)
    return summary


def _grader_warnings(notes: Sequence[str]) -> list[str]:
    """Graders of a fleet that were left out, and how often one was lost."""
    again = sum("is started again" in note for note in notes)
    left_out = [clean(note) for note in dict.fromkeys(notes) if "is started again" not in note]
    lost = f"{figures.plural(again, 'time')} a grader was lost and started again: no trial was scored for it"
    return left_out[:_REASONS] + ([lost] if again else [])


def _loss_lines(summary: Summary, trials: Sequence[TrialRecord]) -> list[str]:
    """How many trials were lost to our own failures, and why: each reason once, with its count."""
    lost = [trial.failures[-1] for trial in trials if trial.infra]
    if not lost:
        return []
    reasons = Counter((failure.cause, first_line(failure.message)) for failure in lost)
    lines = [f"  {count} x {cause}: {message}" for (cause, message), count in reasons.most_common(_REASONS)]
    if len(reasons) > _REASONS:
        lines.append(f"  and {len(reasons) - _REASONS} other reasons: see report.html")
    planned = summary.progress.planned
    head = f"warning: {len(lost)} of {planned} trials are lost to failures that are not the student's"
    return [f"{head}; the same command tries them again", *lines]


if __name__ == "__main__":
    print(schema_text(), end="")
