"""Freezing by signal: every thread stops, a job can neither wake itself nor leave its group."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.freeze import confirm_stopped
from sandboxes.host_process import HostProcess
from sandboxes.job import Backend, Job, Limits, RoleName, UnstoppableError
from sandboxes.landlock import LandlockBackend
from sandboxes.local import LocalBackend
from sandboxes.seccomp import job_filter, numbers
from sandboxes.supervisor import RunningProcess, WarmProcess
from tests.sandboxes import bpf
from tests.sandboxes.behaviours import Starter, awaited, content, end_of, why_not

NUMBERS = numbers(os.uname().machine)


@pytest.fixture(params=[LocalBackend, LandlockBackend, BubblewrapBackend], ids=lambda kind: str(kind.name))
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each backend that freezes by signal."""
    reason = why_not(request.param)
    if reason is not None:
        pytest.skip(reason)
    yield request.param()


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
    done = threading.Event()

    def wake() -> None:
        while not done.is_set():
            os.killpg(process.pid, signal.SIGCONT)

    waker = threading.Thread(target=wake)
    waker.start()
    try:
        with pytest.raises(UnstoppableError, match="did not stop within 0 s"):
            for _ in range(50):
                confirm_stopped(lambda: [process.pid], process.pid, 0.0)
    finally:
        done.set()
        waker.join()


def test_other_groups_are_left_alone(process: subprocess.Popen[bytes]) -> None:
    """A process of another group is neither signalled nor waited for, nor is one that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    began = time.monotonic()
    assert began <= confirm_stopped(lambda: [process.pid, ended.pid], os.getpgid(0)) <= time.monotonic()
    assert "T" not in states(process.pid)


def test_a_stop_is_dated_when_all_stood_still(process: subprocess.Popen[bytes]) -> None:
    """After the first scan that found no thread running, and before the one that confirmed it."""
    scans: list[float] = []

    def members() -> list[int]:
        scans.append(time.monotonic())
        return [process.pid]

    os.killpg(process.pid, signal.SIGSTOP)
    stopped_at = confirm_stopped(members, process.pid)
    assert scans[-2] <= stopped_at <= scans[-1]
    assert states(process.pid) == {"T"}


def test_an_orphan_in_vfork_is_stopped(start: Starter) -> None:
    """Its parent is gone, and its main thread, which receives the group's signal, is in vfork() for ever."""
    code = f"""
import ctypes, os, signal, threading, time
libc = ctypes.CDLL("libc.so.6")
def count():
    for number in range(10**9):
        with open("new", "w") as file:
            file.write(str(number))
        os.rename("new", "counter")
        if number == 500:  # by now the main thread waits
            open("waits", "w").close()
if os.fork() == 0:
    if os.fork() == 0:
        threading.Thread(target=count).start()
        libc.syscall({NUMBERS["clone"]}, ctypes.c_long(0x4000 | signal.SIGCHLD), 0, 0, 0, 0)  # CLONE_VFORK
        time.sleep(600)  # the child, which is a copy as by fork(), and so never lets its parent go on
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


def test_no_call_wakes_a_job(start: Starter) -> None:
    """SIGCONT is neither sent, nor arranged for by the end of a process; other signals are allowed."""
    code = f"""
import ctypes, os, signal
libc = ctypes.CDLL("libc.so.6", use_errno=True)
signal.signal(signal.SIGUSR1, lambda *_: None)
me, info = os.getpid(), ctypes.create_string_buffer(128)
handle = os.pidfd_open(me)
def tried(*words):
    ctypes.set_errno(0)
    found = libc.syscall(*[ctypes.c_long(w) if isinstance(w, int) else w for w in words])
    if found == 0 and words[0] == {NUMBERS["clone"]}:
        os._exit(0)
    print(ctypes.get_errno(), flush=True)
for number in (signal.SIGCONT, signal.SIGUSR1):
    info[0:4] = int(number).to_bytes(4, "little")
    info[8:12] = (-1 & 0xffffffff).to_bytes(4, "little")  # SI_QUEUE
    tried({NUMBERS["kill"]}, me, number)
    tried({NUMBERS["tkill"]}, me, number)
    tried({NUMBERS["tgkill"]}, me, me, number)
    tried({NUMBERS["rt_sigqueueinfo"]}, me, number, info)
    tried({NUMBERS["rt_tgsigqueueinfo"]}, me, me, number, info)
    tried({NUMBERS["pidfd_send_signal"]}, handle, number, 0, 0)
    tried({NUMBERS["clone"]}, signal.SIGCHLD if number == signal.SIGUSR1 else number, 0, 0, 0, 0)
    tried({NUMBERS["prctl"]}, 1, number, 0, 0, 0)
tried({NUMBERS["setsid"]})
"""
    facts = end_of(start(code))
    assert facts.output.split() == [str(errno.EPERM)] * 8 + ["0"] * 8 + [str(errno.EPERM)], facts


TIMERS = ("timer_create", "timerfd_create", "timerfd_settime", "setitimer", "alarm")
F_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, and the same for open file descriptions
SUBREAPER, SCHED_CORE = 36, 62


def answer(role: RoleName, machine: str, name: str, *words: int) -> int:
    """The error that a job's own filter gives a call; 0 where it is allowed or unknown to the machine."""
    job = Job(role=role, argv=[], limits=Limits(wall_s=1.0))
    if name not in numbers(machine):
        return 0
    arguments = [*words, *[0] * (6 - len(words))]
    said = bpf.run(job_filter(job, machine), bpf.AUDIT[machine], numbers(machine)[name], arguments)
    return 0 if said == bpf.ALLOW else said - bpf.ERRNO


@pytest.mark.parametrize("machine", list(bpf.AUDIT))
@pytest.mark.parametrize("role", ["build", "run", "run_jit"])
def test_what_a_role_may_not_do(role: RoleName, machine: str) -> None:
    """Its session, watches and locks; when it runs, also its group and cores, timers, and being woken."""
    known, running = numbers(machine), role != "build"
    assert answer(role, machine, "setsid") == errno.EPERM
    for name in ("inotify_init", "inotify_init1", "fanotify_init"):
        assert answer(role, machine, name) == (errno.ENOSYS if name in known else 0), name
    for name in TIMERS:
        assert answer(role, machine, name) == (errno.ENOSYS if running and name in known else 0), name
    assert answer(role, machine, "clone3") == (errno.ENOSYS if running else 0)
    for call in (
        *(("setpgid",), ("sched_setaffinity",), ("kill", 1, signal.SIGCONT), ("clone", signal.SIGCONT)),
        *(("prctl", SUBREAPER), ("prctl", SCHED_CORE), ("prctl", 1, signal.SIGCONT), ("fcntl", 0, 10)),
    ):
        assert answer(role, machine, *call) == (errno.EPERM if running else 0), call  # type: ignore[arg-type]
    locks = 0 if role == "run_jit" else errno.ENOLCK  # torch guards its compile cache with them
    assert {answer(role, machine, "fcntl", 0, command) for command in F_LOCKS} == {locks}
    assert answer(role, machine, "flock") == locks
    for command in (1024, 1026):  # F_SETLEASE, F_NOTIFY
        assert answer(role, machine, "fcntl", 0, command) == errno.EPERM
    assert answer(role, machine, "fcntl", 0, 1) == answer(role, machine, "prctl", 15) == 0


class Unstoppable(HostProcess):
    """Can be killed but not frozen."""

    def freeze(self, frozen: bool) -> float | None:
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
