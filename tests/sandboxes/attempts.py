"""System calls to try behind a filter, and what their answers must be.

A refusal is told from the kernel's own by an error that no kernel gives.
"""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import Any

from sandboxes.seccomp import numbers, profile

FILTERED = Path(__file__).with_name("filtered.py")
HERE = os.uname().machine
MARK = errno.EBADFD
"""No call used here fails with it by itself, so it shows that the filter has answered."""
NEWER = 467
"""From here on calls are newer than the profile: ENOSYS."""
CLONE_NEW = {
    "user": 1 << 28,
    "mount": 1 << 17,
    "cgroup": 1 << 25,
    "uts": 1 << 26,
    "ipc": 1 << 27,
    "pid": 1 << 29,
    "net": 1 << 30,
}
# By reason; each must be refused whatever its arguments are.
CLOSED = {
    "queues that a filter does not see into": """io_uring_setup io_uring_enter io_uring_register
        io_setup io_submit io_getevents io_pgetevents io_destroy io_cancel""",
    "other processes": """ptrace process_vm_readv process_vm_writev process_madvise pidfd_getfd kcmp
        move_pages migrate_pages""",
    "keyrings": "keyctl add_key request_key",
    "kernel programs and measurements": "bpf perf_event_open userfaultfd lookup_dcookie syslog",
    "mounts": """mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick open_tree open_tree_attr
        move_mount mount_setattr statmount listmount""",
    "namespaces": "unshare setns listns",
    "handles that pass by permissions": "open_by_handle_at name_to_handle_at fanotify_init fanotify_mark",
    "secrets from the kernel": "memfd_secret",
    "the machine": """reboot kexec_load kexec_file_load init_module finit_module delete_module iopl ioperm
        swapon swapoff quotactl quotactl_fd acct sethostname setdomainname vhangup nfsservctl sync syncfs""",
    "clocks": "settimeofday clock_settime clock_adjtime adjtimex",
    "what outlives its processes": "shmget shmat semget semop msgget msgsnd mq_open mq_unlink",
    "rare, and often in kernel bugs": "vmsplice remap_file_pages modify_ldt uselib",
}
REFUSED = [name for names in CLOSED.values() for name in names.split()]


def marked() -> dict[str, Any]:
    """The profile, but what it refuses answers MARK: no kernel does that by itself."""
    return {**profile(), "defaultErrnoRet": MARK}


def calls(folder: str) -> tuple[list[list[Any]], list[list[Any]]]:
    """Calls to be refused and calls to be allowed. `folder`: where files can be made."""
    number = numbers(HERE)
    refused: list[list[Any]] = [[n, number[n]] for n in REFUSED if number.get(n, NEWER) < NEWER]
    refused += [[f"clone {kind}", number["clone"], flag] for kind, flag in CLONE_NEW.items()]
    families = {"inet": 2, "inet6": 10, "netlink": 16, "packet": 17, "alg": 38, "vsock": 40, "xdp": 44}
    refused += [[f"socket {name}", number["socket"], its, 2] for name, its in families.items()]
    refused += [[f"ioctl {r:#x}", number["ioctl"], 0, r] for r in (0x5412, 0x541C, 0x5423, 1 << 32 | 0x5412)]
    refused += [["prlimit64 of another", number["prlimit64"], os.getppid(), 7, 0, "x" * 16]]
    refused += [
        [f"setpriority {which} {who}", number["setpriority"], which, who, 19]
        for which, who in ((0, os.getppid()), (1, 0), (2, 0))
    ]
    refused += [["personality 0x40000", number["personality"], 0x40000]]
    refused += [
        [f"mknodat {t}", number["mknodat"], 0, "x", t | 0o600] for t in (0o020000, 0o060000, 0o140000)
    ]
    here = 2**64 - 100  # AT_FDCWD
    allowed: list[list[Any]] = [
        ["socket", number["socket"], socket.AF_UNIX, 5],
        ["socketpair dead upper half", number["socketpair"], 7 << 32 | socket.AF_UNIX, 1, 0, "12345678"],
        ["memfd_create", number["memfd_create"], "name", 2],
        ["eventfd2", number["eventfd2"]],
        ["epoll_create1", number["epoll_create1"]],
        ["timerfd_create", number["timerfd_create"]],
        ["pidfd_open", number["pidfd_open"], os.getpid()],
        ["membarrier", number["membarrier"]],
        ["sched_getaffinity", number["sched_getaffinity"], 0, 128, "x" * 128],
        ["get_mempolicy", number["get_mempolicy"]],
        ["set_mempolicy", number["set_mempolicy"]],
        ["mmap", number["mmap"], 0, 4096, 3, 0x22, 2**64 - 1],
        ["prctl", number["prctl"], 15, "name"],
        ["getrandom", number["getrandom"], "x" * 16, 16],
        ["landlock", number["landlock_create_ruleset"], 0, 0, 1],
        ["personality", number["personality"], 0xFFFFFFFF],
        ["getsid", number["getsid"]],
        ["mknodat pipe", number["mknodat"], here, f"{folder}/pipe", 0o010600],
        ["mknodat file", number["mknodat"], here, f"{folder}/file", 0o100600],
        ["prlimit64", number["prlimit64"], 0, 7, 0, "x" * 16],
        ["setpriority", number["setpriority"], 0, 0, 19],
        ["close_range", number["close_range"], 900, 1000],
        ["copy_file_range", number["copy_file_range"], 0, 0, 1, 0, 0],
        ["futex", number["futex"], "\0\0\0\0", 1, 1],
    ]
    return refused, allowed


def check(answers: dict[str, int], folder: str, *refusals: int) -> None:
    """All that must be refused got one of `refusals`, and nothing that must be allowed looks refused."""
    refused, allowed = calls(folder)
    assert len(refused) > 80
    assert {n: answers[n] for n, *_ in refused if answers[n] not in refusals} == {}
    unlike = (*refusals, errno.EPERM, errno.ENOSYS)
    assert {n: answers[n] for n, *_ in allowed if answers[n] in unlike} == {}
