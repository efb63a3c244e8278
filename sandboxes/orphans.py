"""Which process made something that may outlive it: a folder, a container.

A living owner, or one that we cannot see, is never called dead; the start time tells a process from a later
one with the same number.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sandboxes.process import remove_tree
from sandboxes.users import kill_home

_NAME: Final = re.compile(r"liftbench-(\d+-\d+-\d+)-.+")
_WORD: Final = re.compile(r"(\d{1,10})-(\d{1,20})-(\d{1,20})")


@dataclass(frozen=True)
class Owner:
    """A process, told apart from all others of this machine."""

    pid: int
    start: int
    """Clock ticks from the machine's start to the process's."""
    namespace: int
    """Of process ids: in another one the same number is another process."""

    @classmethod
    def ours(cls) -> Owner:
        """This process."""
        start = _start(os.getpid())
        assert start is not None  # we run
        return cls(os.getpid(), start, _namespace())

    @classmethod
    def parse(cls, word: str) -> Owner | None:
        """What str() made; None for anything else."""
        found = _WORD.fullmatch(word)
        return None if found is None else cls(*(int(number) for number in found.groups()))

    def __str__(self) -> str:
        return f"{self.pid}-{self.start}-{self.namespace}"

    def is_visible(self) -> bool:
        """Whether we can tell if it lives: it is in our namespace of process ids."""
        return self.namespace == _namespace()

    def is_dead(self) -> bool:
        """False also where we cannot see it."""
        return self.is_visible() and _start(self.pid) != self.start


def owned_folder(noun: str) -> tempfile.TemporaryDirectory[str]:
    """A temporary folder that leftovers.py finds when we die before we can remove it."""
    return tempfile.TemporaryDirectory(prefix=owned_prefix(noun))


def owned_prefix(noun: str) -> str:
    """How the name of such a folder begins."""
    return f"liftbench-{Owner.ours()}-{noun}-"


def _start(pid: int) -> int | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])  # nobody waits for a zombie's things


def _namespace() -> int:
    return int(re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink())))


def remove_orphans(directory: Path | None = None) -> list[Path]:
    """The folders that were removed. `directory`: where to look (default: where temporary files go)."""
    removed = []
    for folder in (directory or Path(tempfile.gettempdir())).glob("liftbench-*"):
        found = _NAME.fullmatch(folder.name)
        owner = None if found is None else Owner.parse(found[1])
        if owner is None or not owner.is_dead() or not _is_our_folder(folder):
            continue
        kill_home(folder / "scratch")  # reaper.py does it, unless it died together with its harness
        remove_tree(folder)
        removed.append(folder)
    return sorted(removed)


def _is_our_folder(path: Path) -> bool:
    """No link, and nobody else's: the temporary directory belongs to all users."""
    try:
        facts = path.lstat()
    except OSError:
        return False  # somebody else was quicker
    return path.is_dir() and not path.is_symlink() and facts.st_uid == os.geteuid()
