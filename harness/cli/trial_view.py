"""Shows one trial of a run, or lists those that a part of a name matches."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from harness.cli.card import print_card, untrusted
from harness.errors import UsageError, did_you_mean
from harness.records import Message, TrialKey, TrialRecord
from harness.study.store import RunStore
from harness.suite.catalogue import all_tasks


def name_of(key: TrialKey) -> str:
    """`task/model/arm/repeat`, as `show` takes it."""
    return f"{key.task}/{key.model}/{key.arm}/{key.repeat}"


def find_trials(store: RunStore, part: str) -> list[TrialRecord]:
    """The trial of that name, else all whose name contains `part`. Raises UsageError where there is none."""
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
    seen = 0
    if not trial.turns:
        _print_prompt(store.request(trial.key).messages, 0, console)
    for turn in trial.turns:
        for step, reply in enumerate(turn.replies):
            messages = store.request(trial.key, turn=turn.index, step=step).messages
            # A later prompt repeats what was said before it.
            _print_prompt([m for m in messages[seen:] if m.role != "assistant"], turn.index, console)
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


def _print_prompt(messages: Sequence[Message], turn: int, console: Console) -> None:
    for message in messages:
        console.print(Rule(f"prompt {turn}: {message.role}", align="left"))
        console.print(untrusted(message.content))


def _print_command(store: RunStore, trial: TrialRecord, project: Path, console: Console) -> None:
    """What grades a project of a trial again."""
    run = store.run()
    words = ["liftbench", "grade", str(project), "--task", trial.key.task]
    words += ["--target", run.config.target, "--sandbox", run.config.sandbox]
    console.print(f"grade it again: {shlex.join(words)}", highlight=False, soft_wrap=True)
    if run.lock.tasks[trial.key.task] not in {t.task.digest for t in all_tasks()}:
        console.print("  (this task is not the shipped one: add the run's --tasks-root)", highlight=False)
