"""Write the derived files into a run folder.

Owns: file names and atomic replacement. Does not own: contents. Invariant: a reader sees the old
file or the new one, never half of one; all texts are rendered before the first file is replaced.
"""

from __future__ import annotations

import os
from pathlib import Path

from harness.report.html import render_html
from harness.report.json_report import report_json
from harness.report.records import Summary
from harness.report.tables import junit_xml, report_markdown, trials_csv


def write_reports(folder: Path, summary: Summary) -> tuple[Path, ...]:
    """report.html, report.json, report.md, trials.csv and junit.xml in folder; returns their paths."""
    texts = {
        "report.html": render_html(summary),
        "report.json": report_json(summary),
        "report.md": report_markdown(summary),
        "trials.csv": trials_csv(summary.trials),
        "junit.xml": junit_xml(summary),
    }
    return tuple(_replace(folder / name, text) for name, text in texts.items())


def _replace(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_text(text, encoding="utf-8", newline="\n")
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
