"""Removes temporary folders whose harness is dead.

Owns: which folders of the temporary directory are ours and orphaned. Does not own: making them
(`owned_folder`), control groups and containers of dead harnesses (cgroups.py, docker/reaper.py).
Invariant: only folders that name an owner who is dead, and that belong to our user, are removed.
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Final

from sandboxes.owners import Owner
from sandboxes.running import remove_tree

_NAME: Final = re.compile(r"liftbench-(\d+-\d+-\d+)-.+")


def remove_leftovers(directory: Path | None = None) -> list[Path]:
    """Those that were removed. `directory`: where to look (default: where temporary files go)."""
    removed = []
    for folder in (directory or Path(tempfile.gettempdir())).glob("liftbench-*"):
        found = _NAME.fullmatch(folder.name)
        owner = None if found is None else Owner.parse(found[1])
        if owner is None or not owner.is_dead() or not _is_our_folder(folder):
            continue
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
