"""kill -9 at any moment of a trial of several turns and steps: what was paid for is not asked again.

A process dies before its n-th file appears under its final name, for every n; another one finishes.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from harness.files import data_directory
from harness.records import Finding, Grade, Reply, Request, Thinking, ToolCall
from harness.student.skill_tool import TOOL
from harness.study.executor import LocalExecutor
from harness.study.plan import generation_key
from harness.study.store import RunStore
from harness.suite.catalogue import load_task
from tests.fakes.trials import A_SKILL, TASKS, FakeGrader, Silent, config, reply, run_record, runner

ASKED = "asked.jsonl"
THOUGHT = Thinking(block={"type": "thinking", "thinking": "I look first.", "signature": "EqQBCkgIARABGAI="})


class Asked(NamedTuple):
    """A line of what models were asked, over all processes."""

    turn: int
    step: int
    prompt: str


class WritingModel:
    """Reads a file, then answers with a project, in every turn; notes what it was asked before it answers."""

    name = "fake/one"

    def __init__(self, notes: Path) -> None:
        self._notes = notes

    def complete(self, request: Request) -> Reply:
        """A reply that depends on turn and step alone."""
        with self._notes.open("a") as sink:
            sink.write(json.dumps([request.turn, request.step, request.prompt_digest]) + "\n")
        if request.step == 0 and request.turn < 2:
            call = ToolCall(id="c", name=TOOL.name, arguments='{"skill": "a-skill", "path": "SKILL.md"}')
            found = {"stop": "tool", "tool_calls": (call,), "thinking": (THOUGHT,)}
            return reply("").model_copy(update=found)
        return reply(f"```toml build.toml\n# {request.turn}\n[general]\n```\n")


class OtherEveryTime(FakeGrader):
    """A grade that no other process gives."""

    def grade(self, *given: Any, **rest: Any) -> Grade:
        """As times differ from grade to grade."""
        made = super().grade(*given, **rest)
        finding = Finding(cause=made.finding.cause, message=f"process {os.getpid()}, grade {self.graded}")
        return made.model_copy(update={"finding": finding, "build": None})


def die_before_file(number: int, below: Path) -> None:
    """kill -9 this process before the `number`-th file below `below` gets its final name."""
    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if event == "os.rename" and str(arguments[1]).startswith(str(below)):
            seen += 1
            if seen == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def work(folder: str, die_before: int | None) -> None:
    """Do what is owed of a run of one trial."""
    store = RunStore(Path(folder))
    if die_before is not None:
        die_before_file(die_before, store.folder)
    tasks = {TASKS[0]: load_task(data_directory("tasks") / TASKS[0])}
    model, grader = WritingModel(store.folder.parent / ASKED), OtherEveryTime()
    run = runner(store, tasks, model, grader, A_SKILL)
    run.execute(LocalExecutor(1), Silent())


@pytest.fixture(scope="module")
def processes() -> Callable[[Path, int | None], int]:
    """Runs `work` in a process of its own: (folder, die_before) -> exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.study.test_conversation_killed"])

    def run(folder: Path, die_before: int | None) -> int:
        process = context.Process(target=work, args=(str(folder), die_before))
        process.start()
        process.join()
        assert process.exitcode is not None
        return process.exitcode

    return run


def asked(folder: Path) -> list[Asked]:
    path = folder.parent / ASKED
    return [Asked(*json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_whenever_it_is_killed_no_paid_reply_is_asked_for_again(
    tmp_path: Path, processes: Callable[[Path, int | None], int]
) -> None:
    """One more call at most: the one whose reply was not on disk; and every prompt is asked as it was."""
    arms = tuple(a.model_copy(update={"delivery": "disclosed"}) for a in config().arms if a.skills)
    wanted = {"turns": 3, "arms": arms, "tasks": TASKS[:1], "repeats": 1}
    record = run_record(config().model_copy(update=wanted))
    order = [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)]
    killed = 0
    for number in range(1, 100):
        store = RunStore.create(tmp_path / str(number) / "run", record)
        code = processes(store.folder, number)
        if code == 0:
            break
        assert code == -signal.SIGKILL and store.load() == []
        killed += 1
        paid = asked(store.folder)
        before = {p: p.read_bytes() for p in sorted(store.folder.rglob("reply*.json"))}
        assert processes(store.folder, None) == 0
        every = asked(store.folder)
        again = every[len(paid) :]
        repeated = [one for one in again if one in paid]
        assert repeated == paid[len(before) :], f"killed before file {number}"
        assert [(a.turn, a.step) for a in (*paid[: len(before)], *again)] == order
        assert all(path.read_bytes() == text for path, text in before.items())
        check_record(store, every)
    else:
        pytest.fail("it was killed every time")
    assert killed >= 2 * len(order)  # at least before every prompt and before every reply


def check_record(store: RunStore, every: list[Asked]) -> None:
    """The record's digests are of what was really asked, and its replies are those on disk."""
    (trial,) = store.load()
    digests = {(one.turn, one.step): one.prompt for one in every}
    assert len(digests) == len(set(every))  # nothing was asked in two wordings
    for turn in trial.turns:
        steps = [step.prompt_digest for step in turn.steps] + [turn.prompt_digest]
        assert steps == [digests[turn.index, n] for n in range(len(steps))]
        request = store.request(trial.key, turn=turn.index, step=len(turn.steps))
        assert all(m.thinking == (THOUGHT,) for m in request.messages if m.tool_calls)
        paid = generation_key(trial.key, request)
        kept = store.paid_reply(trial.key, paid, turn=turn.index, step=request.step)
        assert kept == turn.reply
