"""Waiting for locks that other processes hold."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from harness.builder.compiler_slots import CompilerSlots
from harness.device.machine import QuietLock
from harness.errors import UsageError
from harness.locks import held_by, holders, locked
from harness.study.store import sole_writer

ROOT = Path(__file__).resolve().parents[1]

HOLDER = """
import contextlib, fcntl, sys
from pathlib import Path
from filelock import FileLock
from harness.device.machine import QuietLock
place = Path(sys.argv[2])
with contextlib.ExitStack() as held:
    if sys.argv[1] == "quiet":
        held.enter_context(QuietLock(place, "cpu").exclusive())
    elif sys.argv[1] == "slot":
        place.mkdir(exist_ok=True)
        fcntl.flock(held.enter_context((place / "slot-0").open("w")), fcntl.LOCK_EX)
    else:
        held.enter_context(FileLock(place))
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_elsewhere(kind: str, place: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a lock until its stdin ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, kind, str(place), "--as-in", "liftbench\x1b[2J"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    assert process.stdin is not None and process.stdout is not None
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        if not process.stdin.closed:
            process.stdin.close()


def take(kind: str, place: Path) -> None:
    """Wait for a lock of that kind, and give it back."""
    if kind == "quiet":
        taken: AbstractContextManager[object] = QuietLock(place, "cpu").shared()
    elif kind == "slot":
        taken = CompilerSlots(place, cores=lambda: 1).taken(1)
    else:
        taken = locked(place, "the same build")
    with taken:
        pass


@pytest.mark.parametrize(
    ("kind", "what"),
    [("quiet", "the CPU"), ("slot", "a compiler slot of this machine"), ("file", "the same build")],
)
def test_who_waits_says_for_whom(
    kind: str, what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Pid and command of the process that holds the lock; and when it goes on, after how long."""
    place = tmp_path / "place"
    with held_elsewhere(kind, place) as process:
        waiter = threading.Thread(target=take, args=(kind, place))
        waiter.start()
        while not caplog.messages:
            assert waiter.is_alive()
            time.sleep(0.02)
        told = caplog.messages[0]
        assert told.startswith(f"waiting for {what}: held by pid {process.pid} (python")
        assert "\x1b" not in told and len(told) < 180
        assert process.stdin is not None
        process.stdin.close()
        waiter.join()
    assert caplog.messages[1].startswith("waited ") and caplog.messages[1].endswith(f"s for {what}; going on")
    assert len(caplog.messages) == 2
    assert {record.levelno for record in caplog.records} == {logging.WARNING}  # shown without a handler


def test_a_lock_that_is_free_or_our_own_is_no_news(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Threads of one process take turns in silence."""
    place = tmp_path / "place"
    take("file", place)
    with FileLock(place):
        waiter = threading.Thread(target=take, args=("file", place))
        waiter.start()
        waiter.join(1.5)
        assert waiter.is_alive()
    waiter.join()
    assert caplog.messages == []


def test_a_lock_is_nobodys_once_its_holder_has_ended(tmp_path: Path) -> None:
    """What a killed process held is held no more, and no note of it is left."""
    place = tmp_path / "place"
    with held_elsewhere("file", place) as process:
        [(pid, command)] = holders(place).items()
        assert pid == process.pid and "--as-in" not in command
        process.kill()
        process.wait()
        assert holders(place) == {}
        assert held_by(place) == "a process that is not visible from here"


def test_a_folder_that_another_command_works_in_is_refused_by_its_name(tmp_path: Path) -> None:
    """The message has the pid to look for."""
    with (
        held_elsewhere("file", tmp_path / ".lock") as process,
        pytest.raises(UsageError, match=rf"at work in {tmp_path}: pid {process.pid} \(python.*Wait until"),
        sole_writer(tmp_path),
    ):
        pass
