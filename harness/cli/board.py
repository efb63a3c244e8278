"""`liftbench board`: a leaderboard from runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.board.entries import read_run
from harness.board.site import Table, build_site
from harness.cli.card import plain_table, untrusted
from harness.cli.options import DEFAULT_RUNS, RunsDirOption
from harness.report.experts import read_results
from harness.report.figures import plural
from harness.study.store import find_run


def build_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or their names.")],
    *,
    site: Annotated[Path, typer.Option(help="Folder of the site.")],
    experts: Annotated[
        list[Path] | None, typer.Option(help="Figures of the experts (validate --record); repeatable.")
    ] = None,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
) -> None:
    """Plain HTML and JSON: opens from disk, and is hosted anywhere."""
    found = [read_run(find_run(runs_dir, name).folder) for name in runs]
    tables = build_site(site, found, [one for path in experts or [] for one in read_results(path)])
    console = Console()
    for table in tables:
        _print(table, console)
    console.print(f"\n{plural(len(tables), 'table')}: {site / 'index.html'}", highlight=False, soft_wrap=True)


def _print(table: Table, console: Console) -> None:
    """The entries of one division, and why they are not ranked."""
    division = table.division
    words = f"{division.label}; {division.protocol}, briefing {division.briefing}, tasks {division.suite}"
    console.print(untrusted(words), style="bold")
    shown = plain_table("rank", "model", "skill", division.metric.replace("_", " "), "level")
    for entry in table.entries:
        rank, figure = table.ranking.ranks.get(entry.id), entry.figures.get(division.metric)
        value = "-" if figure is None else f"{figure.value:.3g}"
        cells = (rank.text if rank else "-", entry.model_label, entry.skill, value, entry.level)
        shown.add_row(*map(untrusted, cells))
    console.print(shown)
    reasons = dict.fromkeys(reason for entry in table.entries for reason in entry.not_ranked)
    for reason in (*reasons, *([table.ranking.why] if table.ranking.why else [])):
        console.print(untrusted(f"  not ranked: {reason}"))
