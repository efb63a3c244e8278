"""Our seccomp profile, and its compiler to the classic BPF program that the kernel takes.

A call answered "yes" here is answered "yes" by the engine that reads the same file, and the reverse; a rule
that the compiler cannot express exactly is refused, never approximated.

What the profile refuses beyond the engines' own list, and why: io_uring and native asynchronous I/O
(a filter does not see what is queued), every socket family but AF_UNIX, vmsplice and remap_file_pages
(rare, and often in kernel bugs), SysV and POSIX message IPC (outlives its processes where there is no
IPC namespace), sync and syncfs (one call stalls the whole host's disks), cachestat, process_madvise and
move_pages (look at, or act on, what belongs to others), terminal line disciplines.
"""

from __future__ import annotations

import errno
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.errors import SandboxError

_PROFILE: Final = Path(__file__).with_name("seccomp.json")
_NUMBERS: Final = Path(__file__).with_name("syscalls.json")
_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_ENGINE_NAMES: Final = {"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}
_SOCKETS: Final = ("socket", "socketpair", "connect")
_KNOWN_KEYS: Final = {"names", "action", "args", "errnoRet", "comment"}
_MOST_INSTRUCTIONS: Final = 4096  # BPF_MAXINSNS
_LONGEST_JUMP: Final = 255
_LOW32: Final = 0xFFFFFFFF
# linux/bpf_common.h: a 32-bit word of seccomp_data, and comparisons with a constant.
_LOAD, _AND, _JUMP, _EQUAL, _ABOVE, _AT_LEAST, _ANSWER = 0x20, 0x54, 0x05, 0x15, 0x25, 0x35, 0x06
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000  # linux/seccomp.h
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16  # offsets in struct seccomp_data

_Instruction = tuple[int, int, int, int]
_Code = list[_Instruction]


class _Condition(NamedTuple):
    argument: int
    operator: str
    value: int
    value_two: int


class _Way(NamedTuple):
    """One rule for one call: an answer, given when all conditions hold."""

    answer: int
    conditions: tuple[_Condition, ...]


def profile() -> dict[str, Any]:
    """The profile as an engine reads it."""
    found: dict[str, Any] = json.loads(_PROFILE.read_text())
    return found


def numbers(machine: str) -> dict[str, int]:
    """System call names and numbers of `machine` (as uname says it). Raises SandboxError for others."""
    if machine not in _AUDIT:
        raise SandboxError(f"no system call numbers are known for {machine}: {', '.join(_AUDIT)} only")
    found: dict[str, int] = json.loads(_NUMBERS.read_text())[machine]
    return found


def restricted(
    profile: dict[str, Any], *, also_refuse: Sequence[str] = (), sockets: bool = True
) -> dict[str, Any]:
    """A profile without `also_refuse`, and without any means to make or connect a socket unless `sockets`.

    Raises ValueError for a name that is a system call on no machine.
    """
    gone = {*also_refuse, *(() if sockets else _SOCKETS)}
    unknown = gone - {name for machine in _AUDIT for name in numbers(machine)}
    if unknown:
        raise ValueError(f"no system calls: {', '.join(sorted(unknown))}")
    rules = [{**r, "names": [n for n in r["names"] if n not in gone]} for r in profile["syscalls"]]
    return {**profile, "syscalls": [rule for rule in rules if rule["names"]]}


def without_hidden_memory(profile: dict[str, Any]) -> dict[str, Any]:
    """A profile without the calls by which a process takes memory that no watchdog sees.

    That is memory in memfds and in anonymous shared mappings (it stays after MADV_DONTNEED). Sockets and
    Landlock's rules, which take such memory too, are up to the caller.
    """
    hidden = restricted(profile, also_refuse=("memfd_create", "mmap"))
    anonymous, shared = 0x20, 0x01  # sys/mman.h; MAP_SHARED_VALIDATE has the bit of MAP_SHARED
    mappings = [
        {
            "names": ["mmap"],
            "action": "SCMP_ACT_ALLOW",
            "args": [{"index": 3, "value": bit, "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ"}],
        }
        for bit in (anonymous, shared)
    ]
    return {**hidden, "syscalls": [*hidden["syscalls"], *mappings]}


def compile_filter(
    profile: dict[str, Any], machine: str, *, also_refuse: Sequence[str] = (), sockets: bool = True
) -> bytes:
    """The program (struct sock_filter, 8 bytes each) for `machine`, as uname says it.

    A call of another ABI kills the process. A number above all that the profile names answers ENOSYS
    (x32 among them), so that programs fall back from calls newer than the profile; runc does the same.
    Raises ValueError for a profile that cannot be expressed exactly, SandboxError for an unknown machine.
    """
    known = numbers(machine)
    if _ENGINE_NAMES[machine] not in [entry["architecture"] for entry in profile["archMap"]]:
        raise ValueError(f"the profile is not for {machine}")
    if any(entry["subArchitectures"] for entry in profile["archMap"]):
        raise ValueError("a second ABI has other numbers, and no rules here")
    default = _answer(profile["defaultAction"], profile.get("defaultErrnoRet"))
    highest = max(known[n] for rule in profile["syscalls"] for n in rule["names"] if n in known)
    ways = _ways(restricted(profile, also_refuse=also_refuse, sockets=sockets), known)
    if any(len({way.answer for way in several}) > 1 for several in ways.values()):
        raise ValueError("a call with several answers: engines disagree on which one holds")

    starts, leaves = [0], [_chosen(ways.get(0, []), default)]
    for number in range(1, highest + 1):
        leaf = _chosen(ways.get(number, []), default)
        if leaf != leaves[-1]:
            starts.append(number)
            leaves.append(leaf)
    program = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_ANSWER, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_ABOVE, 0, 1, highest),
        (_ANSWER, 0, 0, _ERRNO | errno.ENOSYS),
        *_search(starts, leaves),
    ]
    if len(program) > _MOST_INSTRUCTIONS:
        raise ValueError(f"the profile takes {len(program)} instructions, the kernel {_MOST_INSTRUCTIONS}")
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _answer(action: str, error: int | None) -> int:
    if action == "SCMP_ACT_ALLOW":
        return _ALLOW
    if action == "SCMP_ACT_ERRNO":
        return _ERRNO | (errno.EPERM if error is None else error)
    raise ValueError(f"action {action} is not supported")


def _ways(profile: dict[str, Any], known: dict[str, int]) -> dict[int, list[_Way]]:
    """The rules by number. A name that this machine lacks has none."""
    ways: dict[int, list[_Way]] = {}
    for rule in profile["syscalls"]:
        if not _KNOWN_KEYS.issuperset(rule):
            raise ValueError(f"keys {sorted(set(rule) - _KNOWN_KEYS)} of a rule are not supported")
        conditions = tuple(
            _Condition(arg["index"], arg["op"], arg["value"], arg.get("valueTwo", 0))
            for arg in rule.get("args", [])
        )
        if len({c.argument for c in conditions}) < len(conditions):
            # Engines read this as "or"; two rules say so plainly.
            raise ValueError(f"two conditions on one argument of {rule['names']}")
        way = _Way(_answer(rule["action"], rule.get("errnoRet")), conditions)
        for name in rule["names"]:
            if name in known:
                ways.setdefault(known[name], []).append(way)
    return ways


def _chosen(ways: list[_Way], default: int) -> _Code:
    """Answer by the first of `ways` whose conditions hold, else by default."""
    code: _Code = [(_ANSWER, 0, 0, default)]
    for way in reversed(ways):
        body: _Code = [(_ANSWER, 0, 0, way.answer)]
        for condition in reversed(way.conditions):
            body = _test(condition, len(body)) + body
        code = body + code if way.conditions else body
    return code


def _test(condition: _Condition, skip: int) -> _Code:
    """Go on when the condition holds, else skip `skip` more instructions.

    Arguments have 64 bits and BPF words 32: the upper half decides unless it is equal.
    """
    argument, operator, value, two = condition
    if not 0 <= argument < 6 or not 0 <= value < 1 << 64 or not 0 <= two < 1 << 64:
        raise ValueError(f"no such argument or value: {condition}")
    if skip + 4 > _LONGEST_JUMP:
        raise ValueError("a rule with too many conditions")
    low: _Instruction = (_LOAD, 0, 0, _ARGS_AT + 8 * argument)  # both machines are little-endian
    high: _Instruction = (_LOAD, 0, 0, _ARGS_AT + 8 * argument + 4)
    upper, lower = value >> 32, value & _LOW32
    match operator:
        case "SCMP_CMP_EQ":
            return [high, (_EQUAL, 0, skip + 2, upper), low, (_EQUAL, 0, skip, lower)]
        case "SCMP_CMP_NE":
            return [high, (_EQUAL, 0, 2, upper), low, (_EQUAL, skip, 0, lower)]
        case "SCMP_CMP_MASKED_EQ":
            if two & ~value:
                raise ValueError(f"a comparison that can never hold: {condition}")
            wanted_upper, wanted_lower = two >> 32, two & _LOW32
            first: _Code = [high, (_AND, 0, 0, upper), (_EQUAL, 0, skip + 3, wanted_upper)]
            return [*first, low, (_AND, 0, 0, lower), (_EQUAL, 0, skip, wanted_lower)]
        case "SCMP_CMP_GE" | "SCMP_CMP_GT":
            last = _AT_LEAST if operator.endswith("GE") else _ABOVE
            head: _Code = [high, (_ABOVE, 3, 0, upper), (_EQUAL, 0, skip + 2, upper)]
            return [*head, low, (last, 0, skip, lower)]
        case "SCMP_CMP_LT" | "SCMP_CMP_LE":
            last = _AT_LEAST if operator.endswith("LT") else _ABOVE
            head = [high, (_ABOVE, skip + 3, 0, upper), (_EQUAL, 0, 2, upper)]
            return [*head, low, (last, skip, 0, lower)]
    raise ValueError(f"operator {operator} is not supported")


def _search(starts: list[int], leaves: list[_Code]) -> _Code:
    """Binary search for the leaf whose range the loaded number falls into."""
    if len(leaves) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    left = _search(starts[:middle], leaves[:middle])
    right = _search(starts[middle:], leaves[middle:])
    if len(left) <= _LONGEST_JUMP:
        return [(_AT_LEAST, len(left), 0, starts[middle]), *left, *right]
    return [(_AT_LEAST, 0, 1, starts[middle]), (_JUMP, 0, 0, len(left)), *left, *right]
