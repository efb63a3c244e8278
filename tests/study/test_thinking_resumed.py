"""kill -9 between two steps of a turn: the resumed conversation still sends what the model thought.

A process dies in the middle of its second request to Claude, by the SDK's own transport; another one
goes on from what is on disk.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from harness.files import data_directory
from harness.models import make_model
from harness.records import ModelSpec
from harness.student.skill_tool import TOOL
from harness.study.plan import generation_key
from harness.study.pools import LocalExecutor
from harness.study.run import Budget, Run
from harness.study.store import RunStore
from harness.suite.catalogue import load_task
from tests.fakes.trials import A_SKILL, SKILL, TASKS, FakeGrader, Silent, config, run_record
from tests.models.answers import anthropic_events, event_stream

pytest.importorskip("anthropic", reason="needs anthropic (pip install anthropic)")
httpx2 = pytest.importorskip("httpx2", reason="needs anthropic (pip install anthropic)")

MODEL = "anthropic/claude-haiku-4-5"
SENT = "sent.jsonl"
THOUGHT = {"type": "thinking", "thinking": "I look first.", "signature": "EqQBCkgIARABGAIiQL=="}
REDACTED = {"type": "redacted_thinking", "data": "EmwKAhgBEgy3va3pzix="}
CALL = {
    "type": "tool_use",
    "id": "toolu_1",
    "name": TOOL.name,
    "input": {"skill": "a-skill", "path": "SKILL.md"},
}


def answers(notes: Path, dies: bool) -> Any:
    """A transport: thinking and a call, then a project; before the second answer the process dies."""

    def answer(request: Any) -> Any:
        body = json.loads(request.content)
        with notes.open("a") as sink:
            sink.write(json.dumps(body) + "\n")
        if len(body["messages"]) > 1:
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            events = anthropic_events("```toml build.toml\n[general]\n```\n")
        else:
            first, *_, last, end = anthropic_events("", "tool_use")
            blocks = [
                {"type": "content_block_start", "index": index, "content_block": block}
                for index, block in enumerate((THOUGHT, REDACTED, CALL))
            ]
            events = [first, *blocks, last, end]
        return httpx2.Response(200, text=event_stream(events), headers={"content-type": "text/event-stream"})

    return httpx2.MockTransport(answer)


def work(folder: str, dies: bool) -> None:
    """Do what is owed of a run of one trial."""
    os.environ["ANTHROPIC_API_KEY"] = "sk-ant-test"
    store = RunStore(Path(folder))
    tasks = {TASKS[0]: load_task(data_directory("tasks") / TASKS[0])}
    with httpx2.Client(transport=answers(store.folder.parent / SENT, dies)) as client:
        model = make_model(ModelSpec(name=MODEL), max_retries=0, http_client=client)
        run = Run(store, store.run(), tasks, {SKILL: A_SKILL}, {MODEL: model}, FakeGrader())  # type: ignore[arg-type]
        run.execute(LocalExecutor(1), Silent(), Budget())


def test_after_a_kill_the_thinking_is_still_sent(tmp_path: Path) -> None:
    """The first step is not asked again; the second goes out byte for byte as before, blocks included."""
    arms = tuple(a.model_copy(update={"delivery": "disclosed"}) for a in config().arms if a.skills)
    wanted = {"arms": arms, "tasks": TASKS[:1], "repeats": 1, "models": (ModelSpec(name=MODEL),)}
    store = RunStore.create(tmp_path / "run", run_record(config().model_copy(update=wanted)))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.study.test_thinking_resumed"])
    for dies, code in ((True, -signal.SIGKILL), (False, 0)):
        process = context.Process(target=work, args=(str(store.folder), dies))
        process.start()
        process.join()
        assert process.exitcode == code
    first, killed, resumed = [json.loads(line) for line in (tmp_path / SENT).read_text().splitlines()]
    assert len(first["messages"]) == 1 and killed == resumed
    assert resumed["messages"][1] == {"role": "assistant", "content": [THOUGHT, REDACTED, CALL]}
    (trial,) = store.load()
    (turn,) = trial.turns
    (step,) = turn.steps
    assert [part.block for part in step.reply.thinking] == [THOUGHT, REDACTED]
    request = store.request(trial.key, step=1)
    assert request.prompt_digest == turn.prompt_digest and turn.reply.thinking == ()
    assert store.paid_reply(trial.key, generation_key(trial.key, request), step=1) == turn.reply
