"""What would wake a stopped process, or take it out of its group: refused to jobs that run."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator

import pytest

from sandboxes.bubblewrap import BubblewrapBackend
from sandboxes.job import Backend, Job, Limits, RoleName
from sandboxes.landlock import LandlockBackend
from sandboxes.local import LocalBackend
from sandboxes.seccomp import job_filter, numbers, refused_calls
from tests.sandboxes.behaviours import Starter, awaited, content, end_of

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


@pytest.fixture(params=[LocalBackend, LandlockBackend, BubblewrapBackend], ids=lambda kind: str(kind.name))
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each backend that freezes by signal."""
    made = request.param()
    reason = made.unavailable() if hasattr(made, "unavailable") else None
    if reason is not None:
        pytest.skip(reason)
    yield made


def test_a_frozen_job_cannot_wake_itself(start: Starter) -> None:
    """Neither a timer nor a pipe that we read sends SIGCONT to a job that stands still."""
    process = start(WAKES_ITSELF, output_bytes=1 << 30)
    awaited(process, "counter")
    process.pause(True)
    before = content(process, "counter")
    assert process.wait(0.5) is None
    assert content(process, "counter") == before
    process.pause(False)


def test_a_frozen_job_stands_still_while_its_first_thread_waits(start: Starter) -> None:
    """A first thread in vfork(), which no signal but a deadly one ends, does not let the others run on."""
    clone = numbers(os.uname().machine)["clone"]
    code = f"""
import ctypes, os, signal, threading
libc = ctypes.CDLL("libc.so.6")
def count():
    while True:
        with open("new", "w") as file:
            file.write(str(os.times().elapsed))
        os.rename("new", "counter")
        if open("/proc/self/stat").read().rpartition(")")[2].split()[0] == "D":
            open("waits", "w").close()  # its copy, as by fork(), stands before Python's lock for ever
threading.Thread(target=count).start()
libc.syscall({clone}, ctypes.c_long(0x4000 | signal.SIGCHLD), 0, 0, 0, 0)  # CLONE_VFORK
"""
    process = start(code)
    awaited(process, "waits")
    process.pause(True)
    before = content(process, "counter")
    assert process.wait(0.5) is None
    assert content(process, "counter") == before
    process.pause(False)


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


@pytest.mark.parametrize("role", ["run", "run_jit"])
def test_a_job_that_runs_has_no_timer_that_outlives_a_call(start: Starter, role: RoleName) -> None:
    """What expires while all threads stand is answered like a call that this kernel lacks; waiting works."""
    code = """
import ctypes, errno, fcntl, os, select, signal, threading, time
libc = ctypes.CDLL("libc.so.6", use_errno=True)
def tried(found):
    print(errno.errorcode[ctypes.get_errno()] if found < 0 else "made")
later = (ctypes.c_long * 4)(0, 0, 60, 0)
tried(libc.timerfd_create(1, 0))
tried(libc.timer_create(1, (ctypes.c_int * 16)(0, 0, 0, 1), ctypes.byref(ctypes.c_void_p())))
for kind in range(3):
    tried(libc.setitimer(kind, later, None))
signal.alarm(60)
print(signal.getitimer(signal.ITIMER_REAL))
tried(libc.inotify_init())
tried(libc.syscall(ctypes.c_long(FANOTIFY), ctypes.c_long(0x200), 0))
tried(libc.fcntl(os.open(".", os.O_RDONLY), 1026, ctypes.c_long(1)))
tried(libc.prctl(62, 1, 0, 0, 0))
time.sleep(0.01)
select.poll().poll(10)
select.epoll().poll(0.01)
print(threading.Event().wait(0.01))
""".replace("FANOTIFY", str(numbers(os.uname().machine)["fanotify_init"]))
    lacking = ["ENOSYS"] * 5 + ["(0.0,", "0.0)"] + ["ENOSYS"] * 2
    assert end_of(start(code, role=role)).output.split() == [*lacking, "EPERM", "EPERM", "False"]


@pytest.mark.parametrize(("role", "locks"), [("build", False), ("run", False), ("run_jit", True)])
def test_only_jobs_that_compile_as_they_run_lock(start: Starter, role: RoleName, locks: bool) -> None:
    """A lock on a file that is only read keeps others out of it; torch guards its cache by locks."""
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


def test_a_build_may_have_process_groups(start: Starter) -> None:
    """Ninja gives every compiler one; a session of its own is refused there too."""
    code = """
import os
if os.fork() == 0:
    os.setpgid(0, 0)
    os._exit(7)
pid, status = os.wait()
print(os.waitstatus_to_exitcode(status), flush=True)
if os.fork() == 0:
    try:
        os.setsid()
    except PermissionError:
        print("refused")
    raise SystemExit
os.wait()
"""
    assert end_of(start(code, role="build")).output.split() == ["7", "refused"]


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_programs_are_whole(machine: str) -> None:
    """Every call is in the program by its number, and what follows comes last."""
    for role in ("build", "run", "run_jit"):
        job = Job(role=role, argv=[], limits=Limits(wall_s=1.0))
        program = job_filter(job, machine, b"12345678")
        assert len(program) % 8 == 0
        assert program.endswith(b"12345678")
        compared = {int.from_bytes(program[i + 4 : i + 8], "little") for i in range(0, len(program), 8)}
        known = numbers(machine)
        assert {known[name] for name in refused_calls(job) if name in known} <= compared
