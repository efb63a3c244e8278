"""The off switch of a sandbox."""

from __future__ import annotations

import sys

import pytest

from harness.errors import SandboxError
from sandboxes.job import Job, Limits
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool, StoppableSandbox
from tests.fakes.sandbox import FakeProcess, FakeSandbox, exit_facts

SLEEP = Job(
    role="run",
    argv=[sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"],
    limits=Limits(wall_s=600),
)


def test_stop_kills_and_refuses() -> None:
    """stop() ends what runs, and nothing can be started afterwards."""
    sandbox = StoppableSandbox(SandboxPool(LocalBackend()))
    processes = [sandbox.start(SLEEP) for _ in range(2)]
    assert [p.wait(0.05) for p in processes] == [None, None]
    sandbox.stop()
    facts = [p.wait(20) for p in processes]
    assert [f and f.signal for f in facts] == [9, 9]
    with pytest.raises(SandboxError, match="stopped"):
        sandbox.start(SLEEP)
    for process in processes:
        process.close()


def test_what_starts_while_everything_is_stopped_is_ended() -> None:
    """A start that was under way when stop() came leaves nothing that runs, and holds stop() up no longer."""
    inner = FakeSandbox(exit_facts("ok"))
    sandbox = StoppableSandbox(inner)

    class Slow(FakeSandbox):
        def start(self, job: Job) -> FakeProcess:
            sandbox.stop()  # as another thread would
            return super().start(job)

    slow = Slow(exit_facts("ok"))
    sandbox._inner = slow
    with pytest.raises(SandboxError, match="stopped"):
        sandbox.start(SLEEP)
    assert [process.closed for process in slow.processes] == [True]


def test_finished_processes_are_forgotten() -> None:
    """Only living processes are remembered."""
    inner = FakeSandbox(exit_facts("ok"))
    sandbox = StoppableSandbox(inner)
    for _ in range(5):
        sandbox.start(SLEEP).close()
    assert len(sandbox._live) == 1
    assert (sandbox.name, sandbox.facts()) == (inner.name, inner.facts())
