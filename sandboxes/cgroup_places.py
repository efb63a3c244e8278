"""Where control groups are: what is mounted, which group a process is in, and where we may make others.

A folder returned here is the group itself, as seen from our own mounts and control group namespace, or
nothing is returned.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NEEDED: Final = frozenset({"memory", "pids", "freezer"})
ALWAYS_IN_V2: Final = frozenset({"freezer", "cpuacct"})
"""Of the core there, not controllers that can be lacking."""
_WANTED: Final = NEEDED | {"cpu", "cpuacct", "cpuset"}


@dataclass(frozen=True)
class Membership:
    """Which groups a process is in."""

    version: int
    """2 where that version has the controllers that we need; on a hybrid system version 1 holds them."""
    folders: dict[str, Path]
    """By controller. In version 2 they are all the same."""
    top: Path
    """Where the hierarchy is mounted; for version 1 of no meaning."""


@dataclass(frozen=True)
class _Mount:
    """One mounted hierarchy (proc(5), mountinfo)."""

    version: int
    root: str
    place: Path
    options: frozenset[str]

    def folder(self, group: str | None) -> Path | None:
        """Where this mount shows `group`; None when it does not."""
        if group is None or not Path(group).is_relative_to(self.root) or ".." in group:
            return None
        return self.place / Path(group).relative_to(self.root)


def _mounts(mountinfo: str) -> Iterator[_Mount]:
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            words = before.split(" ")
            yield _Mount(1 + (kind == "cgroup2"), words[3], Path(words[4]), frozenset(options.split(",")))


def membership(pid: int | str, proc: Path) -> Membership:
    """The groups of process `pid`, by our own mounts. Raises OSError when there is no such process."""
    groups: dict[str, str] = {}
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), group)
    old: dict[str, Path] = {}
    for mount in _mounts((proc / "self" / "mountinfo").read_text()):
        if mount.version == 2:
            folder = mount.folder(groups.get(""))
            if folder and _listed(mount.place / "cgroup.controllers") | ALWAYS_IN_V2 >= NEEDED:
                here = (_listed(folder / "cgroup.controllers") & _WANTED) | ALWAYS_IN_V2
                return Membership(2, dict.fromkeys(sorted(here), folder), mount.place)
        for name in sorted(mount.options & _WANTED if mount.version == 1 else ()):
            if folder := mount.folder(groups.get(name)):
                old.setdefault(name, folder)
    return Membership(1, old, Path("/"))


def places(own: Membership) -> dict[str, Path] | None:
    """By controller: the nearest folder to our own group below which we can set limits; None if none.

    In version 2 that is our own group or one above it, since a group that has processes hands no
    controllers down.
    """
    if own.version == 1:
        usable = {name: folder for name, folder in own.folders.items() if os.access(folder, os.W_OK)}
        return usable if usable.keys() >= NEEDED else None
    group = own.folders["freezer"]
    for folder in [group, *group.parents]:
        # To move a process takes the right to write to the nearest group above both ends.
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            enabled = _handed_down(folder)
            if enabled >= NEEDED:
                return dict.fromkeys(sorted(enabled), folder)
        if folder == own.top:
            break
    return None


def _listed(file: Path) -> set[str]:
    return set(file.read_text().split()) if file.exists() else set()


def _handed_down(folder: Path) -> set[str]:
    """Controllers that groups below `folder` have, after asking for those that we can use."""
    control = folder / "cgroup.subtree_control"
    for name in sorted((_listed(folder / "cgroup.controllers") & _WANTED) - _listed(control)):
        with contextlib.suppress(OSError):  # EBUSY: it has processes; the answer is read below
            control.write_text(f"+{name}")
    return (_listed(control) & _WANTED) | ALWAYS_IN_V2
