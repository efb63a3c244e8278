"""Freezing by signal: every thread stops, a job can neither wake itself nor leave its group."""

from __future__ import annotations

import errno
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
from sandboxes.job import Backend, Job, Limits, RoleName, UnstoppableError
from sandboxes.landlock import LandlockBackend
from sandboxes.local import LocalBackend
from sandboxes.process import RunningProcess, WarmProcess
from sandboxes.seccomp import job_filter, numbers, refused_calls
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


def test_a_process_that_is_woken_repeatedly_is_not_stopped(process: subprocess.Popen[bytes]) -> None:
    """False is returned after the time limit."""
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
    """A process of another group is neither signalled nor waited for, nor is one that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert confirm_stopped(lambda: [process.pid, ended.pid], os.getpgid(0), 10.0)
    assert "T" not in states(process.pid)


# A timer that sends SIGCONT every 0.1 s; the same for room in a pipe that the judge empties.
WAKES_ITSELF = """
import ctypes, fcntl, os, signal
signal.signal(signal.SIGCONT, lambda number, frame: None)  # ignored, a timer's would not be sent
libc = ctypes.CDLL("libc.so.6", use_errno=True)
event = (ctypes.c_int * 16)(0, 0, 18, 0)
timer = ctypes.c_void_p()
every = (ctypes.c_long * 4)(0, 100_000_000, 0, 100_000_000)
if libc.timer_create(1, event, ctypes.byref(timer)) == 0:
    libc.timer_settime(timer, 0, every, None)
try:
    fcntl.fcntl(1, 10, 18)
    fcntl.fcntl(1, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(1, fcntl.F_SETFL, fcntl.fcntl(1, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
except OSError:
    pass
while True:
    with open("new", "w") as file:
        file.write(str(os.times().elapsed))
    os.rename("new", "counter")
    try:
        os.write(1, bytes(64))
    except BlockingIOError:
        pass
"""


def test_a_frozen_job_cannot_wake_itself(start: Starter) -> None:
    """Neither a timer nor a pipe that we read sends SIGCONT to a job that stands still."""
    process = start(WAKES_ITSELF, output_bytes=1 << 30)
    awaited(process, "counter")
    process.pause(True)
    before = content(process, "counter")
    assert process.wait(0.5) is None
    assert content(process, "counter") == before
    process.pause(False)


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


def test_an_orphan_in_vfork_is_stopped(start: Starter) -> None:
    """Its parent is gone, and the thread that receives the group's signal is in vfork()."""
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


def test_a_job_cannot_send_sigcont(start: Starter) -> None:
    """By any call that sends a signal; other signals are allowed. Orphans keep their subreaper."""
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


def test_no_process_wakes_another_by_its_end(start: Starter) -> None:
    """The end of a process sends SIGCONT neither to its parent nor to its children; other signals it may."""
    known = numbers(os.uname().machine)
    code = f"""
import ctypes, os, signal
libc = ctypes.CDLL("libc.so.6", use_errno=True)
def tried(*words):
    ctypes.set_errno(0)
    found = libc.syscall(*[ctypes.c_long(word) for word in words])
    if found == 0 and words[0] == {known["clone"]}:
        os._exit(0)
    print(ctypes.get_errno(), flush=True)
tried({known["clone"]}, signal.SIGCONT, 0, 0, 0, 0)
tried({known["clone3"]}, 0, 0)
tried({known["prctl"]}, 1, signal.SIGCONT, 0, 0, 0)
tried({known["clone"]}, signal.SIGCHLD, 0, 0, 0, 0)
tried({known["prctl"]}, 1, signal.SIGKILL, 0, 0, 0)
"""
    words = [str(number) for number in (errno.EPERM, errno.ENOSYS, errno.EPERM, 0, 0)]
    assert end_of(start(code)).output.split() == words


@pytest.mark.parametrize(("role", "locks"), [("build", False), ("run", False), ("run_jit", True)])
def test_only_run_jit_may_lock_files(start: Starter, role: RoleName, locks: bool) -> None:
    """Locks keep others out of a file; torch guards its compile cache with them."""
    code = """
import errno, fcntl
file = open("file", "w")
for attempt in (lambda: fcntl.flock(file, fcntl.LOCK_EX), lambda: fcntl.lockf(file, fcntl.LOCK_EX),
                lambda: fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)):
    try:
        attempt()
        print("held")
    except OSError as error:
        print(errno.errorcode[error.errno])
"""
    lock = "held" if locks else "ENOLCK"
    assert end_of(start(code, role=role)).output.split() == [lock, lock, "EPERM"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_job_filters_are_complete(machine: str) -> None:
    """Every refused call is in the program by number, and the following program comes last."""
    for role in ("build", "run", "run_jit"):
        job = Job(role=role, argv=[], limits=Limits(wall_s=1.0))
        program = job_filter(job, machine, b"12345678")
        assert len(program) % 8 == 0
        assert program.endswith(b"12345678")
        compared = {int.from_bytes(program[i + 4 : i + 8], "little") for i in range(0, len(program), 8)}
        known = numbers(machine)
        assert {known[name] for name in refused_calls(job) if name in known} <= compared


class Unstoppable(HostProcess):
    """Can be killed but not frozen."""

    def freeze(self, frozen: bool) -> None:
        raise UnstoppableError("some thread did not stop")


def test_a_job_that_cannot_be_frozen_is_killed() -> None:
    """With the status wall_timeout."""
    made = LocalBackend()
    argv = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    job = Job(role="run", argv=argv, limits=Limits(wall_s=50.0))
    tree = made.spawn(job)
    tree.__class__ = Unstoppable
    process = RunningProcess(WarmProcess(tree), job)
    try:
        process.pause(True)
        facts = process.wait(30)
        assert facts is not None and facts.status == "wall_timeout"
    finally:
        process.close()
