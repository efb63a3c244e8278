"""A machine for classic BPF programs as seccomp takes them, and a reader of profiles that needs none.

Both answer the same question, one from the compiled bytes and one from the JSON.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

KILL, ALLOW, ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
AUDIT = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
MOST = (1 << 64) - 1


def run(program: bytes, arch: int, number: int, args: Sequence[int]) -> int:
    """The answer to one call."""
    data = struct.pack("=IIQ6Q", number, arch, 0, *args)
    instructions = list(struct.iter_unpack("=HBBI", program))
    accumulator = at = 0
    for _ in range(len(instructions)):  # jumps only go forward
        code, yes, no, constant = instructions[at]
        at += 1
        match code:
            case 0x20:
                [accumulator] = struct.unpack_from("=I", data, constant)
            case 0x54:
                accumulator &= constant
            case 0x05:
                at += constant
            case 0x15:
                at += yes if accumulator == constant else no
            case 0x25:
                at += yes if accumulator > constant else no
            case 0x35:
                at += yes if accumulator >= constant else no
            case 0x06:
                return constant
            case _:
                raise AssertionError(f"instruction {code:#x} is not one that seccomp programs need")
    raise AssertionError("the program does not end")


def holds(condition: dict[str, Any], args: Sequence[int]) -> bool:
    """Whether a profile's condition holds, by the words of the format's description."""
    argument, value, two = args[condition["index"]], condition["value"], condition["valueTwo"]
    assert condition["op"] == "SCMP_CMP_MASKED_EQ"
    return bool(argument & value == two)


def answer(profile: dict[str, Any], numbers: dict[str, int], number: int, args: Sequence[int]) -> int:
    """What the profile says about one call."""
    if number > max(numbers[n] for rule in profile["syscalls"] for n in rule["names"] if n in numbers):
        return ERRNO | 38  # ENOSYS, so that programs fall back
    names = {name for name, its in numbers.items() if its == number}
    for rule in profile["syscalls"]:
        if names & set(rule["names"]) and all(holds(c, args) for c in rule.get("args", [])):
            return ALLOW if rule["action"] == "SCMP_ACT_ALLOW" else ERRNO | rule["errnoRet"]
    return ERRNO | int(profile["defaultErrnoRet"])
