"""The conversation with a worker: nothing it says is believed, and every end has a cause."""

from __future__ import annotations

import json
import math
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import HarnessBug, SandboxError
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.problem import Problem
from harness.judge.worker_client import Failed, Killed, Source, WorkerClient, WorkerPlace
from harness.judge.worker_reply import Reveal, exit_finding, read_claims
from harness.outcome import Cause
from sandboxes.job import ExitFacts, Status
from tests.fakes.overlays import throw_away_task
from tests.fakes.sandbox import exit_facts
from tests.fakes.worker import HonestWorker, ThreadSandbox, receive, send

Script = Callable[[socket.socket], None]
PROJECT = Source("project", Path(__file__), "scale", "scale")


@pytest.fixture
def arena() -> Iterator[Arena]:
    loaded = throw_away_task("scale")
    problem = Problem(loaded, loaded.task.workloads[1], "float32")
    made = Arena(Layout(problem), [problem.make_inputs()], 0xFF)
    yield made
    made.close()


def client_of(
    script: Script, *, source: Source = PROJECT, facts: ExitFacts | None = None, call_s: float = 5.0
) -> WorkerClient:
    return WorkerClient(source, ThreadSandbox(script, facts), WorkerPlace(()), wall_s=60, call_s=call_s)


def answering(*answers: bytes) -> Script:
    """A worker that answers every call with these messages, and its claims."""

    def script(channel: socket.socket) -> None:
        send(channel, {"hello": "2.10", "pid": 1})
        while message := receive(channel)[0]:
            if message["op"] == "call":
                for answer in answers:
                    channel.send(answer)
            elif message["op"] == "hide":
                time.sleep(0.05)
                send(channel, {"calls": 1, "total_ns": 5, "ns": [5]})
            else:
                send(channel, {"ok": True})

    return script


def raising(text: str) -> Script:
    return answering(json.dumps({"raised": text}).encode())


def call(client: WorkerClient, arena: Arena) -> Reveal:
    client.load()
    client.plan(arena.layout)
    return client.call(arena, 1, "on a test")[1]


@pytest.mark.parametrize(
    ("claims", "claim_us", "each_us"),
    [
        ({"calls": 1, "total_ns": 124, "ns": [123]}, 0.124, (0.123,)),
        ({"calls": 1, "total_ns": 5, "ns": [2, 3]}, 0.005, ()),  # more single ones than calls
        *(({"calls": n, "total_ns": 5, "ns": []}, None, ()) for n in (0, 2, None, "1", 1.0e9)),
        *(
            ({"calls": 1, "total_ns": bad, "ns": [bad], "aside_ns": bad}, None, ())
            for bad in (-1, 1.5, True, "1", None, [1], math.nan, math.inf, 10**400)
        ),
    ],
    ids=repr,
)
def test_claims_are_taken_down_where_they_are_well_formed(
    claims: dict[str, Any], claim_us: float | None, each_us: tuple[float, ...]
) -> None:
    """One sensible count of nanoseconds for the calls that were made; the judge's figures do not depend on
    it."""
    reveal = read_claims(claims, 1, outside_us=9.0, latency_us=2.0, limit_s=5.0)
    assert (reveal.claim_us, reveal.each_us, reveal.aside_us) == (claim_us, each_us, 0.0)
    assert (reveal.outside_us, reveal.latency_us) == (9.0, 2.0)


@pytest.mark.parametrize(
    ("text", "cause", "said"),
    [
        ("Traceback (most recent call last):\n  File x\nValueError: bad", Cause.OP_RAISED, "ValueError: bad"),
        ("std::bad_alloc", Cause.OUT_OF_MEMORY, "std::bad_alloc"),
    ],
)
def test_exception_of_an_op(arena: Arena, text: str, cause: Cause, said: str) -> None:
    """An exception is the op's; its last line comes first, and want of memory has its own cause."""
    with client_of(raising(text)) as client, pytest.raises(Failed) as failed:
        call(client, arena)
    finding = failed.value.finding
    assert finding.cause is cause
    assert finding.message.splitlines()[0] == f"the op raised on a test: {said}"


def test_silence_has_a_deadline(arena: Arena) -> None:
    """A worker that does not answer is killed at the deadline of the call."""
    sandbox = ThreadSandbox(answering())
    with WorkerClient(PROJECT, sandbox, WorkerPlace(()), wall_s=60, call_s=0.2) as client:
        with pytest.raises(Failed, match=r"no answer within 0\.2 s on a test") as failed:
            call(client, arena)
        assert sandbox.processes[0].killed
    assert failed.value.finding.cause is Cause.WALL_TIMEOUT


def test_the_judges_own_work_is_not_the_workers_time(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the snapshot is taken the worker is frozen: that time counts against no deadline."""
    whole = arena.snapshot

    def slow() -> torch.Tensor:
        time.sleep(0.6)
        return whole()

    monkeypatch.setattr(arena, "snapshot", slow)
    with client_of(answering(b"D"), call_s=0.5) as client:
        assert call(client, arena).claim_us == 0.005


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        ("ok", Cause.EXITED_EARLY),
        ("oom", Cause.OUT_OF_MEMORY),
        ("cpu_timeout", Cause.WALL_TIMEOUT),
        ("disk_limit", Cause.OUTPUT_LIMIT),
        ("gpu_fault", Cause.SIGNAL),
    ],
)
def test_causes_of_ends(status: Status, cause: Cause) -> None:
    """Every way to end has its cause; what was printed is quoted as untrusted."""
    finding = exit_finding(exit_facts(status, "verdict: correct"), "on a test")
    assert finding.cause is cause
    assert finding.message.endswith("its output (untrusted): verdict: correct")


def test_both_ends_of_a_long_output_are_quoted() -> None:
    """torch says what is wrong first, and its backtrace follows."""
    output = "terminate: reason: float vs int\n" + "frame\n" * 2_000 + "last words"
    message = exit_finding(exit_facts("signal", output), "while loading").message
    assert "reason: float vs int" in message and message.endswith("last words") and len(message) < 2_000


def test_sandbox_failure_is_ours() -> None:
    """An end that the sandbox caused is raised, not graded."""
    with pytest.raises(SandboxError, match="failed while a worker ran: launcher: no"):
        exit_finding(exit_facts("sandbox_error", "launcher: no"), "on a test")


@pytest.mark.parametrize(
    ("number", "again"),
    [(9, True), (15, True), (1, True), (None, True), (11, False), (6, False), (7, False), (31, False)],
)
def test_a_death_that_may_come_from_outside_is_told_apart(number: int | None, again: bool) -> None:
    """SIGKILL and its like are raised where the grade can be repeated; a fault of its own is a finding."""

    def script(channel: socket.socket) -> None:
        send(channel, {"hello": "2.10", "pid": 1})
        receive(channel)

    facts = exit_facts("signal", signal=number)
    for repeatable in (True, False):
        source = replace(PROJECT, repeatable=repeatable)
        expected = Killed if repeatable and again else Failed
        with client_of(script, source=source, facts=facts) as client, pytest.raises(expected):
            client.load()


@pytest.mark.parametrize("kind", ["reference", "null"])
def test_our_own_worker_is_our_bug(arena: Arena, kind: Literal["reference", "null"]) -> None:
    """When a worker fails that runs only our code, no student is blamed."""
    source = Source(kind, Path(__file__).resolve(), "r", "reference")
    expected = pytest.raises(HarnessBug, match=f"our own {kind} worker failed: the op raised")
    with client_of(raising("ValueError: x"), source=source) as client, expected:
        call(client, arena)


@pytest.mark.parametrize("in_image", [False, True])
def test_job_of_a_worker(in_image: bool) -> None:
    """A worker is isolated, has one thread, and sees itself, the project and (no image) torch."""
    sandbox = ThreadSandbox(HonestWorker(lambda *a: None))
    site, python = Path("/opt/site"), Path("/opt/venv/bin/python")
    WorkerClient(PROJECT, sandbox, WorkerPlace((site,), python, in_image), wall_s=60).close()
    (job,) = sandbox.jobs
    assert (job.role, job.device, job.limits.wall_s, job.argv[1:3]) == ("run", None, 60, ["-I", "-S"])
    assert set(job.inputs) == {"worker", "project"}
    assert job.environment == {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    assert (job.preload, job.site) == (("torch",), (site,))
    assert job.argv[0] == str(python) and job.argv[-1] == str(site)
    assert (site in job.readable) == (not in_image)
