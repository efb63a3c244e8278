"""The system calls by which a process would leave what is killed and frozen as one.

Owns: which calls those are, and a small seccomp program that refuses them. Does not own: the profile for
everything else (seccomp.py).
Invariant: what is refused here stays refused whatever program follows.

A session is killed; a process group is frozen by SIGSTOP, which takes 0.1 to 0.3 ms where a control group
takes 2 ms and more: the judge's clock stands on it. So a job that runs may leave neither. Nor may it arrange
for SIGCONT beforehand, which wakes a stopped process (tried: by timer, by F_SETSIG on a pipe that we
read, and by the end of a process: one with much memory takes so long to end that it ends while the others
stand still, and its parent gets the signal that clone() named, its children the one that they asked for).
Nor may it send SIGCONT: two processes that wake each other in turn could each look stopped. And it stays
its own orphans' parent (inside.py makes it that), by which those are found in time.
In a build ninja gives every compiler a process group of its own.
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
_F_SETSIG: Final = 10
_PR_SET_PDEATHSIG: Final = 1
_PR_SET_CHILD_SUBREAPER: Final = 36
_EXIT_SIGNAL: Final = 0xFF  # CSIGNAL in linux/sched.h: the part of clone()'s flags that is a signal
_LOAD, _AND, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x15, 0x35, 0x06
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
_UNKNOWN: Final = 0x00050000 | errno.ENOSYS
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
_NOTHING_ELSE: Final = struct.pack("=HBBI", _ANSWER, 0, 0, _ALLOW)


def refused_escapes(job: Job) -> tuple[str, ...]:
    """Calls that `job` may not make."""
    return ("setsid",) if job.role == "build" else ("setsid", "setpgid", "sched_setaffinity", "timer_create")


def refusing_escapes(job: Job, machine: str, then: bytes = _NOTHING_ELSE) -> bytes:
    """A program (struct sock_filter, 8 bytes each) that refuses them, and goes on with `then`.

    Raises SandboxError for an unknown machine.
    """
    known = numbers(machine)
    program = [
        (_LOAD, 0, 0, _ARCH_AT),  # calls of another ABI have other numbers
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_ANSWER, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_ANSWER, 0, 0, _KILL),
    ]
    for name in refused_escapes(job):
        program += [(_EQUAL, 0, 1, known[name]), (_ANSWER, 0, 0, _REFUSE)]
    if job.role != "build":
        is_setsig = [(_LOAD, 0, 0, _SECOND_AT), (_EQUAL, 0, 1, _F_SETSIG)]
        wakes_parent = [(_LOAD, 0, 0, _FIRST_AT), (_AND, 0, 0, _EXIT_SIGNAL), (_EQUAL, 0, 1, signal.SIGCONT)]
        wakes_child = [(_LOAD, 0, 0, _FIRST_AT), (_EQUAL, 0, 3, _PR_SET_PDEATHSIG)]
        wakes_child += [(_LOAD, 0, 0, _SECOND_AT), (_EQUAL, 0, 1, signal.SIGCONT)]
        program += _refused_when(known["fcntl"], is_setsig)
        program += _refused_when(known["clone"], wakes_parent)
        program += _refused_when(known["prctl"], wakes_child)
        no_reaper = [(_LOAD, 0, 0, _FIRST_AT), (_EQUAL, 0, 1, _PR_SET_CHILD_SUBREAPER)]
        program += _refused_when(known["prctl"], no_reaper)
        for name, at in _SENDING.items():
            program += _refused_when(known[name], [(_LOAD, 0, 0, at), (_EQUAL, 0, 1, signal.SIGCONT)])
        # Its flags lie in memory, where no filter sees them; C libraries then take clone().
        program += [(_EQUAL, 0, 1, known["clone3"]), (_ANSWER, 0, 0, _UNKNOWN)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program) + then


def _refused_when(number: int, test: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Refuses a call when `test` falls through, which else jumps to just behind its end's next instruction.

    The number is loaded before and after.
    """
    return [(_EQUAL, 0, len(test) + 2, number), *test, (_ANSWER, 0, 0, _REFUSE), (_LOAD, 0, 0, _NUMBER_AT)]
