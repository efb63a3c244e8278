"""Shows one trial.

Owns: finding it by a part of its name, and the layout. Does not own: its contents.
"""

from __future__ import annotations

import shlex

from rich.console import Console
from rich.rule import Rule

from harness.catalogue import all_tasks
from harness.cli.card import print_card, untrusted
from harness.errors import UsageError
from harness.records import TrialKey, TrialRecord
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
    """Prompt, reply, grade, and the command that grades the project again."""
    run, folder = store.run(), store.trial_folder(trial.key)
    for message in store.request(trial.key).messages:
        console.print(Rule(f"prompt: {message.role}", align="left"))
        console.print(untrusted(message.content))
    for turn in trial.turns:
        console.print(Rule(f"reply {turn.index}: {turn.reply.model_label}, {turn.reply.stop}", align="left"))
        console.print(untrusted(turn.reply.text))
        if turn.grade is not None:
            print_card(turn.grade, console, name_of(trial.key), all_kernels=True)
    for failure in trial.failures:
        console.print(untrusted(f"infra failure at {failure.at}: {failure.cause}: {failure.message}"))
    if (folder / "build.log").is_file():
        console.print(f"build log: {folder / 'build.log'}", highlight=False)
    if (folder / "project").is_dir():
        words = ["liftbench", "grade", str(folder / "project"), "--task", trial.key.task]
        words += ["--target", run.config.target, "--sandbox", run.config.sandbox]
        console.print(f"grade it again: {shlex.join(words)}", highlight=False, soft_wrap=True)
        if run.lock.tasks[trial.key.task] not in {t.task.digest for t in all_tasks()}:
            console.print("  (this task is not the shipped one: add the run's --tasks-root)", highlight=False)
