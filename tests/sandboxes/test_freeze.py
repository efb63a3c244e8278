"""A tree is frozen when every thread of it stands: which ones are found, which count, and what if not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.freeze import confirm_stopped
from sandboxes.host_process import HostProcess
from sandboxes.job import Backend, Job, Limits, UnstoppableError
from sandboxes.landlock import LandlockBackend
from sandboxes.local import LocalBackend
from sandboxes.process import RunningProcess, WarmProcess
from sandboxes.seccomp import numbers
from tests.sandboxes.behaviours import Starter, awaited, content, end_of

NUMBERS = numbers(os.uname().machine)


@pytest.fixture(params=[LocalBackend, LandlockBackend, BubblewrapBackend], ids=lambda kind: str(kind.name))
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each backend that freezes by signal."""
    made = request.param()
    reason = made.unavailable() if hasattr(made, "unavailable") else None
    if reason is not None:
        pytest.skip(reason)
    yield made


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own that computes in two threads for ever."""
    code = "import threading\ndef run():\n    while True: pass\nthreading.Thread(target=run).start()\nrun()"
    started = subprocess.Popen([sys.executable, "-I", "-S", "-c", code], start_new_session=True)
    yield started
    started.kill()
    started.wait()


def states(pid: int) -> set[str]:
    """Of its threads."""
    stats = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return {stat.rpartition(") ")[2][0] for stat in stats}


def test_all_threads_stand_when_it_says_so(process: subprocess.Popen[bytes]) -> None:
    """Afterwards the kernel reports each thread as stopped."""
    for _ in range(20):
        os.killpg(process.pid, signal.SIGSTOP)
        assert confirm_stopped(lambda: [process.pid], process.pid, 10.0)
        assert states(process.pid) == {"T"}
        os.killpg(process.pid, signal.SIGCONT)


def test_what_is_woken_again_and_again_does_not_stand(process: subprocess.Popen[bytes]) -> None:
    """It says no, after its time is up, of a process that somebody wakes whenever it stops."""
    done = threading.Event()

    def wake() -> None:
        while not done.is_set():
            os.killpg(process.pid, signal.SIGCONT)

    waker = threading.Thread(target=wake)
    waker.start()
    try:
        assert not all(confirm_stopped(lambda: [process.pid], process.pid, 0.0) for _ in range(50))
    finally:
        done.set()
        waker.join()


def test_other_groups_are_left_alone(process: subprocess.Popen[bytes]) -> None:
    """A process that is not in the group is neither told nor waited for; one that has ended neither."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert confirm_stopped(lambda: [process.pid, ended.pid], os.getpgid(0), 10.0)
    assert "T" not in states(process.pid)


# Its main thread waits in vfork() for ever, while another thread of it counts.
COUNTS_BEHIND_VFORK = f"""
import ctypes, os, signal, sys, threading, time
libc = ctypes.CDLL("libc.so.6")
def count():
    for number in range(10**9):
        with open("new", "w") as file:
            file.write(str(number))
        os.rename("new", "counter")
        if number == 500:  # by now it waits
            open("waits", "w").close()
def wait_in_vfork():
    threading.Thread(target=count).start()
    libc.syscall({NUMBERS["clone"]}, ctypes.c_long(0x4000 | signal.SIGCHLD), 0, 0, 0, 0)  # CLONE_VFORK
    time.sleep(600)  # the child, which is a copy as by fork(), and so never lets its parent go on
"""


def test_an_orphan_that_waits_in_vfork_stands_too(start: Starter) -> None:
    """Its parent is gone, and the thread that hears a group's signal waits: the others stand all the same."""
    code = f"""{COUNTS_BEHIND_VFORK}
if os.fork() == 0:
    if os.fork() == 0:
        wait_in_vfork()
    os._exit(0)
os.wait()
time.sleep(600)
"""
    process = start(code)
    awaited(process, "waits")
    for _ in range(3):
        process.pause(True)
        before = content(process, "counter")
        assert process.wait(0.3) is None
        assert content(process, "counter") == before
        process.pause(False)


def test_nothing_inside_sends_the_signal_that_wakes(start: Starter) -> None:
    """SIGCONT is refused in every way to send a signal; others can be sent. Orphans keep their reaper."""
    code = f"""
import ctypes, os, signal
libc = ctypes.CDLL("libc.so.6", use_errno=True)
signal.signal(signal.SIGUSR1, lambda *_: None)
me, info = os.getpid(), ctypes.create_string_buffer(128)
handle = os.pidfd_open(me)
def tried(*words):
    ctypes.set_errno(0)
    libc.syscall(*[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
    return ctypes.get_errno()
for number in (signal.SIGCONT, signal.SIGUSR1):
    info[0:4] = int(number).to_bytes(4, "little")
    info[8:12] = (-1 & 0xffffffff).to_bytes(4, "little")  # SI_QUEUE
    print(
        tried({NUMBERS["kill"]}, me, number),
        tried({NUMBERS["tkill"]}, me, number),
        tried({NUMBERS["tgkill"]}, me, me, number),
        tried({NUMBERS["rt_sigqueueinfo"]}, me, number, info),
        tried({NUMBERS["rt_tgsigqueueinfo"]}, me, me, number, info),
        tried({NUMBERS["pidfd_send_signal"]}, handle, number, 0, 0),
    )
print(tried({NUMBERS["prctl"]}, 36, 0, 0, 0, 0))
"""
    facts = end_of(start(code))
    assert facts.output.split() == ["1"] * 6 + ["0"] * 6 + ["1"], facts


class Unstoppable(HostProcess):
    """A cage whose processes can be killed and not stopped."""

    def freeze(self, frozen: bool) -> None:
        raise UnstoppableError("some thread did not stop")


def test_a_job_that_cannot_be_stopped_is_ended() -> None:
    """It has used up its time, whatever it says: nobody may take a snapshot of what still moves."""
    made = LocalBackend()
    argv = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    job = Job(role="run", argv=argv, limits=Limits(wall_s=50.0))
    cage = made.spawn(job)
    cage.__class__ = Unstoppable
    process = RunningProcess(WarmProcess(cage), job)
    try:
        process.pause(True)
        facts = process.wait(30)
        assert facts is not None and facts.status == "wall_timeout"
    finally:
        process.close()
