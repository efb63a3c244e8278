"""The files of a report: report.html, report.json, report.md, trials.csv and junit.xml.

`python -m harness.report.write > docs/report.schema.json` renews the published JSON Schema of report.json.
"""

from __future__ import annotations

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from harness.files import write_atomically
from harness.outcome import Verdict
from harness.report.html import render_html
from harness.report.markdown import report_markdown
from harness.report.records import Summary, TrialRow
from harness.text import clean, shorten

COLUMNS: Final = (
    "task", "family", "model", "arm", "repeat", "verdict", "stage", "cause", "headline", "build_wall_s",
    "compiler_s", "cache_hit", "jit", "worst_error", "speedup", "speedup_low", "speedup_high", "flags",
    "tokens", "cost_usd", "folder",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")  # what spreadsheets evaluate (OWASP, CSV Injection)


def _cell(value: object) -> object:
    """A cell: unknown is empty, and text is never a formula."""
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


def report_json(summary: Summary) -> str:
    """The whole Summary; reads back with Summary.model_validate_json."""
    return json.dumps(summary.model_dump(mode="json"), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of report.json."""
    made = Summary.model_json_schema(mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made | {"title": "liftbench report"}


def schema_text() -> str:
    """The published schema file."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


def write_reports(folder: Path, summary: Summary) -> tuple[Path, ...]:
    """Write every file into folder, each atomically, after all are rendered; returns their paths."""
    texts = {
        "report.html": render_html(summary),
        "report.json": report_json(summary),
        "report.md": report_markdown(summary),
        "trials.csv": trials_csv(summary.trials),
        "junit.xml": junit_xml(summary),
    }
    for name, text in texts.items():
        write_atomically(folder / name, text)
    return tuple(folder / name for name in texts)


if __name__ == "__main__":
    print(schema_text(), end="")
