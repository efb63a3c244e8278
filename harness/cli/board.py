"""`liftbench board`: a leaderboard from runs."""

from __future__ import annotations

import secrets
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.board.entries import BoardRun, read_run
from harness.board.site import Table, build_site
from harness.board.submission import (
    MANIFEST,
    contradictions,
    delist,
    duplicates,
    faults_of,
    pack,
    read_submission,
)
from harness.cli.card import plain_table, untrusted
from harness.cli.options import (
    DEFAULT_RUNS,
    FleetOptions,
    GradingOptions,
    RunArgument,
    RunsDirOption,
    make_setup,
)
from harness.cli.progress import StderrDisplay
from harness.cli.tasks import chosen_tasks
from harness.errors import UsageError
from harness.report.experts import read_results
from harness.report.figures import plural
from harness.study.regrade import read_source
from harness.study.regrade import regrade as regrade_run
from harness.study.run import RunContext
from harness.study.store import find_run

_SHOWN = 3
"""Faults of one submission."""


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


def submit_command(
    run: RunArgument,
    *,
    out: Annotated[Path, typer.Option(help="Folder of submissions, such as a checkout of the board.")],
    runs_dir: RunsDirOption = DEFAULT_RUNS,
) -> None:
    """Checked as the board will; nothing is sent."""
    made = pack(read_run(find_run(runs_dir, run).folder), out)
    print(f"packed: {made}; commit it, and open a pull request")


def check_command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of submissions.")],
    *,
    regrade: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of each run's tasks to grade again, at random.")
    ] = 0.0,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    grading: GradingOptions,
    several: FleetOptions,
) -> int:
    """What the board's CI runs; a run that contradicts itself is delisted. Exit code 3 for any fault."""
    found: list[BoardRun] = []
    faults: dict[str, str] = {}
    for place in sorted(path.parent for path in folder.glob(f"*/{MANIFEST}")):
        try:
            one = read_submission(place)
        except UsageError as error:
            faults[place.name] = f"{error}"
            continue
        found.append(one)
        if found_faults := list(faults_of(one)):
            faults[one.run.run_id] = "; ".join(found_faults[:_SHOWN])
    faults |= {line.partition(":")[0]: line for line in duplicates(found)}
    sound = [one for one in found if one.run.run_id not in faults and one.delisted is None]
    if regrade:
        contradicted = {
            one.run.run_id: _contradiction(one, regrade, grading, several, runs_dir) for one in sound
        }
        delist(folder, {run: why for run, why in contradicted.items() if why})
        faults |= {run: f"delisted: {why}" for run, why in contradicted.items() if why}
    for run, why in faults.items():
        Console().print(untrusted(f"{run}: {why}"), soft_wrap=True)
    print(f"{plural(len(found), 'submission')} read, {len(faults)} refused or delisted")
    return 3 if faults else 0


def _contradiction(
    one: BoardRun, share: float, grading: GradingOptions, several: FleetOptions, runs: Path
) -> str | None:
    """The first contradiction of some tasks that are graded again, under fresh secrets."""
    config = one.run.config
    drawn = secrets.SystemRandom().sample(config.tasks, max(1, round(share * len(config.tasks))))
    chosen = replace(grading, target=config.target, protocol=config.protocol)
    source = read_source(one.store, one.run, chosen_tasks(drawn, chosen), config.target)
    with closing(make_setup(chosen, several)) as setup:
        context = RunContext(setup, {}, runs, None, 1, StderrDisplay(), fresh=True)
        again = regrade_run(source, config.target, context, emulate=grading.emulate)
    return next(contradictions(one, read_run(again.folder)), None)


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
