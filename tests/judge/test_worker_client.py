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
from harness.judge.arena import Arena, Layout
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


def contender_of(
    script: Script, *, source: Source = PROJECT, facts: ExitFacts | None = None, call_s: float = 5.0
) -> tuple[WorkerClient, ThreadSandbox]:
    sandbox = ThreadSandbox(script, facts)
    return WorkerClient(source, sandbox, WorkerPlace(()), wall_s=60, call_s=call_s), sandbox


def answering(*answers: bytes) -> Script:
    def script(channel: socket.socket) -> None:
        send(channel, {"hello": "2.10", "pid": 1})
        while True:
            message, _ = receive(channel)
            if message is None:
                return
            if message["op"] == "hide":
                continue
            if message["op"] != "call":
                send(channel, {"ok": True})
                continue
            for answer in answers:
                channel.send(answer)

    return script


def call(contender: WorkerClient, arena: Arena) -> Reveal:
    contender.load()
    contender.plan(arena.layout)
    return contender.call(arena, 1, "on a test")[1]


def finding_of(
    script: Script, arena: Arena, *, call_s: float = 5.0, facts: ExitFacts | None = None
) -> Failed:
    contender, _ = contender_of(script, call_s=call_s, facts=facts)
    try:
        with pytest.raises(Failed) as failed:
            call(contender, arena)
    finally:
        contender.close()
    return failed.value


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


def test_exception_of_an_op(arena: Arena) -> None:
    """An exception is the op's; its last line comes first, and want of memory is told apart."""
    text = "Traceback (most recent call last):\n  File x\nValueError: bad"
    finding = finding_of(answering(json.dumps({"raised": text}).encode()), arena).finding
    assert finding.cause is Cause.OP_RAISED
    assert finding.message.splitlines()[0] == "the op raised on a test: ValueError: bad"
    finding = finding_of(answering(json.dumps({"raised": "std::bad_alloc"}).encode()), arena).finding
    assert finding.cause is Cause.OUT_OF_MEMORY


def test_silence_has_a_deadline(arena: Arena) -> None:
    """A worker that does not answer is killed at the deadline of the call."""
    contender, sandbox = contender_of(answering(), call_s=0.2)
    with pytest.raises(Failed, match=r"no answer within 0\.2 s on a test") as failed:
        call(contender, arena)
    assert failed.value.finding.cause is Cause.WALL_TIMEOUT
    assert sandbox.processes[0].killed
    contender.close()


def test_the_judges_own_work_is_not_the_workers_time(arena: Arena, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the snapshot is taken the worker stands still: it is charged to nobody."""
    whole = arena.snapshot

    def slow() -> torch.Tensor:
        time.sleep(0.6)
        return whole()

    def script(channel: socket.socket) -> None:
        send(channel, {"hello": ""})
        while message := receive(channel)[0]:
            if message["op"] == "call":
                channel.send(b"D")
            elif message["op"] == "hide":
                time.sleep(0.05)
                send(channel, {"calls": 1, "total_ns": 5, "ns": [5]})
            else:
                send(channel, {"ok": True})

    monkeypatch.setattr(arena, "snapshot", slow)
    contender, _ = contender_of(script, call_s=0.5)
    assert call(contender, arena).claim_us == 0.005
    contender.close()


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
        contender, _ = contender_of(script, source=source, facts=facts)
        with pytest.raises(Killed if repeatable and again else Failed):
            contender.load()
        contender.close()


@pytest.mark.parametrize("kind", ["reference", "null"])
def test_our_own_worker_is_our_bug(arena: Arena, kind: Literal["reference", "null"]) -> None:
    """When a worker fails that runs only our code, no student is blamed."""
    source = Source(kind, Path(__file__).resolve(), "r", "reference")
    contender, _ = contender_of(answering(json.dumps({"raised": "ValueError: x"}).encode()), source=source)
    with pytest.raises(HarnessBug, match=f"our own {kind} worker failed: the op raised"):
        call(contender, arena)
    contender.close()


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
