"""Whatever bytes come from a worker, there is a verdict: no hang, no traceback, no descriptor kept."""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import SandboxError
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.problem import Problem
from harness.judge.worker_client import Failed, Source, WorkerClient, WorkerPlace
from harness.judge.worker_reply import Reveal
from harness.outcome import Cause
from harness.records import Finding
from tests.fakes.overlays import throw_away_task
from tests.fakes.worker import ThreadSandbox, receive

PROJECT = Source("project", Path(__file__), "scale", "scale")
CALL_S = 0.3
"""The deadline of an exchange: a worker that says nothing costs a test so much."""
HELLO = b'{"hello": "2.13.0", "pid": 1, "flags": {"threads": "1"}}'
ANSWERS = {
    "hide": (),  # what it has to say is said with the answer to `call`
    "load": (b'{"ok": true, "operators": 1}',),
    "flags": (b'{"flags": {"threads": "1"}}',),
    "plan": (b'{"ok": true}',),
    "call": (b"D", b'{"calls": 1, "total_ns": 5, "ns": [5], "aside_ns": 0}'),
}
"""What an honest worker says to each order."""
KEYS = ["hello", "ok", "operators", "error", "raised", "calls", "total_ns", "ns", "aside_ns", "flags"]
Said = tuple[bytes, int]
"""A message, and with how many descriptors it comes."""


@dataclass(frozen=True)
class Script:
    op: str
    said: tuple[Said, ...]
    hangs_up: bool

    def __call__(self, channel: socket.socket) -> None:
        if self._say(channel, "hello", (HELLO,)):
            return
        while True:
            message, descriptor = receive(channel)
            if descriptor >= 0:
                os.close(descriptor)
            if message is None or self._say(channel, message["op"], ANSWERS[message["op"]]):
                return

    def _say(self, channel: socket.socket, op: str, honest: tuple[bytes, ...]) -> bool:
        if op != self.op:
            for answer in honest:
                channel.send(answer)
            return False
        for data, descriptors in self.said:
            with Path(os.devnull).open() as file:
                number = array.array("i", [file.fileno()] * descriptors)
                rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, number)] if descriptors else []
                channel.sendmsg([data], rights)
        return self.hangs_up


def client_of(script: Callable[[socket.socket], None]) -> WorkerClient:
    return WorkerClient(PROJECT, ThreadSandbox(script), WorkerPlace(()), wall_s=60, call_s=CALL_S)


def conversation(script: Script, arena: Arena) -> Finding | Reveal:
    with client_of(script) as client:
        try:
            client.load()
            client.plan(arena.layout)
            times = client.call(arena, 1, "on a test")[1]
            changed = client.changed_settings()
        except Failed as failure:
            return failure.finding
    return Finding(cause=Cause.CHANGED_GLOBALS, message=str(changed[0][2])) if changed else times


@pytest.fixture(scope="module")
def arena() -> Any:
    loaded = throw_away_task("scale")
    problem = Problem(loaded, loaded.task.workloads[1], "float32")
    made = Arena(Layout(problem), [problem.make_inputs()], 0xFF)
    yield made
    made.close()


def is_a_verdict(outcome: Finding | Reveal) -> None:
    if isinstance(outcome, Finding):
        assert Finding.model_validate_json(outcome.model_dump_json()).cause is outcome.cause
        assert outcome.verdict != "infra"
        return
    most = CALL_S * 1e6
    claims = (outcome.claim_us or 0.0, outcome.aside_us, *outcome.each_us)
    assert all(type(claim) is float and 0 <= claim <= most for claim in claims)
    assert len(outcome.each_us) <= 1
    assert outcome.outside_us >= outcome.latency_us > 0


numbers = st.integers() | st.integers(10**30, 10**300) | st.floats() | st.booleans() | st.none()
texts = st.text(st.characters(exclude_categories=()), max_size=40)  # lone surrogates, too
values = st.recursive(
    st.one_of(numbers, texts),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=3),
)
objects = st.dictionaries(st.sampled_from(KEYS), values, max_size=5).map(lambda o: json.dumps(o).encode())
honest = st.sampled_from([HELLO, *(answer for answers in ANSWERS.values() for answer in answers)])
torn = st.tuples(st.one_of(honest, objects), st.integers(0, 60)).map(lambda pair: pair[0][: pair[1]])
deep = st.tuples(st.sampled_from([b"[", b'{"ok":', b'{"ns": [']), st.integers(1, 7_000)).map(
    lambda pair: pair[0] * pair[1]
)
huge = st.sampled_from(
    [b"9" * 60_000, b'{"ns": [1' + b"0" * 5_000 + b"]}", b"x" * 70_000, b" " * 65_536 + b"D"]
)
odd = st.sampled_from(
    [
        b"",
        b"D",
        b"\xff\xfeD\x00",
        b'{"raised": "\\ud800"}',
        b'{"error": "\\udcff\\u0000"}',
        b'{"ok": NaN}',
        b'{"calls": 1, "total_ns": Infinity, "ns": [NaN]}',
        b'{"flags": {"a": 1e999, "\\ud800": "\\udc00"}}',
        b'{"ns": {}}',
        b'{"calls": true, "total_ns": true, "ns": [true]}',
    ]
)
messages = st.one_of(st.binary(max_size=80), objects, honest, torn, deep, huge, odd)
said = st.lists(st.tuples(messages, st.sampled_from([0, 0, 0, 1, 3, 250])), max_size=4).map(tuple)


@pytest.mark.parametrize("op", ["hello", "load", "plan", "call", "flags"])
@given(said=said)
@settings(max_examples=100, deadline=None)
def test_any_answer_leads_to_a_verdict(arena: Arena, op: str, said: tuple[Said, ...]) -> None:
    """Whatever a worker answers before it hangs up, the outcome is a finding or sane times. Before
    any student's byte is loaded a bad greeting is a failure of the sandbox, not a verdict."""
    try:
        is_a_verdict(conversation(Script(op, said, hangs_up=True), arena))
    except SandboxError as error:
        assert op == "hello" and "a worker did not start" in str(error)


def test_descriptors_from_a_worker_are_not_kept(arena: Arena) -> None:
    """Thousands of open files that come with answers leave the judge with as many as before."""

    def open_files() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    before = open_files()
    flood = tuple((b"D", 250) for _ in range(4))
    outcome = conversation(Script("call", flood, hangs_up=False), arena)
    assert isinstance(outcome, Finding) and outcome.cause is Cause.BROKE_PROTOCOL
    assert open_files() == before


def test_a_worker_that_never_reads_does_not_block_the_judge(arena: Arena) -> None:
    """One that answers ahead and reads nothing fills its channel; the judge does not wait for room."""

    def answers_ahead(channel: socket.socket) -> None:
        with suppress(OSError):
            channel.send(HELLO)
            channel.send(ANSWERS["load"][0])
            while True:
                channel.send(ANSWERS["plan"][0])

    with client_of(answers_ahead) as client, pytest.raises(Failed) as failed:
        client.load()
        for _ in range(10_000):
            client.plan(arena.layout)
    assert failed.value.finding.cause is Cause.BROKE_PROTOCOL


@pytest.mark.parametrize("text", ["\ud800", "\x00"])
@pytest.mark.parametrize(("op", "key"), [("load", "error"), ("load", "raised"), ("call", "raised")])
def test_no_text_of_a_worker_spoils_a_record(arena: Arena, op: str, key: str, text: str) -> None:
    """Text that is no Unicode is in a record as a replacement, with what stands beside it."""
    message = json.dumps({key: f"before {text} after"}).encode()
    outcome = conversation(Script(op, ((message, 0),), hangs_up=True), arena)
    is_a_verdict(outcome)
    assert isinstance(outcome, Finding)
    assert "before" in outcome.message and "after" in outcome.message
