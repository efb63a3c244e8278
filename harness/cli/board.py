"""`liftbench board`: a leaderboard from runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.board.checking import Regrading, check_folder, grade_share
from harness.board.runs import read_run
from harness.board.site import build_site
from harness.board.submission import Shipped, pack
from harness.board.tables import Table
from harness.cli.card import plain_table, untrusted
from harness.cli.options import (
    DEFAULT_RUNS,
    FleetOptions,
    GradingOptions,
    RunArgument,
    RunsDirOption,
    TasksRootOption,
    make_setup,
)
from harness.cli.progress import StderrDisplay
from harness.cli.tasks import chosen_tasks
from harness.files import data_directory
from harness.records import RunConfig
from harness.report.experts import read_results
from harness.report.figures import plural
from harness.skills.spec import load_skill
from harness.study.store import find_run
from harness.suite.catalogue import select_tasks


def build_command(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN...", help="Folders of runs, or their names.")
    ] = None,
    *,
    site: Annotated[Path, typer.Option(help="Folder of the site.")],
    experts: Annotated[
        list[Path] | None, typer.Option(help="Figures of the experts (validate --record); repeatable.")
    ] = None,
    own: Annotated[
        list[str] | None,
        typer.Option(help="A run of the board's owner: graded or asked again, it raises levels; repeatable."),
    ] = None,
    tasks_root: TasksRootOption = None,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
) -> None:
    """Plain HTML and JSON: opens from disk, and is hosted anywhere."""
    ours = [read_run(find_run(runs_dir, name).folder) for name in own or []]
    folders = [find_run(runs_dir, name).folder for name in runs or []]
    folders += [one.store.folder for one in ours if one.run.regraded_from is None]
    figures = [one for path in experts or [] for one in read_results(path)]
    tables = build_site(site, folders, figures, ours, _shipped(tasks_root).suite)
    console = Console()
    for table in tables:
        _print(table, console)
    console.print(f"\n{plural(len(tables), 'table')}: {site / 'index.html'}", highlight=False, soft_wrap=True)


def _shipped(tasks_root: Path | None) -> Shipped:
    """The tasks and skills of this liftbench."""
    places = sorted(path.parent for path in data_directory("skills").glob("*/SKILL.md"))
    skills = [load_skill(str(place)).skill for place in places]
    tasks = {one.task.id: one for one in select_tasks([], tasks_root)}
    return Shipped(tasks, {skill.digest: skill for skill in skills})


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
    """What the board's CI runs; a run that contradicts itself is delisted. Exit code 3 for any fault, and for
    what could not be checked."""
    found = check_folder(folder, _shipped(grading.tasks_root))
    if regrade:

        def options(config: RunConfig) -> GradingOptions:
            return replace(grading, target=config.target, protocol=config.protocol)

        how = Regrading(
            tasks=lambda names, config: chosen_tasks(names, options(config)),
            opened=lambda config: make_setup(options(config), several),
            runs=runs_dir,
            display=StderrDisplay(),
            emulate=grading.emulate,
        )
        grade_share(folder, found, regrade, how)
    said = [f"{run}: {why}" for run, why in found.faults.items()]
    said += [f"{run}: could not be checked: {why}" for run, why in found.unchecked.items()]
    for line in (*said, *found.notes):
        Console().print(untrusted(line), soft_wrap=True)
    counts = f"{len(found.faults)} refused or delisted, {len(found.unchecked)} could not be checked"
    print(f"{plural(len(found.runs), 'submission')} read, {counts}")
    return 3 if said else 0


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
