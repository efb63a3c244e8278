"""Write the derived files into a run folder.

A reader sees the old file or the new one, never half of one; all texts are rendered before the first file
is replaced.
"""

from __future__ import annotations

from pathlib import Path

from harness.files import write_atomically
from harness.report.html import render_html
from harness.report.json_report import report_json
from harness.report.markdown import report_markdown
from harness.report.records import Summary
from harness.report.tables import junit_xml, trials_csv


def write_reports(folder: Path, summary: Summary) -> tuple[Path, ...]:
    """report.html, report.json, report.md, trials.csv and junit.xml in folder; returns their paths."""
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
