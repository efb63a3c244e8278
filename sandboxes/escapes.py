"""The system calls by which a process would leave what is killed and frozen as one.

Owns: which calls those are, and a small seccomp program that refuses them. Does not own: the profile for
everything else (seccomp.py).
Invariant: what is refused here stays refused whatever program follows.

A session is killed; a process group is frozen by SIGSTOP, which takes 0.02 ms where a control group takes
2 ms and more: the judge's clock stands on it. So a job that runs may leave neither. Nor may it arrange
for SIGCONT beforehand, which wakes a stopped process (tried: by timer, and by F_SETSIG on a pipe that we
read). In a build ninja gives every compiler a process group of its own.
"""

from __future__ import annotations

import errno
import struct
from typing import Final

from sandboxes.job import Job
from sandboxes.seccomp import numbers

_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_X32: Final = 0x40000000
_F_SETSIG: Final = 10
_LOAD, _EQUAL, _AT_LEAST, _ANSWER = 0x20, 0x15, 0x35, 0x06
_KILL, _REFUSE, _ALLOW = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
_NUMBER_AT, _ARCH_AT, _SECOND_ARGUMENT_AT = 0, 4, 24  # in struct seccomp_data; the argument's lower half
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
        # The kernel reads 32 bits of this argument.
        program += [(_EQUAL, 0, 3, known["fcntl"]), (_LOAD, 0, 0, _SECOND_ARGUMENT_AT)]
        program += [(_EQUAL, 0, 1, _F_SETSIG), (_ANSWER, 0, 0, _REFUSE)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program) + then
