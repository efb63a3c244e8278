"""Control groups, versions 1 and 2: limits on a process tree. A limit that cannot be set is an error."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from harness.files import read_quickly

_NEEDED: Final = frozenset({"memory", "pids"})
_V2_CORE: Final = frozenset({"cpuacct"})
"""Part of every version 2 group, not a controller that may be missing."""
_WANTED: Final = _NEEDED | {"cpuacct"}
_PEAK_SLACK_BYTES: Final = 1 << 20  # the kernel charges pages in batches
_KILL_S: Final = 10.0
_POLL_S: Final = 0.0005
_PROC: Final = Path("/proc")


class Cgroup:
    """A group of either version: a folder for each controller, all the same in version 2."""

    def __init__(self, version: int, folders: Mapping[str, Path]) -> None:
        self.version = version
        self._folders = dict(folders)
        self._procs = str(self._paths()[0] / "cgroup.procs") if folders else ""

    @classmethod
    def of_container(cls, pid: int, container: str, proc: Path = _PROC) -> Cgroup | None:
        """The group of process `pid`; None unless its path contains the container's id.

        The id guards against a process id of another PID namespace, which is another process here.
        """
        try:
            found = membership(pid, proc)
        except (FileNotFoundError, ProcessLookupError):
            return None  # it has ended
        folders = {k: v for k, v in found.folders.items() if container in str(v) and v.is_dir()}
        return cls(found.version, folders) if folders else None

    def _paths(self) -> list[Path]:
        return list(dict.fromkeys(self._folders.values()))

    def _read(self, controller: str, version_1: str, version_2: str) -> str | None:
        try:
            return (self._folders[controller] / (version_1 if self.version == 1 else version_2)).read_text()
        except (OSError, KeyError):
            return None

    def members(self) -> list[int]:
        """Process ids, by one controller, without those outside this PID namespace; empty when it is gone."""
        try:
            words = read_quickly(self._procs).split()
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENODEV):  # removed, or removed while it was open
                raise
            return []
        # An invisible process is listed as 0, and kill(0) would be our own process group.
        return sorted(int(word) for word in words if word != b"0")

    def memory_bytes(self) -> int | None:
        """Current use without inactive file pages."""
        used = self._read("memory", "memory.usage_in_bytes", "memory.current")
        spare = _field(self._read("memory", "memory.stat", "memory.stat"), "inactive_file")
        return None if used is None else max(0, int(used) - (spare or 0))

    def peak_memory_bytes(self) -> int | None:
        """Peak use, file pages included; None in version 2 before Linux 5.19."""
        peak = self._read("memory", "memory.max_usage_in_bytes", "memory.peak")
        return None if peak is None else int(peak)

    def cpu_s(self) -> float | None:
        used = self._read("cpuacct", "cpuacct.usage", "cpu.stat")
        if used is None:
            return None
        return int(used) / 1e9 if self.version == 1 else (_field(used, "usage_usec") or 0) / 1e6

    def oom_kills(self) -> int | None:
        return _field(self._read("memory", "memory.oom_control", "memory.events"), "oom_kill")

    def reached_memory_limit(self) -> bool:
        """Whether it requested more than its limit; True where unknown.

        A process can also be OOM-killed because the machine or a parent group has run out of memory.
        """
        if self.version == 1:
            # Linux 6.18 does not count failures, so the peak is compared too.
            names = ("memory.failcnt", "memory.max_usage_in_bytes", "memory.limit_in_bytes")
            found = [int(text) for name in names if (text := self._read("memory", name, ""))]
            return len(found) < 3 or found[0] > 0 or found[1] >= found[2] - _PEAK_SLACK_BYTES
        return _field(self._read("memory", "", "memory.events"), "oom") != 0

    def join_files(self) -> list[Path]:
        return [path / "cgroup.procs" for path in self._paths()]

    def kill(self) -> None:
        """Kill all processes; nothing can start in it afterwards. Raises SandboxError if one does not die."""
        folder = self._folders["pids"]
        try:
            # First forbid forks; cgroup.kill exists in version 2 since Linux 5.14.
            for file, word in ((folder / "pids.max", "0"), (folder / "cgroup.kill", "1")):
                if file.exists():
                    file.write_text(word)
            ended = _until(lambda: not _kill_all(self.members), _KILL_S)
        except FileNotFoundError:
            return  # removed
        if not ended:
            raise SandboxError(f"processes {self.members()} of a control group do not die")

    def remove(self) -> None:
        for path in self._paths():
            if not _until(lambda path=path: _is_removed(path), _KILL_S):  # type: ignore[misc]
                raise SandboxError(f"control group {path} stays busy: {self.members()} are in it")


@dataclass(frozen=True)
class Cgroups:
    """Where this process may create groups."""

    version: int
    folders: Mapping[str, Path]

    @classmethod
    def find(cls, proc: Path = _PROC) -> Cgroups | None:
        """The nearest place to our own group where memory and processes can be limited; None if none."""
        own = membership("self", proc)
        found = places(own)
        return None if found is None else cls(own.version, found)

    def facts(self) -> dict[str, str]:
        return {"cgroups": f"version {self.version}"}

    def create(self, name: str, *, memory_bytes: int | None, processes: int | None) -> Cgroup:
        """A new group; memory is limited without swap. Raises SandboxError, and leaves nothing behind."""
        used = {controller: folder / name for controller, folder in self.folders.items()}
        made: dict[str, Path] = {}
        try:
            for path in dict.fromkeys(used.values()):
                path.mkdir()
                made[str(path)] = path
            if memory_bytes is not None:
                self._limit_memory(used["memory"], memory_bytes)
            if processes is not None:
                (used["pids"] / "pids.max").write_text(str(processes))
        except OSError as error:
            Cgroup(self.version, made).remove()
            raise SandboxError(f"control group {name} could not be made: {error}") from error
        return Cgroup(self.version, used)

    def _limit_memory(self, folder: Path, size_bytes: int) -> None:
        if self.version == 2:
            (folder / "memory.max").write_text(str(size_bytes))
            if (folder / "memory.swap.max").exists():
                (folder / "memory.swap.max").write_text("0")
            return
        (folder / "memory.limit_in_bytes").write_text(str(size_bytes))
        with_swap = folder / "memory.memsw.limit_in_bytes"
        if with_swap.exists():
            with_swap.write_text(str(size_bytes))
        else:
            (folder / "memory.swappiness").write_text("0")

    def remove_matching(self, matches: Callable[[str], bool]) -> list[str]:
        """Kill and remove our groups whose name matches; their names. Raises SandboxError."""
        parents = dict.fromkeys(self.folders.values())
        names = {path.name for parent in parents for path in parent.glob("liftbench-*")}
        found = sorted(name for name in names if matches(name))
        for name in found:
            group = Cgroup(self.version, {k: v / name for k, v in self.folders.items()})
            group.kill()
            group.remove()
        return found


def _field(text: str | None, name: str) -> int | None:
    """The number after `name` in lines of names and numbers; version 1 prefixes totals with total_."""
    words = dict(line.split(" ", 1) for line in (text or "").splitlines() if " " in line)
    found = words.get(f"total_{name}", words.get(name))
    return None if found is None else int(found)


def _until(done: Callable[[], bool], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _is_removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.EBUSY:  # the last process is ending
            raise SandboxError(f"a control group could not be removed: {error}") from error
        return False
    return True


def _kill_all(members: Callable[[], list[int]]) -> bool:
    """SIGKILL to processes that are members before and after their pidfd is opened: no reused id is hit.

    Returns whether there were any.
    """
    found = members()
    with contextlib.ExitStack() as held:
        handles: dict[int, int] = {}
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                handles[pid] = os.pidfd_open(pid)
                held.callback(os.close, handles[pid])
        for pid in handles.keys() & set(members()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handles[pid], signal.SIGKILL)
    return bool(found)


@dataclass(frozen=True)
class Membership:
    version: int
    """2 where that version has the needed controllers; on a hybrid system version 1 holds them."""
    folders: dict[str, Path]
    top: Path
    """Mount point (version 2)."""


@dataclass(frozen=True)
class _Mount:
    version: int
    root: str
    place: Path
    options: frozenset[str]

    def folder(self, group: str | None) -> Path | None:
        """Where this mount shows `group`; None if it does not."""
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
    """The groups of process `pid`. Raises OSError when there is no such process."""
    groups: dict[str, str] = {}
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        groups |= dict.fromkeys(controllers.split(","), group)
    version_1: dict[str, Path] = {}
    for mount in _mounts((proc / "self" / "mountinfo").read_text()):
        if mount.version == 2:
            folder = mount.folder(groups.get(""))
            if folder and _words(mount.place / "cgroup.controllers") | _V2_CORE >= _NEEDED:
                here = (_words(folder / "cgroup.controllers") & _WANTED) | _V2_CORE
                return Membership(2, dict.fromkeys(sorted(here), folder), mount.place)
        for name in sorted(mount.options & _WANTED if mount.version == 1 else ()):
            if folder := mount.folder(groups.get(name)):
                version_1.setdefault(name, folder)
    return Membership(1, version_1, Path("/"))


def places(own: Membership) -> dict[str, Path] | None:
    """By controller: the nearest folder below which limits can be set; None if none.

    In version 2 that is our own group or an ancestor: a group with processes cannot enable controllers for
    its children.
    """
    if own.version == 1:
        usable = {name: folder for name, folder in own.folders.items() if os.access(folder, os.W_OK)}
        return usable if usable.keys() >= _NEEDED else None
    group = own.folders["cpuacct"]
    for folder in [group, *group.parents]:
        # Moving a process needs write access to the nearest common ancestor of both groups.
        if os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            enabled = _enabled_below(folder)
            if enabled >= _NEEDED:
                return dict.fromkeys(sorted(enabled), folder)
        if folder == own.top:
            break
    return None


def _words(file: Path) -> set[str]:
    return set(file.read_text().split()) if file.exists() else set()


def _enabled_below(folder: Path) -> set[str]:
    control = folder / "cgroup.subtree_control"
    for name in sorted((_words(folder / "cgroup.controllers") & _WANTED) - _words(control)):
        with contextlib.suppress(OSError):  # EBUSY: it has processes; the answer is read below
            control.write_text(f"+{name}")
    return (_words(control) & _WANTED) | _V2_CORE
