"""Cages that stand by: used once, by jobs that fit, and gone at the end."""

from __future__ import annotations

import errno
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.host_process import HostProcess
from sandboxes.job import Job, Limits, ProcessTree, TreeExit, Usage
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool, shape


class CountingBackend:
    """The local backend; remembers its cages."""

    name = "local"
    python = Path(sys.executable)
    image = None

    def __init__(self) -> None:
        self._inner = LocalBackend()
        self.cages: list[HostProcess] = []

    def facts(self) -> dict[str, str]:
        return self._inner.facts()

    def close(self) -> None: ...

    def spawn(self, job: Job) -> HostProcess:
        self.cages.append(self._inner.spawn(job))
        return self.cages[-1]


@pytest.fixture
def backend() -> CountingBackend:
    return CountingBackend()


@pytest.fixture
def sandbox(backend: CountingBackend) -> Iterator[SandboxPool]:
    """Closed after the test."""
    made = SandboxPool(backend)
    yield made
    made.close()


def script_job(folder: Path, code: str, **changes: object) -> Job:
    """A Python script as a job that may be started ahead."""
    (folder / "script.py").write_text(code)
    job = Job(
        role="run",
        argv=[sys.executable, "-I", "-S", "{scratch}/script.py"],
        limits=Limits(wall_s=20.0),
        inputs={"script.py": folder / "script.py"},
        preload=("decimal",),
    )
    return replace(job, **changes)  # type: ignore[arg-type]


def standing(sandbox: SandboxPool, count: int) -> list[int]:
    """Process ids of those that stand by, once there are `count`."""
    for _ in range(1000):
        ready = [s for waiting in sandbox._ready.values() for s in waiting]
        if len(ready) == count:
            return [s.cage._popen.pid for s in ready if isinstance(s.cage, HostProcess)]
        time.sleep(0.01)
    raise AssertionError(f"{len(ready)} stand by, not {count}")


def test_a_job_takes_what_stands_by(sandbox: SandboxPool, tmp_path: Path) -> None:
    """The process that was prepared becomes the job, with files that it did not have before."""
    job = script_job(tmp_path, "import os; print(os.getpid(), os.listdir())")
    sandbox.prepare(job)
    (pid,) = standing(sandbox, 1)
    process = sandbox.start(job)
    facts = process.wait(30)
    assert facts is not None and facts.output == f"{pid} ['script.py']\n"
    assert not sandbox._ready[shape(job)]
    process.close()


def test_each_is_used_once(sandbox: SandboxPool, backend: CountingBackend, tmp_path: Path) -> None:
    """The second job of the same kind gets a process of its own."""
    job = script_job(tmp_path, "import os; print(os.getpid())")
    sandbox.prepare(job)
    standing(sandbox, 1)
    processes = [sandbox.start(job) for _ in range(2)]
    outputs = {facts.output for p in processes if (facts := p.wait(30)) is not None}
    assert len(outputs) == 2 and len(backend.cages) == 2
    for process in processes:
        process.close()


@pytest.mark.parametrize(
    "change",
    [
        {"role": "run_jit"},
        {"limits": Limits(wall_s=20.0, memory_bytes=1 << 30)},
        {"environment": {"A": "1"}},
        {"readable": (Path("/usr/share"),)},
        {"preload": ()},
        {"cpus": frozenset({0})},
        {"device": "0"},
        {"site": (Path("/usr/lib"),)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_kind_of_job_does_not_take_it(change: dict[str, object], tmp_path: Path) -> None:
    """What was fixed when it was started must fit exactly."""
    job = script_job(tmp_path, "")
    assert shape(replace(job, **change)) != shape(job)  # type: ignore[arg-type]


def test_the_deadline_counts_from_the_job(sandbox: SandboxPool, tmp_path: Path) -> None:
    """Standing by is nobody's wall-clock time, and a job's own deadline holds."""
    job = script_job(tmp_path, "import time; time.sleep(60)")
    sandbox.prepare(job)
    standing(sandbox, 1)
    time.sleep(0.6)
    process = sandbox.start(replace(job, limits=Limits(wall_s=0.5)))
    facts = process.wait(30)
    assert facts is not None and facts.status == "wall_timeout"
    process.close()


def test_one_that_died_is_not_handed_out(sandbox: SandboxPool, tmp_path: Path) -> None:
    """A job starts in a fresh one when what stood by was killed."""
    job = script_job(tmp_path, "print('ran')")
    sandbox.prepare(job)
    (pid,) = standing(sandbox, 1)
    os.kill(pid, signal.SIGKILL)
    (waiting,) = sandbox._ready[shape(job)]
    waiting.cage.channel.recv(1, socket.MSG_PEEK)  # returns when the other end is gone
    process = sandbox.start(job)
    facts = process.wait(30)
    assert facts is not None and facts.output == "ran\n"
    process.close()


def test_prepare_does_not_pile_up(sandbox: SandboxPool, backend: CountingBackend, tmp_path: Path) -> None:
    """Asking again for what is there or on its way starts nothing."""
    job = script_job(tmp_path, "")
    for _ in range(5):
        sandbox.prepare(job, 2)
    standing(sandbox, 2)
    sandbox.prepare(job, 2)
    assert len(backend.cages) == 2


def test_close_ends_what_stands_by(sandbox: SandboxPool, tmp_path: Path) -> None:
    """Afterwards no process and no folder is left, and nothing is prepared any more; jobs still run."""
    job = script_job(tmp_path, "print('ran')")
    sandbox.prepare(job, 2)
    pids = standing(sandbox, 2)
    folders = [s.cage._start.folder for s in sandbox._ready[shape(job)] if isinstance(s.cage, HostProcess)]
    sandbox.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not any(folder.exists() for folder in folders)
    sandbox.prepare(job)
    assert not sandbox._ready and not any(sandbox._coming.values())
    process = sandbox.start(job)
    facts = process.wait(30)
    assert facts is not None and facts.output == "ran\n"
    process.close()


class BrokenCage:
    """Ends before it is ready."""

    caps_memory = caps_scratch = False

    def __init__(self) -> None:
        self.channel, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.released = False
        self._theirs.close()

    def wait(self) -> TreeExit:
        return TreeExit(code=1)

    def kill(self) -> None: ...

    def freeze(self, frozen: bool) -> None: ...

    def usage(self) -> Usage:
        return Usage()

    def members(self) -> list[int]:
        return []

    def words(self) -> str:
        return "no such interpreter"

    def release(self) -> None:
        self.released = True


class BrokenBackend:
    """Makes broken cages."""

    name = "broken"
    python = Path(sys.executable)
    image = None

    def __init__(self) -> None:
        self.cages: list[BrokenCage] = []
        self.made = threading.Event()

    def facts(self) -> dict[str, str]:
        return {}

    def close(self) -> None: ...

    def spawn(self, job: Job) -> ProcessTree:
        self.cages.append(BrokenCage())
        self.made.set()
        return self.cages[-1]


def test_a_cage_that_does_not_start_is_released(tmp_path: Path) -> None:
    """start() raises SandboxError with the cage's own words, and gives the cage back."""
    backend = BrokenBackend()
    with pytest.raises(SandboxError, match="no such interpreter"):
        SandboxPool(backend).start(script_job(tmp_path, ""))
    assert [cage.released for cage in backend.cages] == [True]


def test_a_preparation_that_fails_is_only_lost(tmp_path: Path) -> None:
    """It is not reported twice: the job that would have used it meets the trouble itself."""
    backend = BrokenBackend()
    sandbox = SandboxPool(backend)
    sandbox.prepare(script_job(tmp_path, ""))
    assert backend.made.wait(20)
    sandbox.close()
    assert [cage.released for cage in backend.cages] == [True] and not sandbox._ready


class FullBackend(BrokenBackend):
    """Has no room for a cage's files."""

    def spawn(self, job: Job) -> ProcessTree:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_neither_hangs_nor_hides(tmp_path: Path) -> None:
    """Whoever waits for what is being prepared goes on, and the job is told why it cannot start."""
    sandbox = SandboxPool(FullBackend())
    for _ in range(2):
        sandbox.prepare(script_job(tmp_path, ""))
        sandbox.settle()
    with pytest.raises(SandboxError, match="No space left on device"):
        sandbox.start(script_job(tmp_path, ""))
    sandbox.close()
