"""The job of the self-test: attempts what must be refused, and reports what succeeded.

Successful attempts are undone. The attempt on memory comes last, since it may kill the job.

Usage: python -I -S selftest_job.py JSON, with secret, folder, key, port, abstract, victim, processes,
scratch_bytes, memory_bytes, channel. It prints one line per attempt: {"promise": ..., "leak": ... or null}
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_CLONE_NEWUSER = 0x10000000
_MS_BIND = 0x1000
_TRACEME = 0
_PR_GET_NO_NEW_PRIVS = 39
_IO_URING_SETUP, _FSOPEN = 425, 430  # the same on every machine
_ADD_KEY = {"x86_64": 248, "aarch64": 217}
_AF_VSOCK = 40
_SCRATCH_PIECE = 1 << 20
_MEMORY_PIECE = 64 << 20
_WATCHED_S = 0.5  # without a control group, the watchdog polls every 20 ms

_libc = ctypes.CDLL(None, use_errno=True)


def reads(spec: dict[str, Any]) -> str | None:
    with suppress(OSError), open(spec["secret"], "rb") as file:  # noqa: PTH123
        return f"read {spec['secret']}: {file.read(64).decode(errors='replace').strip()}"
    return None


def sees_keys(spec: dict[str, Any]) -> str | None:
    mark = b"sk-" + spec["key"].encode()
    for path in ["/proc/self/environ", *glob.glob("/proc/[0-9]*/environ")]:  # noqa: PTH207
        with suppress(OSError), open(path, "rb") as file:  # noqa: PTH123
            if mark in file.read(1 << 20):
                return f"a key stands in {path}"
    return None


def writes(spec: dict[str, Any]) -> str | None:
    with suppress(OSError), open(f"{spec['folder']}/written", "w"):  # noqa: PTH123
        return f"wrote to {spec['folder']}"
    return None


def _connects(family: int, address: Any) -> str | None:
    with suppress(OSError), socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(1.0)
        one.connect(address)
        one.send(b"reached")
        return "connected to a listener of the host"
    return None


def makes_sockets(spec: dict[str, Any]) -> str | None:
    for family in (_AF_VSOCK, 38):  # AF_ALG
        with suppress(OSError), socket.socket(family, socket.SOCK_STREAM if family == 40 else 5):
            return f"made a socket of family {family}"
    return None


def signals(spec: dict[str, Any]) -> str | None:
    with suppress(OSError):
        os.kill(spec["victim"], signal.SIGTERM)
        return "signalled a process outside"
    return None


def mounts(spec: dict[str, Any]) -> str | None:
    here = os.getcwd().encode()  # noqa: PTH109
    if _made(_libc.syscall(_FSOPEN, b"tmpfs", 0)):
        return "fsopen"
    if _libc.mount(here, here, None, _MS_BIND, None) == 0:
        _libc.umount2(here, 2)
        return "mounted a directory"
    return None


def uses_io_uring(spec: dict[str, Any]) -> str | None:
    made = _made(_libc.syscall(_IO_URING_SETUP, 1, ctypes.create_string_buffer(256)))
    return "made a ring" if made else None


def uses_keyrings(spec: dict[str, Any]) -> str | None:
    number = _ADD_KEY[os.uname().machine]
    added = _libc.syscall(number, b"user", b"liftbench-selftest", b"x", ctypes.c_size_t(1), -2)
    return "added a key" if added >= 0 else None


def has_privileges(spec: dict[str, Any]) -> str | None:
    if 0 in os.getresuid():
        return "runs as root"
    with open("/proc/self/status") as file:  # noqa: PTH123
        caps = [line for line in file if line.startswith(("CapEff", "CapPrm"))]
    if any(int(line.split()[1], 16) for line in caps):
        return "has capabilities"
    return None if _libc.prctl(_PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 else "no_new_privs is not set"


def inherits(spec: dict[str, Any]) -> str | None:
    for number in range(3, 1024):
        if number != spec["channel"]:
            with suppress(OSError):
                return f"descriptor {number} is {os.readlink(f'/proc/self/fd/{number}')}"  # noqa: PTH115
    return None


def forks(spec: dict[str, Any]) -> str | None:
    children: list[int] = []
    try:
        while len(children) < 3 * spec["processes"] // 2:
            child = os.fork()
            if child == 0:
                signal.pause()
                os._exit(0)
            children.append(child)
    except OSError:
        return None
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    return f"{len(children)} processes"


def fills(spec: dict[str, Any]) -> str | None:
    names: list[str] = []
    try:
        for number in range(2 * spec["scratch_bytes"] // _SCRATCH_PIECE):
            names.append(f"fill-{number}")
            with open(names[-1], "wb") as file:  # noqa: PTH123
                file.write(bytes(_SCRATCH_PIECE))
    except OSError:
        return None
    finally:
        for name in names:
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108
    return f"{len(names)} MiB in scratch"


def hoards(spec: dict[str, Any]) -> str | None:
    """More memory than allowed. Being killed for it is the expected result."""
    pieces = []
    try:
        for _ in range(2 * spec["memory_bytes"] // _MEMORY_PIECE):
            pieces.append(bytearray(b"x") * _MEMORY_PIECE)
    except MemoryError:
        return None
    time.sleep(_WATCHED_S)
    return f"{len(pieces) * (_MEMORY_PIECE >> 20)} MiB of memory"


def _made(descriptor: int) -> bool:
    if descriptor >= 0:
        os.close(descriptor)
    return descriptor >= 0


def _in_child(call: Callable[[], int], leak: str) -> str | None:
    """Namespaces and tracing cannot be undone in this process. 0 from `call` is a success."""
    child = os.fork()
    if child == 0:
        os._exit(1 if call() == 0 else 0)
    return leak if os.waitpid(child, 0)[1] == 1 << 8 else None


ATTEMPTS: dict[str, Callable[[dict[str, Any]], str | None]] = {
    "files": reads,
    "environment": sees_keys,
    "writing": writes,
    "network": lambda spec: _connects(socket.AF_INET, ("127.0.0.1", spec["port"])),
    "abstract sockets": lambda spec: _connects(socket.AF_UNIX, f"\0{spec['abstract']}"),
    "socket families": makes_sockets,
    "processes": signals,
    "namespaces": lambda spec: _in_child(lambda: _libc.unshare(_CLONE_NEWUSER), "made a user namespace"),
    "mounts": mounts,
    "io_uring": uses_io_uring,
    "keyrings": uses_keyrings,
    "tracing": lambda spec: _in_child(lambda: _libc.ptrace(_TRACEME, 0, None, None), "ptrace is open"),
    "privileges": has_privileges,
    "descriptors": inherits,
    "process limit": forks,
    "scratch limit": fills,
    "memory limit": hoards,
}


def main() -> None:
    spec = json.loads(sys.argv[1])
    spec["channel"] = int(sys.argv[2])
    for promise, attempt in ATTEMPTS.items():
        os.write(1, json.dumps({"trying": promise}).encode() + b"\n")
        try:
            leak = attempt(spec)
        except OSError as error:
            leak = f"could not be attempted: {error}"
        os.write(1, json.dumps({"promise": promise, "leak": leak}).encode() + b"\n")


if __name__ == "__main__":
    main()
