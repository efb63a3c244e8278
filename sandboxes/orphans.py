"""Marks folders, control groups and containers with their owner, and removes those of dead owners.

An owner that is alive, or that this process cannot see, is never treated as dead.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandboxes.cgroups import Cgroups
from sandboxes.reaper import kill_matching, kill_user, processes
from sandboxes.scratch import remove_tree

_WORD: Final = re.compile(r"(\d{1,10})-(\d{1,20})-(\d{1,20})")
_NAME: Final = re.compile(r"liftbench-(\d+-\d+-\d+)-.+")


@dataclass(frozen=True)
class Owner:
    """A process of this machine; the start time distinguishes it from a later one with the same number."""

    pid: int
    start: int
    namespace: int

    @classmethod
    def current(cls) -> Owner:
        start = _start(os.getpid())
        assert start is not None
        return cls(os.getpid(), start, _namespace())

    @classmethod
    def parse(cls, word: str) -> Owner | None:
        found = _WORD.fullmatch(word)
        return None if found is None else cls(*(int(number) for number in found.groups()))

    def __str__(self) -> str:
        return f"{self.pid}-{self.start}-{self.namespace}"

    def is_dead(self) -> bool:
        return self.namespace == _namespace() and _start(self.pid) != self.start


def owned_prefix(noun: str) -> str:
    return f"liftbench-{Owner.current()}-{noun}-"


def owned_folder(noun: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder that remove_orphans() finds if this process dies before removing it."""
    return tempfile.TemporaryDirectory(prefix=owned_prefix(noun))


def is_orphan(name: str) -> bool:
    found = _NAME.fullmatch(name)
    owner = None if found is None else Owner.parse(found[1])
    return owner is not None and owner.is_dead()


def remove_orphans(directory: Path | None = None, groups: Cgroups | None = None) -> list[str]:
    """Remove folders (of the temporary directory by default) and control groups of dead owners.

    Kills their processes. Returns names. Raises SandboxError for a group that cannot be removed.
    """
    removed = []
    for folder in (directory or Path(tempfile.gettempdir())).glob("liftbench-*"):
        if is_orphan(folder.name) and _is_our_folder(folder):
            _kill_jobs_at(folder / "scratch")  # the reaper does this, unless it died too
            remove_tree(folder)
            removed.append(folder.name)
    return sorted(removed) + (groups.remove_matching(is_orphan) if groups else [])


def _is_our_folder(path: Path) -> bool:
    """A directory, not a link, of our user: others may write to the temporary directory too."""
    with suppress(OSError):
        facts = path.lstat()
        return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid()
    return False


def _kill_jobs_at(home: Path) -> None:
    """Kill every process whose HOME is this job's directory and, as root, all of its user's processes."""
    wanted = b"\0HOME=" + os.fsencode(home) + b"\0"

    def lives_there(pid: int, uid: int) -> bool:
        with suppress(OSError):  # it ended, or belongs to another user
            return wanted in b"\0" + Path(f"/proc/{pid}/environ").read_bytes()
        return False

    for uid in {uid for pid, uid in processes() if lives_there(pid, uid)} - {os.geteuid()}:
        kill_user(uid)
    kill_matching(lives_there)


def _start(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def _namespace() -> int:
    return int(re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink())))
