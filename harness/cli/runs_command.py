"""`liftbench runs`, `show` and `report`: what was done before."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from harness.cli.setup import JsonOption

RUNS_HELP = "Folder that holds the runs."
RunsOption = Annotated[Path, typer.Option("--runs-dir", help=RUNS_HELP)]
DEFAULT_RUNS = Path("runs")


def runs(runs_dir: RunsOption = DEFAULT_RUNS, json_output: JsonOption = False) -> None:
    """List runs: when, what, how far."""
    import json

    from rich.console import Console
    from rich.table import Table

    from harness.study.plan import plan
    from harness.study.store import all_runs

    rows = []
    for store in all_runs(runs_dir):
        record = store.run()
        config = record.config
        trials = store.load()
        lost = sum(trial.infra for trial in trials)
        rows.append(
            {
                "run": store.folder.name,
                "skills": list(config.skills),
                "models": [m.name for m in config.models],
                "target": config.target,
                "scored": len(trials) - lost,
                "lost": lost,
                "planned": len(plan(config)),
            }
        )
    if json_output:
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("run", no_wrap=True)
    for name in ("skills", "models", "target", "scored"):
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(
            str(row["run"]),
            ", ".join(row["skills"]),  # type: ignore[arg-type]
            ", ".join(row["models"]),  # type: ignore[arg-type]
            str(row["target"]),
            f"{row['scored']}/{row['planned']}" + (f", {row['lost']} lost" if row["lost"] else ""),
        )
    Console().print(table)
    if not rows:
        print(f"no runs below {runs_dir}")


def show(
    run: Annotated[str, typer.Argument(help="A run's folder, its name or the end of it, or `last`.")],
    trial: Annotated[str, typer.Argument(help="task/model/arm/repeat, or a part of it, such as the task.")],
    runs_dir: RunsOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
) -> None:
    """Print one trial, or list those that match.

    Of one: prompt, reply, first error, and how to grade just its project again.
    """
    from rich.console import Console

    from harness.cli.trial_view import find_trials, print_matches, print_trial
    from harness.errors import UsageError
    from harness.study.store import find_run

    store = find_run(runs_dir, run)
    found = find_trials(store, trial)
    if json_output:
        if len(found) != 1:
            raise UsageError(
                f"{len(found)} trials match {trial!r}, and --json prints one; without --json they are listed"
            )
        print(found[0].model_dump_json(indent=1))
    elif len(found) == 1:
        print_trial(store, found[0], Console())
    else:
        where = [] if runs_dir == DEFAULT_RUNS else ["--runs-dir", str(runs_dir)]
        print_matches(found, ["liftbench", "show", *where, run], Console())


def report(
    run: Annotated[str, typer.Argument(help="A run's folder, its name or the end of it, or `last`.")],
    runs_dir: RunsOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
) -> None:
    """Make a run's reports again.

    These are report.html, report.json, trials.csv and the table.
    """
    from harness.cli.reporting import report_run
    from harness.study.store import find_run

    store = find_run(runs_dir, run)
    report_run(store, json_output=json_output)
