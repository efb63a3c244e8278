"""Seccomp filters: our profile compiled to the classic BPF program that the kernel takes, and job filters.

`compile_filter` answers every call as a container engine does with the same profile. Beyond the engines'
default list, the profile refuses io_uring and AIO (a filter does not see what is queued), every socket family
but AF_UNIX, vmsplice and remap_file_pages (often in kernel bugs), SysV and POSIX message IPC (outlives its
processes), sync and syncfs (stall the host's disks), and calls that act on other processes.

`job_filter` is installed before the profile on every backend. It stops:
- Escaping a freeze or a kill. A session is killed and a process group is frozen, so a running job may leave
  neither. It may not send or arrange for SIGCONT: two processes that wake each other in turn could each look
  stopped. It stays the subreaper of its orphans, by which those are found.
- Working while frozen. SIGSTOP stops threads, not timers of the kernel, which run on the core of whoever is
  measured then. A core-scheduling cookie slows down the scheduler for everybody.
- Holding shared resources. Watches of the host's files make other processes pay for each access, and locks
  and leases keep others out. Locks are allowed in `run_jit`: torch guards its compile cache with them.

The answer is ENOSYS for calls that a kernel may lack, and ENOLCK for locks: libraries fall back on both.
"""

from __future__ import annotations

import errno
import json
import signal
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.errors import SandboxError
from sandboxes.job import Job

_PROFILE: Final = Path(__file__).with_name("seccomp.json")
_NUMBERS: Final = Path(__file__).with_name("syscalls.json")
_AUDIT: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h
_SOCKETS: Final = ("socket", "socketpair", "connect")
_MAX_JUMP: Final = 255
_LOW32: Final = 0xFFFFFFFF
_X32: Final = 0x40000000
# linux/bpf_common.h: a 32-bit word of seccomp_data, and comparisons with a constant.
_LOAD, _AND, _JUMP, _EQUAL, _ABOVE, _AT_LEAST, _RETURN = 0x20, 0x54, 0x05, 0x15, 0x25, 0x35, 0x06
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000  # linux/seccomp.h
_NUMBER_AT, _ARCH_AT, _ARGS_AT = 0, 4, 16  # offsets in struct seccomp_data
# The lower halves of arguments, of which the kernel reads no more in the calls below.
_FIRST_AT, _SECOND_AT, _THIRD_AT = 16, 24, 32
_EPERM, _ENOSYS, _ENOLCK = (_ERRNO | number for number in (errno.EPERM, errno.ENOSYS, errno.ENOLCK))

_F_SETSIG, _F_SETLEASE, _F_NOTIFY = 10, 1024, 1026
_F_LOCKS: Final = (6, 7, 37, 38)  # F_SETLK, F_SETLKW, and the same for open file descriptions
_PR_SET_PDEATHSIG: Final = 1
_PR_SCHED_CORE: Final = 62
_PR_SET_CHILD_SUBREAPER: Final = 36
_CLONE_EXIT_SIGNAL: Final = 0xFF  # CSIGNAL in linux/sched.h
_SIGNAL_ARGUMENT: Final = {
    "kill": _SECOND_AT,
    "tkill": _SECOND_AT,
    "tgkill": _THIRD_AT,
    "rt_sigqueueinfo": _SECOND_AT,
    "rt_tgsigqueueinfo": _THIRD_AT,
    "pidfd_send_signal": _SECOND_AT,
}
_LEAVING: Final = ("setpgid", "sched_setaffinity")
_TIMERS: Final = ("timer_create", "timerfd_create", "timerfd_settime", "setitimer", "alarm")
_WATCHES: Final = ("inotify_init", "inotify_init1", "fanotify_init")
_ANSWERS: Final = {**dict.fromkeys(_TIMERS + _WATCHES, _ENOSYS), "flock": _ENOLCK}
"""Answers other than EPERM."""

_Instruction = tuple[int, int, int, int]
_Code = list[_Instruction]


class _Rule(NamedTuple):
    answer: int
    conditions: Sequence[Mapping[str, Any]]
    """In the profile's words, all with the operator SCMP_CMP_MASKED_EQ."""


def _packed(code: _Code) -> bytes:
    """struct sock_filter, 8 bytes each."""
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


_ALLOW_ALL: Final = _packed([(_RETURN, 0, 0, _ALLOW)])


def profile() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(_PROFILE.read_text())
    return found


def numbers(machine: str) -> dict[str, int]:
    """System call numbers of `machine` (as in uname). Raises SandboxError for an unknown one."""
    if machine not in _AUDIT:
        raise SandboxError(f"no system call numbers are known for {machine}: {', '.join(_AUDIT)} only")
    found: dict[str, int] = json.loads(_NUMBERS.read_text())[machine]
    return found


def restricted(
    profile: dict[str, Any], *, also_refuse: Sequence[str] = (), sockets: bool = True
) -> dict[str, Any]:
    """A profile without `also_refuse`, and without sockets unless `sockets`.

    Raises ValueError for a name that is a system call on no machine.
    """
    gone = {*also_refuse, *(() if sockets else _SOCKETS)}
    unknown = gone - {name for machine in _AUDIT for name in numbers(machine)}
    if unknown:
        raise ValueError(f"no system calls: {', '.join(sorted(unknown))}")
    rules = [{**r, "names": [n for n in r["names"] if n not in gone]} for r in profile["syscalls"]]
    return {**profile, "syscalls": [rule for rule in rules if rule["names"]]}


def without_hidden_memory(profile: dict[str, Any]) -> dict[str, Any]:
    """A profile without memory that the watchdog cannot see: memfds and anonymous shared mappings.

    Sockets and Landlock rules, which use such memory too, are the caller's concern.
    """
    hidden = restricted(profile, also_refuse=("memfd_create", "mmap"))
    anonymous, shared = 0x20, 0x01  # sys/mman.h; MAP_SHARED_VALIDATE includes the bit of MAP_SHARED
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
    """The program for `machine` (as in uname).

    A call of another ABI kills the process. Numbers above all that the profile names answer ENOSYS (x32
    included), as with runc. Raises ValueError for a profile that cannot be expressed exactly.
    """
    known = numbers(machine)
    default = _answer(profile["defaultAction"], profile.get("defaultErrnoRet"))
    highest = max(known[n] for rule in profile["syscalls"] for n in rule["names"] if n in known)
    rules = _rules(restricted(profile, also_refuse=also_refuse, sockets=sockets), known)
    if any(len({rule.answer for rule in several}) > 1 for several in rules.values()):
        raise ValueError("a call with several answers: engines disagree on which one holds")

    starts, leaves = [0], [_leaf(rules.get(0, []), default)]
    for number in range(1, highest + 1):
        leaf = _leaf(rules.get(number, []), default)
        if leaf != leaves[-1]:
            starts.append(number)
            leaves.append(leaf)
    program = [
        (_LOAD, 0, 0, _ARCH_AT),
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_ABOVE, 0, 1, highest),
        (_RETURN, 0, 0, _ENOSYS),
        *_search(starts, leaves),
    ]
    return _packed(program)


def _answer(action: str, error: int | None) -> int:
    if action == "SCMP_ACT_ALLOW":
        return _ALLOW
    if action == "SCMP_ACT_ERRNO":
        return _ERRNO | (errno.EPERM if error is None else error)
    raise ValueError(f"action {action} is not supported")


def _rules(profile: dict[str, Any], known: dict[str, int]) -> dict[int, list[_Rule]]:
    rules: dict[int, list[_Rule]] = {}
    for entry in profile["syscalls"]:
        if unknown := set(entry) - {"names", "action", "args", "errnoRet", "comment"}:
            raise ValueError(f"keys {sorted(unknown)} of a rule are not supported")
        conditions = entry.get("args", [])
        if others := {c["op"] for c in conditions} - {"SCMP_CMP_MASKED_EQ"}:
            raise ValueError(f"operators {sorted(others)} are not supported")
        if len({c["index"] for c in conditions}) < len(conditions):
            # Engines read this as "or"; two rules say so plainly.
            raise ValueError(f"two conditions on one argument of {entry['names']}")
        rule = _Rule(_answer(entry["action"], entry.get("errnoRet")), conditions)
        for name in entry["names"]:
            if name in known:
                rules.setdefault(known[name], []).append(rule)
    return rules


def _leaf(rules: list[_Rule], default: int) -> _Code:
    code: _Code = [(_RETURN, 0, 0, default)]
    for rule in reversed(rules):
        body: _Code = [(_RETURN, 0, 0, rule.answer)]
        for condition in reversed(rule.conditions):
            body = _test(condition, len(body)) + body
        code = body + code if rule.conditions else body
    return code


def _test(condition: Mapping[str, Any], skip: int) -> _Code:
    """Continue when the condition holds, else skip `skip` more instructions.

    Arguments have 64 bits and BPF words 32: both halves are compared.
    """
    low = _ARGS_AT + 8 * condition["index"]  # both machines are little-endian
    mask, wanted = condition["value"], condition.get("valueTwo", 0)
    return [
        (_LOAD, 0, 0, low + 4),
        (_AND, 0, 0, mask >> 32),
        (_EQUAL, 0, skip + 3, wanted >> 32),
        (_LOAD, 0, 0, low),
        (_AND, 0, 0, mask & _LOW32),
        (_EQUAL, 0, skip, wanted & _LOW32),
    ]


def _search(starts: list[int], leaves: list[_Code]) -> _Code:
    if len(leaves) == 1:
        return leaves[0]
    middle = len(leaves) // 2
    left = _search(starts[:middle], leaves[:middle])
    right = _search(starts[middle:], leaves[middle:])
    if len(left) <= _MAX_JUMP:
        return [(_AT_LEAST, len(left), 0, starts[middle]), *left, *right]
    return [(_AT_LEAST, 0, 1, starts[middle]), (_JUMP, 0, 0, len(left)), *left, *right]


def refused_calls(job: Job) -> tuple[str, ...]:
    """Calls that `job` may not make, whatever their arguments."""
    running = () if job.role == "build" else (*_LEAVING, *_TIMERS)
    locks = () if job.role == "run_jit" else ("flock",)
    return ("setsid", *running, *_WATCHES, *locks)


def job_filter(job: Job, machine: str, then: bytes = _ALLOW_ALL) -> bytes:
    """The program of a job's role, which continues with `then`. Raises SandboxError."""
    known = numbers(machine)
    code = _refuse_names(machine, refused_calls(job))
    for command in (_F_SETLEASE, _F_NOTIFY):
        code += _refuse_when(known["fcntl"], _argument_is(_SECOND_AT, command))
    if job.role != "run_jit":
        for command in _F_LOCKS:
            code += _refuse_when(known["fcntl"], _argument_is(_SECOND_AT, command), _ENOLCK)
    if job.role != "build":
        code += _running_rules(known)
    return _packed(code) + then


def ruleset_filter(machine: str) -> bytes:
    return _packed(_refuse_names(machine, ("landlock_create_ruleset",))) + _ALLOW_ALL


def _refuse_names(machine: str, names: tuple[str, ...]) -> _Code:
    """Refuses calls by name; the number is loaded afterwards."""
    known = numbers(machine)
    code = [
        (_LOAD, 0, 0, _ARCH_AT),  # calls of another ABI have other numbers
        (_EQUAL, 1, 0, _AUDIT[machine]),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER_AT),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
    ]
    for name in names:
        if name in known:
            code += [(_EQUAL, 0, 1, known[name]), (_RETURN, 0, 0, _ANSWERS.get(name, _EPERM))]
    return code


def _running_rules(known: dict[str, int]) -> _Code:
    """Arguments that a running job may not pass to calls that it may make."""
    wakes_parent = [
        (_LOAD, 0, 0, _FIRST_AT),
        (_AND, 0, 0, _CLONE_EXIT_SIGNAL),
        (_EQUAL, 0, 1, signal.SIGCONT),
    ]
    wakes_child = [*_argument_is(_FIRST_AT, _PR_SET_PDEATHSIG, 3), *_argument_is(_SECOND_AT, signal.SIGCONT)]
    rules = [
        ("fcntl", _argument_is(_SECOND_AT, _F_SETSIG)),
        ("clone", wakes_parent),
        ("prctl", wakes_child),
        ("prctl", _argument_is(_FIRST_AT, _PR_SET_CHILD_SUBREAPER)),
        ("prctl", _argument_is(_FIRST_AT, _PR_SCHED_CORE)),
        *((name, _argument_is(at, signal.SIGCONT)) for name, at in _SIGNAL_ARGUMENT.items()),
    ]
    code = [one for name, test in rules for one in _refuse_when(known[name], test)]
    # clone3's flags lie in memory, where no filter sees them; C libraries then use clone().
    return [*code, (_EQUAL, 0, 1, known["clone3"]), (_RETURN, 0, 0, _ENOSYS)]


def _argument_is(at: int, value: int, skip: int = 1) -> _Code:
    """Continues when the argument is `value`, else skips `skip` instructions."""
    return [(_LOAD, 0, 0, at), (_EQUAL, 0, skip, value)]


def _refuse_when(number: int, test: _Code, answer: int = _EPERM) -> _Code:
    """Refuses a call when `test` continues; otherwise `test` skips the answer.

    The number is loaded before and after.
    """
    return [(_EQUAL, 0, len(test) + 2, number), *test, (_RETURN, 0, 0, answer), (_LOAD, 0, 0, _NUMBER_AT)]
