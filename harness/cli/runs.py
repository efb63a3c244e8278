"""`liftbench runs`, `show` and `report`."""

from __future__ import annotations

import fnmatch
import json
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from harness.cli.card import plain_table, print_card, untrusted
from harness.cli.case_runs import case_rows, find_case_run, print_case_runs, report_case_run, show_case
from harness.cli.options import DEFAULT_RUNS, JsonOption, RunArgument, RunsDirOption
from harness.errors import UsageError, did_you_mean
from harness.records import Message, RunRecord, TrialRecord
from harness.report import figures
from harness.report.headline import headline
from harness.report.run_comparison import name_of
from harness.report.write import csv_text, report_run
from harness.study.store import RunStore, all_runs, find_run
from harness.suite.catalogue import all_tasks
from harness.text import clean

_COLUMNS: Final = (
    "run", "created", "model", "skill", "control", "target", "scored", "planned", "lost", "metric",
    "decision", "lift", "low", "high", "p_value", "regraded_from", "folder",
)  # fmt: skip
Globs = Sequence[str] | None
_NOT_NAMES: Final = 56
"""Columns of the table that are not the model and the skill."""


def runs(
    skill: Annotated[list[str] | None, typer.Option(help="Only these skills; globs, repeatable.")] = None,
    model: Annotated[list[str] | None, typer.Option(help="Only these models; globs, repeatable.")] = None,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    csv_output: Annotated[bool, typer.Option("--csv", help="Print CSV on stdout.")] = False,
    json_output: JsonOption = False,
) -> None:
    """One line per model and skill; the lift is that of the primary metric."""
    listed = _listed(runs_dir, skill, model)
    rows = [row for one in listed for row in _rows(*one)]
    cases = [row for row in case_rows(runs_dir) if _chosen([row["skill"]], [row["model"]], skill, model)]
    if json_output:
        print(json.dumps([*rows, *cases], indent=1))
    elif csv_output:
        print(csv_text(_COLUMNS, [[row[name] for name in _COLUMNS] for row in rows]), end="")
    else:
        console = Console()
        if rows:
            console.print(_table(rows, console.width))
        print_case_runs(cases)
        if not rows and not cases:
            chosen = " of that skill and model" if skill or model else ""
            print(f"no runs{chosen} below {runs_dir}")


def _listed(runs_dir: Path, skills: Globs, models: Globs) -> Iterator[tuple[RunStore, RunRecord]]:
    """Runs with a skill and a model of these globs; one that cannot be read is named on stderr."""
    for store in all_runs(runs_dir):
        try:
            run = store.run()
        except UsageError as error:
            print(f"left out: {clean(str(error))}", file=sys.stderr)
            continue
        asked = [spec.name for spec in run.config.models]
        shown = [row.model for row in headline(store).rows] if models else []  # whose replies are replayed
        if _chosen(run.config.skills, [*asked, *shown], skills, models):
            yield store, run


def _chosen(skills: Sequence[str], models: Sequence[str], of_skills: Globs, of_models: Globs) -> bool:
    """Whether one of the skills and one of the models, with or without provider, matches; no glob is any."""
    names = [part for name in models for part in (name, name.partition("/")[2])]
    return all(
        not globs or any(fnmatch.fnmatchcase(name, glob) for name in known for glob in globs)
        for known, globs in ((skills, of_skills), (names, of_models))
    )


def _rows(store: RunStore, run: RunRecord) -> Iterator[dict[str, Any]]:
    """One per comparison, or one for a run that compares nothing."""
    config, head = run.config, headline(store)
    common: dict[str, Any] = {
        "run": run.run_id,
        "created": run.created,
        "target": config.target,
        "scored": head.scored,
        "planned": head.planned,
        "lost": head.lost,
        "metric": config.metric,
        "regraded_from": run.regraded_from,
        "folder": str(store.folder),
    }
    nothing = dict.fromkeys(("control", "decision", "unit", "lift", "low", "high", "p_value"))
    names = {"model": ", ".join(m.model for m in config.models), "skill": ", ".join(config.skills) or None}
    for row in head.rows or [None]:
        yield common | (nothing | names if row is None else row.model_dump())


def _table(rows: Sequence[dict[str, Any]], width: int) -> Table:
    """The end of a run's name is enough for other commands."""
    table = plain_table("run", "date", "trials", "model", "skill", "lift", "decision")
    room = max(10, (width - _NOT_NAMES) // 2)
    before = None
    for row in rows:
        lost = f"\n{row['lost']} lost" if row["lost"] else ""
        head = (short_run(row["run"]), row["created"][:10], f"{row['scored']}/{row['planned']}{lost}")
        against = "" if row["control"] in (None, "without skill") else f" against {row['control']}"
        again = " (graded again)" if row["regraded_from"] else ""
        names = (row["model"], f"{row['skill'] or '-'}{against}{again}")
        lift = "-" if row["lift"] is None else figures.change(row["unit"], row["lift"])
        metric = "emulated" if row["metric"] == "correct_emulated" else row["metric"]
        cells = [*(head if row["folder"] != before else ("", "", ""))]
        cells += ["\n".join(textwrap.wrap(clean(name), room)) for name in names]
        table.add_row(*map(untrusted, (*cells, f"{lift}\n{metric}", row["decision"] or "-")))
        before = row["folder"]
    return table


def short_run(name: str) -> str:
    """The end of a run's name, which is enough for every command."""
    return name.rpartition("-")[2] if "-" in name else name


def show(
    run: RunArgument,
    trial: Annotated[str, typer.Argument(help="task/model/arm/repeat, or a part of it, such as the task.")],
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
) -> None:
    """Of one: prompt, reply, first error, and the command that grades its project again."""
    if (cases := find_case_run(runs_dir, run)) is not None:
        show_case(cases, trial, json_output=json_output)
        return
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


def report(run: RunArgument, runs_dir: RunsDirOption = DEFAULT_RUNS, json_output: JsonOption = False) -> None:
    """These are report.html, report.json, trials.csv and the table."""
    if (cases := find_case_run(runs_dir, run)) is not None:
        report_case_run(cases, json_output=json_output)
        return
    report_run(find_run(runs_dir, run), json_output=json_output)


def find_trials(store: RunStore, part: str) -> list[TrialRecord]:
    """The trial of that name, else all whose name contains `part`. Raises UsageError if there is none."""
    trials = store.load()
    exact = [t for t in trials if name_of(t.key) == part]
    found = exact or [t for t in trials if part in name_of(t.key)]
    if not found:
        meant = did_you_mean(part, [t.key.task for t in trials])
        raise UsageError(f"no trial of {store.folder.name} matches {part!r} (/ matches all){meant}")
    return found


def print_matches(trials: Sequence[TrialRecord], command: Sequence[str], console: Console) -> None:
    """Verdict, speedup and the command that shows it, of each trial; `command` lacks the trial's name."""
    console.print(f"{len(trials)} trials match. To see one:", highlight=False)
    for trial in sorted(trials, key=lambda one: name_of(one.key)):
        grade = trial.grade
        timing = grade.timing if grade is not None and grade.correct else None
        speed = "" if timing is None else f"{timing.speedup.value:.2f}x"
        line = f"{trial.verdict:<12} {speed:>6}  {shlex.join([*command, name_of(trial.key)])}"
        console.print(untrusted(line), soft_wrap=True)


def print_trial(store: RunStore, trial: TrialRecord, console: Console) -> None:
    """Prompts, replies, grades, and the command that grades the last project again."""

    def print_prompt(messages: Sequence[Message], turn: int) -> None:
        for message in messages:
            console.print(Rule(f"prompt {turn}: {message.role}", align="left"))
            console.print(untrusted(message.content))

    seen = 0
    if not trial.turns:
        print_prompt(store.request(trial.key).messages, 0)
    for turn in trial.turns:
        for step, reply in enumerate(turn.replies):
            messages = store.request(trial.key, turn=turn.index, step=step).messages
            # A later prompt repeats what was said before it.
            print_prompt([m for m in messages[seen:] if m.role != "assistant"], turn.index)
            seen = len(messages)
            console.print(Rule(f"reply {turn.index}: {reply.model_label}, {reply.stop}", align="left"))
            console.print(untrusted(reply.text))
            for call in reply.tool_calls:
                console.print(untrusted(f"calls {call.name}({call.arguments})"))
        if turn.grade is not None and not turn.kept:
            print_card(turn.grade, console, name_of(trial.key), all_kernels=True)
    for failure in trial.failures:
        console.print(untrusted(f"infra failure at {failure.at}: {failure.cause}: {failure.message}"))
    last = store.turn_folder(trial.key, trial.project_turn or 0)
    if (last / "build.log").is_file():
        console.print(f"build log: {last / 'build.log'}", highlight=False)
    if (last / "project").is_dir():
        _print_command(store, trial, last / "project", console)


def _print_command(store: RunStore, trial: TrialRecord, project: Path, console: Console) -> None:
    """The command that grades a project of a trial again."""
    run = store.run()
    words = ["liftbench", "grade", str(project), "--task", trial.key.task]
    words += ["--target", run.config.target, "--sandbox", run.config.sandbox]
    console.print(f"grade it again: {shlex.join(words)}", highlight=False, soft_wrap=True)
    if run.lock.tasks[trial.key.task] not in {t.task.digest for t in all_tasks()}:
        console.print("  (this task is not the shipped one: add the run's --tasks-root)", highlight=False)
