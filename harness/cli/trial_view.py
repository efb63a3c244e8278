"""Shows one trial.

Owns: finding it by a part of its name, and the layout. Does not own: its contents.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.rule import Rule

from harness.catalogue import all_tasks
from harness.cli.card import print_card, untrusted
from harness.errors import UsageError
from harness.records import Message, TrialKey, TrialRecord
from harness.store import RunStore


def name_of(key: TrialKey) -> str:
    """`task/model/arm/repeat`, as `show` takes it."""
    return f"{key.task}/{key.model}/{key.arm}/{key.repeat}"


def find_trial(store: RunStore, part: str) -> TrialRecord:
    """The only trial whose name contains `part`. Raises UsageError with the candidates."""
    trials = store.load()
    exact = [t for t in trials if name_of(t.key) == part]
    found = exact or [t for t in trials if part in name_of(t.key)]
    if len(found) == 1:
        return found[0]
    names = "\n  ".join(name_of(t.key) for t in found or trials)
    how_many = "no trial" if not found else f"{len(found)} trials"
    raise UsageError(f"{how_many} of {store.folder.name} match {part!r}; there are:\n  {names}")


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
