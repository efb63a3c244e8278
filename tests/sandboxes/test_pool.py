"""Warm processes: used once, by jobs of their shape, and ended with the pool; stopping everything at once."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.host_process import HostProcess
from sandboxes.job import Job, Limits
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool, shape


class CountingBackend(LocalBackend):
    """Remembers its processes."""

    def __init__(self) -> None:
        super().__init__()
        self.trees: list[HostProcess] = []

    def spawn(self, job: Job) -> HostProcess:
        self.trees.append(super().spawn(job))
        return self.trees[-1]


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend()


@pytest.fixture
def sandbox(backend: CountingBackend) -> Iterator[SandboxPool]:
    """Closed after the test."""
    made = SandboxPool(backend)
    yield made
    made.close()


def script_job(folder: Path, code: str) -> Job:
    """A Python script with a preloaded module."""
    (folder / "script.py").write_text(code)
    return Job(
        role="run",
        argv=[sys.executable, "-I", "-S", "{scratch}/script.py"],
        limits=Limits(wall_s=20.0),
        inputs={"script.py": folder / "script.py"},
        preload=("decimal",),
    )


def warm_process(sandbox: SandboxPool) -> HostProcess:
    """The only one, once it is ready."""
    sandbox.settle()
    (warm,) = sandbox._ready.values()
    assert isinstance(warm.tree, HostProcess)
    return warm.tree


def output_of(sandbox: SandboxPool, job: Job) -> str:
    """What a job prints."""
    process = sandbox.start(job)
    facts = process.wait(30)
    process.close()
    assert facts is not None
    return facts.output


def test_a_warm_process_runs_one_job(sandbox: SandboxPool, backend: CountingBackend, tmp_path: Path) -> None:
    """It becomes the job, with files that it did not have before; the next job gets another process."""
    job = script_job(tmp_path, "import os; print(os.getpid(), os.listdir())")
    for _ in range(5):
        sandbox.prepare(job)
    pid = warm_process(sandbox)._popen.pid
    assert len(backend.trees) == 1
    assert output_of(sandbox, job) == f"{pid} ['script.py']\n"
    assert not output_of(sandbox, job).startswith(f"{pid} ")
    assert len(backend.trees) == 2


def test_a_job_of_another_shape_does_not_take_it(tmp_path: Path) -> None:
    """Everything that is fixed at the start must match: all but argv, inputs, deadline and output limit."""
    job = script_job(tmp_path, "")
    other = {
        "role": "run_jit",
        "limits": Limits(wall_s=20.0, memory_bytes=1 << 30),
        "readable": (Path("/usr/share"),),
        "environment": {"A": "1"},
        "device": "0",
        "cpus": frozenset({0}),
        "preload": (),
        "site": (Path("/usr/lib"),),
    }
    assert {field.name for field in fields(Job)} == {*other, "argv", "inputs"}
    for name, value in other.items():
        assert shape(replace(job, **{name: value})) != shape(job), name  # type: ignore[arg-type]
    assert shape(replace(job, argv=[], inputs={}, limits=Limits(wall_s=1.0, output_bytes=9))) == shape(job)


def test_the_deadline_counts_from_the_job(sandbox: SandboxPool, tmp_path: Path) -> None:
    """Waiting for a job is not wall-clock time of the job, and its own deadline holds."""
    job = script_job(tmp_path, "import time; time.sleep(60)")
    sandbox.prepare(job)
    warm_process(sandbox)
    time.sleep(0.6)
    process = sandbox.start(replace(job, limits=Limits(wall_s=0.5)))
    facts = process.wait(30)
    assert facts is not None and facts.status == "wall_timeout"
    process.close()


def test_a_dead_warm_process_is_not_used(sandbox: SandboxPool, tmp_path: Path) -> None:
    """The job starts in a fresh one."""
    job = script_job(tmp_path, "print('ran')")
    sandbox.prepare(job)
    warm = warm_process(sandbox)
    os.kill(warm._popen.pid, signal.SIGKILL)
    warm.channel.recv(1, socket.MSG_PEEK)  # returns when the other end is gone
    assert output_of(sandbox, job) == "ran\n"


def test_close_ends_warm_processes(sandbox: SandboxPool, tmp_path: Path) -> None:
    """No process and no folder is left, and nothing is prepared or started any more."""
    job = script_job(tmp_path, "print('ran')")
    sandbox.prepare(job)
    warm = warm_process(sandbox)
    sandbox.close()
    assert not Path(f"/proc/{warm._popen.pid}").exists() and not warm._spec.folder.exists()
    sandbox.prepare(job)
    assert not sandbox._ready and not sandbox._pending
    with pytest.raises(SandboxError, match="stopped"):
        sandbox.start(job)


class FullBackend(LocalBackend):
    """Its disk is full."""

    def spawn(self, job: Job) -> HostProcess:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_neither_hangs_nor_hides(tmp_path: Path) -> None:
    """settle() returns, and start() raises the reason."""
    sandbox = SandboxPool(FullBackend())
    for _ in range(2):
        sandbox.prepare(script_job(tmp_path, ""))
        sandbox.settle()
    with pytest.raises(SandboxError, match="No space left on device"):
        sandbox.start(script_job(tmp_path, ""))
    sandbox.close()


SLEEP = Job(
    role="run",
    argv=[sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"],
    limits=Limits(wall_s=600),
)


def test_stop_kills_and_refuses(sandbox: SandboxPool) -> None:
    """stop() kills what runs, and nothing can be started afterwards."""
    processes = [sandbox.start(SLEEP) for _ in range(2)]
    assert [p.wait(0.05) for p in processes] == [None, None]
    sandbox.stop()
    facts = [p.wait(20) for p in processes]
    assert [f and f.signal for f in facts] == [9, 9]
    with pytest.raises(SandboxError, match="stopped"):
        sandbox.start(SLEEP)
    for process in processes:
        process.close()


def test_a_start_during_stop_is_ended() -> None:
    """A process that was being started when stop() was called is closed."""

    class Slow(CountingBackend):
        def spawn(self, job: Job) -> HostProcess:
            tree = super().spawn(job)
            sandbox.stop()  # as another thread would
            return tree

    backend = Slow()
    sandbox = SandboxPool(backend)
    with pytest.raises(SandboxError, match="stopped"):
        sandbox.start(SLEEP)
    assert not Path(f"/proc/{backend.trees[0]._popen.pid}").exists()
