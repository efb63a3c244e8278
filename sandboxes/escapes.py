"""The system calls by which a process would leave what is killed and frozen as one.

Owns: a small seccomp program that refuses them. Does not own: the whole profile (seccomp.py).
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence

# By machine: the kernel's audit number, and the numbers of the calls.
_NUMBERS = {
    "x86_64": (0xC000003E, {"setpgid": 109, "setsid": 112, "sched_setaffinity": 203}),
    "aarch64": (0xC00000B7, {"setpgid": 154, "setsid": 157, "sched_setaffinity": 122}),
}


def refusing(names: Sequence[str], machine: str) -> bytes:
    """A program (struct sock_filter, 8 bytes each) that refuses `names`. Raises OSError."""
    if machine not in _NUMBERS:
        raise OSError(f"no system call numbers are known for {machine}")
    audit, numbers = _NUMBERS[machine]
    load, equal, at_least, answer = 0x20, 0x15, 0x35, 0x06
    kill, refuse, allow = 0x80000000, 0x00050000 | errno.EPERM, 0x7FFF0000
    program = [
        (load, 0, 0, 4),  # seccomp_data.arch: calls of another ABI have other numbers
        (equal, 1, 0, audit),
        (answer, 0, 0, kill),
        (load, 0, 0, 0),  # seccomp_data.nr
        (at_least, 0, 1, 0x40000000),  # x32
        (answer, 0, 0, kill),
    ]
    for name in names:
        program += [(equal, 0, 1, numbers[name]), (answer, 0, 0, refuse)]
    program.append((answer, 0, 0, allow))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
