"""Run folders with prompts, real replies and logs, as `eval` leaves them."""

from __future__ import annotations

import json
import random
from functools import cache
from itertools import product
from pathlib import Path

from harness.outcome import Cause
from harness.records import Diagnostic, Finding, Message, Project, Reply, Request, Sampling, TrialRecord
from harness.report.schema import Summary
from harness.report.summary import summarise
from harness.report.transcripts import Transcript, read_transcript
from harness.student.answer import parse_reply
from harness.study.store import RunStore
from tests.report import factories as make

REPLIES = Path(__file__).parents[2] / "studies" / "cpu-kernel-builder" / "recording" / "replies"


@cache
def real_replies() -> tuple[Reply, ...]:
    """Of a model to kernel tasks: 8 to 30 kB each."""
    found = sorted(REPLIES.glob("*/*/0.json"))
    return tuple(Reply.model_validate(json.loads(path.read_text())["reply"]) for path in found)


@cache
def real_prompts() -> dict[str, str]:
    """The user's message by kind of arm."""
    found = {path.parent.name.partition("-")[0]: path for path in sorted(REPLIES.glob("l1__gemv/*/0.json"))}
    return {kind: json.loads(path.read_text())["prompt"][1]["content"] for kind, path in found.items()}


def _prompt(task: str, kind: str, repeat: int) -> Request:
    """Real text with the task's name in every line of it."""
    skill, end, rules = real_prompts()[kind].rpartition("</skill>\n\n")
    text = skill + end + "\n".join(f"{line} {task}" for line in rules.split("\n"))
    messages = (
        Message(role="system", content="You write kernels."),
        Message(role="user", content=text),
    )
    return Request(messages=messages, sampling=Sampling(), task=task, arm=kind, repeat=repeat)


def _log(draw: random.Random, project: Project) -> str:
    """As g++ writes it."""
    said = list[str]()
    for _ in range(30):
        file = draw.choice(project.files)
        lines = file.text.split("\n")
        at = draw.randrange(len(lines))
        word = draw.choice(lines[at].split() or ["x"])
        said.append(f"{file.path}:{at + 1}:9: error: '{word}' was not declared in this scope")
        said.append(f" {at + 1:4d} | {lines[at]}\n      |         ^~~~~~~~")
    return "\n".join(said) + "\n"


def run_folder(folder: Path, n_tasks: int, repeats: int) -> tuple[RunStore, list[TrialRecord]]:
    """A run of two arms; every third build fails, at line 3 of a file."""
    tasks, draw, replies = make.families(n_tasks), random.Random(7), real_replies()
    store = RunStore.create(folder, make.run(tasks, repeats=repeats, target="cpu"))
    trials, arms = list[TrialRecord](), (make.WITHOUT, make.WITH)
    for number, (task, arm, repeat) in enumerate(product(tasks, arms, range(repeats))):
        answer = replies[number % len(replies)].model_copy(update={"recorded": False})
        project = parse_reply(answer)
        assert isinstance(project, Project)
        path = next(file.path for file in project.files if file.path.endswith("binding.cpp"))
        shared = {"repeat": repeat, "answer": answer}
        if number % 3:
            one = make.trial(task, arm, speedup=1.5, **shared)
        else:
            finding = Finding(cause=Cause.COMPILE_ERROR, message=f"{path}:3: error: 'x' was not declared")
            first = Diagnostic(
                kind="syntax", message="'x' was not declared", file=path, line=3, advice="add it"
            )
            built = make.build(False, finding, diagnostics=(first,))
            one = make.trial(task, arm, finding.cause, finding.message, build=built, **shared)
        store.write_prompt(one.key, _prompt(task, arm.kind, repeat))
        store.write_project(one.key, project)
        (store.turn_folder(one.key) / "build.log").write_text(_log(draw, project))
        trials.append(one)
    return store, trials


def read_run(store: RunStore, trials: list[TrialRecord]) -> tuple[Summary, dict[str, Transcript]]:
    """What report.html is made of."""
    summary = summarise(store.run(), trials, store.run().lock.families)
    return summary, {one.key.folder: read_transcript(store, one) for one in trials}
