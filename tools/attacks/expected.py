"""Expected results: every attack is held on every backend, except the holes listed here.

An unlisted hole fails the suite, and so does a listed one that is closed, unless it depends on the machine
(`may`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Column = Literal[
    "docker", "bubblewrap", "bubblewrap as user", "landlock", "landlock as user", "local", "local as user"
]
"""A backend, and whether liftbench itself runs as a plain user."""
COLUMNS: Final[tuple[Column, ...]] = (
    "docker",
    "bubblewrap",
    "bubblewrap as user",
    "landlock",
    "landlock as user",
    "local",
    "local as user",
)


@dataclass(frozen=True)
class Hole:
    """An attack that succeeds."""

    reason: str
    may: bool = False
    """It depends on the machine (devices, kernel settings): both results are expected."""


def _may(reason: str) -> Hole:
    return Hole(reason, may=True)


_FILES: Final = Hole("the file system is the host's")
_NETWORK: Final = Hole("the network is the host's")
_KERNEL: Final = _may("no filter on system calls; the kernel's settings decide")
_SAME_USER: Final = Hole("the job's user is yours")
_NO_QUOTA: Final = Hole("scratch is an ordinary directory: only single files are limited")
_UNSEEN: Final = Hole("the watchdog sees mapped memory only")
_NOT_MEDIATED: Final = Hole("Landlock does not mediate it, and the job's user is yours")

_LOCAL: Final[dict[str, Hole]] = {
    "write_beside": _FILES,
    "write_tmp": _FILES,
    "write_dev_shm": _FILES,
    "read_public": _FILES,
    "read_harness": _may("the file system is the host's"),
    "read_tasks": _FILES,
    "read_kernel_log": _KERNEL,
    "read_command_lines": Hole("processes of the host are visible"),
    "ipc_sysv": _FILES,
    "ipc_leftover": Hole("System V memory lives until somebody removes it"),
    "net_tcp4": _NETWORK,
    "net_tcp6": _may("the network is the host's"),
    "net_udp": _NETWORK,
    "net_route": _may("the network is the host's"),
    "net_raw": _KERNEL,
    "net_abstract": _NETWORK,
    "net_unix_path": _FILES,
    "net_netlink": _may("the network is the host's"),
    "net_netlink_socket": _NETWORK,
    "net_vsock": _KERNEL,
    "net_alg": _KERNEL,
    "net_bluetooth": _KERNEL,
    "net_rare_families": _KERNEL,
    "device_open_ones": _may("device nodes are the host's"),
    "device_disks": _may("device nodes are the host's"),
    "device_gpu": _may("device nodes are the host's"),
    "userns_unshare": _KERNEL,
    "userns_clone": _KERNEL,
    "kcmp": _KERNEL,
    "ptrace_child": Hole("no filter on system calls"),
    "io_uring": _KERNEL,
    "keyring": _KERNEL,
    "memfd_secret": _KERNEL,
    "perf": _KERNEL,
    "bpf": _KERNEL,
    "personality": Hole("no filter on system calls"),
    "userfaultfd": _KERNEL,
    "pressure": _KERNEL,
    "disk_bomb": _NO_QUOTA,
    "disk_elsewhere": _may("the file system is the host's"),
    "inode_bomb": _NO_QUOTA,
    "inodes_elsewhere": _may("the file system is the host's"),
    "memory_unmapped": _UNSEEN,
    "memory_shared_unmapped": _UNSEEN,
    "memory_sockets": _UNSEEN,
    "memory_dev_shm": _may("/dev/shm is the host's"),
}
_LOCAL_AS_USER: Final[dict[str, Hole]] = {
    "write_home": _SAME_USER,
    "write_metadata": _SAME_USER,
    "write_toolkit": _SAME_USER,
    "write_harness": _may("the job's user is yours"),
    "write_first_program": _may("the job's user is yours"),
    "read_secret": _SAME_USER,
    "read_other_trial": _SAME_USER,
    "read_environments": _SAME_USER,
    "hardlink_secret": _SAME_USER,
    "kill_victim": _SAME_USER,
    "kill_all": _SAME_USER,
    "pidfd": _SAME_USER,
    "ptrace_other": _may("the job's user is yours"),
    "process_vm": _may("the job's user is yours"),
    "proc_mem": _may("the job's user is yours"),
    "sched_others": _SAME_USER,
    "prlimit_others": _SAME_USER,
    "fork_bomb": Hole("a limit per user would count your own processes too"),
    "thread_bomb": Hole("a limit per user would count your own processes too"),
}

_LANDLOCK: Final[dict[str, Hole]] = {"disk_bomb": _NO_QUOTA, "inode_bomb": _NO_QUOTA}
_LANDLOCK_AS_USER: Final[dict[str, Hole]] = {
    "write_metadata": _NOT_MEDIATED,
    "fork_bomb": _may("a limit per user would count your own processes too"),
    "thread_bomb": _may("a limit per user would count your own processes too"),
}

HOLES: Final[dict[Column, dict[str, Hole]]] = {
    "docker": {},
    "bubblewrap": {},
    "bubblewrap as user": {},
    "landlock": _LANDLOCK,
    "landlock as user": _LANDLOCK | _LANDLOCK_AS_USER,
    "local": _LOCAL,
    "local as user": _LOCAL | _LOCAL_AS_USER,
}


def differences(column: Column, verdicts: dict[str, str]) -> list[str]:
    """Unexpected results; `verdicts`: attack -> held, leaked or unmeasured."""
    found = []
    for attack, verdict in verdicts.items():
        hole = HOLES[column].get(attack)
        if verdict == "leaked" and hole is None:
            found.append(f"{attack}: got through")
        if verdict == "held" and hole is not None and not hole.may:
            found.append(f"{attack}: held, but is listed as open ({hole.reason})")
    return found
