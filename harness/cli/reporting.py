"""From a run's folder to what the user sees at the end of `eval` and `report`."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence

from rich.console import Console

from harness.records import TrialRecord
from harness.report.records import Summary
from harness.report.summary import summarise
from harness.report.terminal import print_summary
from harness.report.write import write_reports
from harness.study.store import RunStore
from harness.text import first_line

_REASONS = 5
"""Shown of why trials were lost."""


def report_run(store: RunStore, *, json_output: bool, quiet: bool = False) -> Summary:
    """Write the reports into the run's folder and print the table, or the JSON; lost trials go to stderr.

    With `quiet` nothing is printed.
    """
    run, trials = store.run(), store.load()
    summary = summarise(run, trials, run.lock.families)
    write_reports(store.folder, summary)
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
    for line in loss_lines(summary, trials):
        print(line, file=sys.stderr)
    return summary


def loss_lines(summary: Summary, trials: Sequence[TrialRecord]) -> list[str]:
    """How many trials were lost to failures of ours, and why: each reason once, with its count."""
    lost = [trial.failures[-1] for trial in trials if trial.infra]
    if not lost:
        return []
    reasons = Counter((failure.cause, first_line(failure.message)) for failure in lost)
    said = [f"  {count} x {cause}: {message}" for (cause, message), count in reasons.most_common(_REASONS)]
    if len(reasons) > _REASONS:
        said.append(f"  and {len(reasons) - _REASONS} other reasons: see report.html")
    planned = summary.progress.planned
    head = f"warning: {len(lost)} of {planned} trials are lost to failures that are not the student's"
    return [f"{head}; the same `eval` tries them again", *said]
