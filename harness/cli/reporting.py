"""From a run's folder to what the user sees at the end of `eval` and `report`.

Owns: which outputs are written and where they are announced. Does not own: their contents.
"""

from __future__ import annotations

from rich.console import Console

from harness.report.records import Summary
from harness.report.summary import summarise
from harness.report.terminal import print_summary
from harness.report.write import write_reports
from harness.store import RunStore


def report_run(store: RunStore, *, json_output: bool) -> Summary:
    """Write the reports into the run's folder and print the table, or the JSON."""
    run = store.run()
    summary = summarise(run, store.load(), run.lock.families)
    write_reports(store.folder, summary)
    if json_output:
        print(summary.model_dump_json(indent=1))
    else:
        console = Console()
        print_summary(summary, console)
        console.print(f"\nreport: {store.folder / 'report.html'}", highlight=False, soft_wrap=True)
    return summary
