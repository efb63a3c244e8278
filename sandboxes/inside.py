"""The first program in every sandbox: restricts itself, reports that it is ready, and becomes the job.

On any failure it exits with one line on stderr; it never runs the job with fewer restrictions than requested.
No student file is present until the job's argv arrives. Standard library only: it runs as a script.

Usage: python -I -S inside.py SPEC_JSON, with
  channel      number of an inherited SEQPACKET socket, or the path of one to connect to
  scratch      the private, writable directory
  counted      other writable file systems in memory
  environment  the job's whole environment
  limits       {cpu_s, file_bytes, address_bytes, processes}, None for none
  landlock     [[right, directory, [name, ...]], ...] or None; see confine()
  seccomp      base64 of a BPF program
  reaps        whether to become the subreaper of orphans
  die_with_parent, preload, site
Messages: sends {"ready": true} with descriptors of the scratch directory and of `counted`; receives
{"argv": [...]} with two descriptors: one for an error message if the start fails, and one for stdout and
stderr.
"""

from __future__ import annotations

import binascii
import ctypes
import json
import os
import resource
import socket
import stat
import struct
import sys
import types
from typing import Any

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_PR_SET_CHILD_SUBREAPER = 36
_SIGKILL = 9
_MESSAGE_BYTES = 1 << 17
_OPEN_FILES = 1024
# Landlock's system calls have the same numbers on every machine.
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_LANDLOCK_VERSION = 1
_LANDLOCK_PATH_BENEATH = 1
# linux/landlock.h: rights by the version of the interface that introduced them.
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_ALL_FILES = ((1, (1 << 13) - 1), (2, 1 << 13), (3, 1 << 14), (5, 1 << 15))  # refer, truncate, ioctl
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_ONLY_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | (1 << 14) | (1 << 15)
_DEVICE = _READ_FILE | _WRITE_FILE | (1 << 15)
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def _limit(kind: int, value: int | None, grace: int = 0) -> None:
    """`grace`: distance of the hard limit, above the soft one that only sends a signal."""
    if value is None:
        return
    hard = resource.getrlimit(kind)[1]
    if hard != resource.RLIM_INFINITY:
        value = min(value, hard)
    most = value + grace if hard == resource.RLIM_INFINITY else min(value + grace, hard)
    resource.setrlimit(kind, (value, most))


def set_limits(limits: dict[str, int | None]) -> None:
    _limit(resource.RLIMIT_CPU, limits["cpu_s"], grace=1)  # so that SIGXCPU comes before SIGKILL
    _limit(resource.RLIMIT_FSIZE, limits["file_bytes"])
    _limit(resource.RLIMIT_AS, limits["address_bytes"])
    _limit(resource.RLIMIT_NPROC, limits["processes"])
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_NOFILE, _OPEN_FILES)
    _limit(resource.RLIMIT_RTPRIO, 0)
    _limit(resource.RLIMIT_NICE, 0)


def landlock_version() -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    found: int = libc.syscall(_LANDLOCK_CREATE, None, ctypes.c_size_t(0), _LANDLOCK_VERSION)
    return max(0, found)


def confine(rules: list[tuple[str, str, list[str]]], libc: ctypes.CDLL) -> None:
    """Landlock: only `rules` of the file system, no network, no signals to other processes.

    A rule is a right for names in a directory ("" for itself) and everything below: `read` (and execute),
    `list` (names only), `device` or `write` (all rights). Needs no_new_privs. Raises OSError.
    """
    version = landlock_version()
    if version < 1:
        raise OSError("this kernel has no Landlock")
    handled = sum(rights for since, rights in _ALL_FILES if version >= since)
    network = 3 if version >= _NETWORK_SINCE else 0  # bind and connect TCP
    scopes = 3 if version >= _SCOPES_SINCE else 0  # abstract unix sockets, signals
    attributes = struct.pack("=QQQ", handled, network, scopes)
    size = 24 if version >= _SCOPES_SINCE else 16 if version >= _NETWORK_SINCE else 8
    ruleset = _check(libc.syscall(_LANDLOCK_CREATE, attributes, ctypes.c_size_t(size), 0), "landlock")
    rights = {"read": _READ, "list": _READ_DIR, "device": _DEVICE, "write": handled}
    for right, directory, names in rules:
        for name in names:
            _allow(libc, ruleset, f"{directory}/{name}", rights[right] & handled)
    _check(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, granted: int) -> None:
    """Add one rule; files accept only the rights of files."""
    place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(place).st_mode):
            granted &= _ONLY_FILES
        rule = struct.pack("=Qi", granted, place)
        added = libc.syscall(_LANDLOCK_ADD, ruleset, _LANDLOCK_PATH_BENEATH, rule, 0)
        _check(added, f"landlock rule for {path}")
    finally:
        os.close(place)


def install_filter(program: bytes, libc: ctypes.CDLL) -> None:
    """Install a seccomp program (struct sock_filter, 8 bytes each). Needs no_new_privs."""
    code = ctypes.create_string_buffer(program, len(program))
    head = struct.pack("@HP", len(program) // 8, ctypes.addressof(code))
    _check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, head, 0, 0), "seccomp")


def restrict(spec: dict[str, Any]) -> None:
    """Limits, no new privileges, Landlock, seccomp; in this order, since each may forbid the ones before."""
    libc = ctypes.CDLL(None, use_errno=True)
    set_limits(spec["limits"])
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    if spec["die_with_parent"]:
        # After any change of user, which clears it.
        _check(libc.prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0), "pdeathsig")
    os.umask(0o077)
    if spec["landlock"] is not None:
        confine(spec["landlock"], libc)
    if spec["reaps"]:  # freezing finds orphans as our children; bwrap has its own init
        _check(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "subreaper")
    install_filter(binascii.a2b_base64(spec["seccomp"]), libc)


def connected(channel: str) -> socket.socket:
    if channel.isdigit():
        return socket.socket(fileno=int(channel))
    found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    found.connect(channel)
    return found


def send_ready(channel: socket.socket, scratch: str, counted: list[str]) -> None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    directories = [os.open(path, flags) for path in (scratch, *counted)]
    socket.send_fds(channel, [b'{"ready": true}'], directories)
    for directory in directories:
        os.close(directory)


def receive_job(channel: socket.socket) -> tuple[dict[str, Any], int, int]:
    """The order, and the descriptors for failures and for output; exits when the channel closes."""
    data, descriptors, _, _ = socket.recv_fds(channel, _MESSAGE_BYTES, 2)
    if not data:
        os._exit(0)  # a warm process that was not needed
    failures, output = descriptors
    os.set_inheritable(failures, False)  # its end says that the job has started
    return json.loads(data), failures, output


def run_here(argv: list[str], failures: int) -> None:
    """Run argv's script in this interpreter, which has imported `preload`."""
    with open(argv[3], "rb") as file:  # noqa: PTH123
        code = compile(file.read(), argv[3], "exec")
    sys.argv[:] = argv[3:]
    main = types.ModuleType("__main__")
    main.__file__ = argv[3]
    sys.modules["__main__"] = main
    os.close(failures)
    exec(code, main.__dict__)


def prepare(spec: dict[str, Any]) -> socket.socket:
    scratch = spec["scratch"]
    spec["environment"] = {k: v.replace("{scratch}", scratch) for k, v in spec["environment"].items()}
    channel = connected(spec["channel"])
    os.chdir(scratch)
    restrict(spec)
    if spec["preload"]:
        os.environ.clear()
        os.environ.update(spec["environment"])
        sys.path += spec["site"]
        for module in spec["preload"]:
            __import__(module)
    return channel


def main() -> None:
    failures = 2
    try:
        spec = json.loads(sys.argv[1])
        channel = prepare(spec)
        send_ready(channel, spec["scratch"], spec["counted"])
        order, failures, output = receive_job(channel)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        number = str(channel.fileno())
        argv = [
            word.replace("{scratch}", spec["scratch"]).replace("{channel}", number) for word in order["argv"]
        ]
        if not spec["preload"]:
            os.set_inheritable(channel.fileno(), True)
            os.execve(argv[0], argv, spec["environment"])
        channel.detach()
    except (OSError, ImportError, ValueError) as error:
        os.write(failures, f"{type(error).__name__}: {error}\n".encode())
        os._exit(1)
    run_here(argv, failures)


if __name__ == "__main__":
    main()
