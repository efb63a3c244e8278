"""Ends and removes what a dead harness has left: its temporary folders, and processes of their jobs.

Only folders that name an owner who is dead, and that belong to our user, are touched. A process is a job's
when its home is the folder's scratch directory, which no process but a job's has.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from sandboxes.owners import Owner
from sandboxes.running import remove_tree
from sandboxes.users import kill_home

_NAME: Final = re.compile(r"liftbench-(\d+-\d+-\d+)-.+")


def remove_leftovers(directory: Path | None = None) -> list[Path]:
    """The folders that were removed. `directory`: where to look (default: where temporary files go)."""
    removed = []
    for folder in (directory or Path(tempfile.gettempdir())).glob("liftbench-*"):
        found = _NAME.fullmatch(folder.name)
        owner = None if found is None else Owner.parse(found[1])
        if owner is None or not owner.is_dead() or not _is_our_folder(folder):
            continue
        kill_home(folder / "scratch")  # minder.py does it, unless it died together with its harness
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
