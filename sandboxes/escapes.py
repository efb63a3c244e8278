"""The system calls by which a job would get away from being frozen, killed or undisturbing.

A small seccomp program refuses them on every backend, ahead of the profile (seccomp.py). What it refuses
stays refused whatever program follows.

Leaving what is frozen. A session is killed; a process group is frozen by SIGSTOP, which takes 0.1 to
0.3 ms where a control group takes 2 ms and more, and the judge's clock depends on it. A job that runs may
leave neither. It may not arrange for SIGCONT (by F_SETSIG on a pipe that we read, by a child's end through
clone() or PR_SET_PDEATHSIG), nor send it: two processes that wake each other in turn could each look
stopped. It stays the parent of its own orphans (inside.py makes it that), by which those are found. In a
build, ninja gives every compiler a process group of its own.

Working while frozen. SIGSTOP stops threads, not the kernel: an expired timer runs its callback in interrupt
context on the core of whoever is measured then, and wakes every epoll that watches it. So a job that runs
gets no timers that outlive a system call. Sleeps and timeouts need no rule: a thread that stops leaves its
system call, and its timer is canceled. A core-scheduling cookie slows the scheduler for all.

Holding what others use. A file that a job may only read is still the host's inode: a watch (inotify,
fanotify, F_NOTIFY) makes other processes pay for each access and uses up the user's instances; a lock or
lease keeps others out. Nobody gets those, but for locks where compilers run in the job (`run_jit`): torch
guards its cache with them.

The answer is ENOSYS for what a kernel may lack, and ENOLCK for a lock: libraries fall back on both.
"""

from __future__ import annotations

import errno
import signal
import struct
from typing import Final

from sandboxes.job import Job
from sandboxes.seccomp import numbers

_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32: Final = 0x40000000
_F_SETSIG, _F_SETLEASE, _F_NOTIFY = 10, 1024, 1026
_F_LOCKS: Final = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, and the same for open file descriptions
_PR_SET_PDEATHSIG: Final = 1
_PR_SCHED_CORE: Final = 62
_PR_SET_CHILD_SUBREAPER: Final = 36
_EXIT_SIGNAL: Final = 0xFF  # CSIGNAL in linux/sched.h: the part of clone()'s flags that is a signal
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x15, 0x35, 0x06
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
_UNKNOWN: Final = 0x00050000 | errno.ENOSYS
_NO_LOCK: Final = 0x00050000 | errno.ENOLCK
_NUMBER_AT, _ARCH_AT = 0, 4  # in struct seccomp_data
# The lower halves of arguments: the kernel reads no more of these.
_FIRST_AT, _SECOND_AT, _THIRD_AT = 16, 24, 32
_SENDING: Final = {
    "kill": _SECOND_AT,
    "tkill": _SECOND_AT,
    "tgkill": _THIRD_AT,
    "rt_sigqueueinfo": _SECOND_AT,
    "rt_tgsigqueueinfo": _THIRD_AT,
    "pidfd_send_signal": _SECOND_AT,
}
"""Where each way to send a signal has its number."""
_LEAVING: Final = ("setpgid", "sched_setaffinity")
_TIMERS: Final = ("timer_create", "timerfd_create", "timerfd_settime", "setitimer", "alarm")
_WATCHES: Final = ("inotify_init", "inotify_init1", "fanotify_init")
_ANSWERS: Final = {**dict.fromkeys(_TIMERS + _WATCHES, _UNKNOWN), "flock": _NO_LOCK}
"""Of calls that are refused otherwise than by EPERM. Not every machine has all of them."""
_Instruction = tuple[int, int, int, int]
_NOTHING_ELSE: Final = struct.pack("=HBBI", _ANSWER, 0, 0, _ALLOW)


def refused_escapes(job: Job) -> tuple[str, ...]:
    """Calls that `job` may not make, whatever their arguments."""
    running = () if job.role == "build" else (*_LEAVING, *_TIMERS)
    locks = () if job.role == "run_jit" else ("flock",)
    return ("setsid", *running, *_WATCHES, *locks)


def refusing_escapes(job: Job, machine: str, then: bytes = _NOTHING_ELSE) -> bytes:
    """A program (struct sock_filter, 8 bytes each) that refuses them, and goes on with `then`.

    Raises SandboxError for an unknown machine.
    """
    known = numbers(machine)
    program = _refused_by_name(machine, refused_escapes(job))
    for command in (_F_SETLEASE, _F_NOTIFY):
        program += _refused_when(known["fcntl"], _argument(_SECOND_AT, command))
    if job.role != "run_jit":
        for command in _F_LOCKS:
            program += _refused_when(known["fcntl"], _argument(_SECOND_AT, command), _NO_LOCK)
    if job.role != "build":
        program += _running_rules(known)
    return _packed(program) + then


def refusing_rulesets(machine: str) -> bytes:
    """A program that refuses nothing but further rules of Landlock."""
    return _packed(_refused_by_name(machine, ("landlock_create_ruleset",))) + _NOTHING_ELSE


def _packed(program: list[_Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _refused_by_name(machine: str, names: tuple[str, ...]) -> list[_Instruction]:
    """Refuses calls; the number is loaded afterwards."""
    known = numbers(machine)
    program = [
        (_LOAD, 0, 0, _ARCH_AT),  # calls of another ABI have other numbers
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_ANSWER, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_ANSWER, 0, 0, _KILL),
    ]
    for name in names:
        if name in known:
            program += [(_EQUAL, 0, 1, known[name]), (_ANSWER, 0, 0, _ANSWERS.get(name, _REFUSE))]
    return program


def _running_rules(known: dict[str, int]) -> list[_Instruction]:
    """What a job that runs may not ask of calls that it may make."""
    wakes_parent = [(_LOAD, 0, 0, _FIRST_AT), (_AND, 0, 0, _EXIT_SIGNAL), (_EQUAL, 0, 1, signal.SIGCONT)]
    wakes_child = [*_argument(_FIRST_AT, _PR_SET_PDEATHSIG, 3), *_argument(_SECOND_AT, signal.SIGCONT)]
    rules = [
        ("fcntl", _argument(_SECOND_AT, _F_SETSIG)),
        ("clone", wakes_parent),
        ("prctl", wakes_child),
        ("prctl", _argument(_FIRST_AT, _PR_SET_CHILD_SUBREAPER)),
        ("prctl", _argument(_FIRST_AT, _PR_SCHED_CORE)),
        *((name, _argument(at, signal.SIGCONT)) for name, at in _SENDING.items()),
    ]
    program = [one for name, test in rules for one in _refused_when(known[name], test)]
    # Its flags lie in memory, where no filter sees them; C libraries then take clone().
    return [*program, (_EQUAL, 0, 1, known["clone3"]), (_ANSWER, 0, 0, _UNKNOWN)]


def _argument(at: int, value: int, otherwise: int = 1) -> list[_Instruction]:
    """Falls through when the argument is `value`, else skips `otherwise` instructions."""
    return [(_LOAD, 0, 0, at), (_EQUAL, 0, otherwise, value)]


def _refused_when(number: int, test: list[_Instruction], answer: int = _REFUSE) -> list[_Instruction]:
    """Refuses a call when `test` falls through, which else jumps to just behind its end's next instruction.

    The number is loaded before and after.
    """
    return [(_EQUAL, 0, len(test) + 2, number), *test, (_ANSWER, 0, 0, answer), (_LOAD, 0, 0, _NUMBER_AT)]
