"""`liftbench runs`, `show` and `report`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.rule import Rule

from harness.cli.card import plain_table, print_card, untrusted
from harness.cli.case_runs import case_rows, find_case_run, print_case_runs, report_case_run, show_case
from harness.cli.options import DEFAULT_RUNS, JsonOption, RunArgument, RunsDirOption
from harness.errors import UsageError, did_you_mean
from harness.records import Message, TrialKey, TrialRecord
from harness.report.write import report_run
from harness.study.plan import plan
from harness.study.store import RunStore, all_runs, find_run
from harness.suite.catalogue import all_tasks


def runs(runs_dir: RunsDirOption = DEFAULT_RUNS, json_output: JsonOption = False) -> None:
    stores = all_runs(runs_dir)
    if json_output:
        print(json.dumps([*map(_row, stores), *case_rows(runs_dir)], indent=1))
        return
    table = plain_table("run", "skills", "models", "target", "scored", whole=("run",))
    for row in map(_row, stores):
        lost = f", {row['lost']} lost" if row["lost"] else ""
        scored = f"{row['scored']}/{row['planned']}{lost}"
        table.add_row(row["run"], ", ".join(row["skills"]), ", ".join(row["models"]), row["target"], scored)
    Console().print(table)
    if not table.rows and not case_rows(runs_dir):
        print(f"no runs below {runs_dir}")
    print_case_runs(runs_dir)


def _row(store: RunStore) -> dict[str, Any]:
    config, trials = store.run().config, store.load()
    lost = sum(trial.infra for trial in trials)
    return {
        "run": store.folder.name,
        "skills": list(config.skills),
        "models": [m.name for m in config.models],
        "target": config.target,
        "scored": len(trials) - lost,
        "lost": lost,
        "planned": len(plan(config)),
    }


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


def name_of(key: TrialKey) -> str:
    """`task/model/arm/repeat`, as `show` takes it."""
    return f"{key.task}/{key.model}/{key.arm}/{key.repeat}"


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
    graded = [t.index for t in trial.turns if t.project is not None and not t.kept]
    last = store.turn_folder(trial.key, graded[-1] if graded else 0)
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
