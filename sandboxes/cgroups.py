"""Control groups, versions 1 and 2: limits that hold for a whole process tree.

After kill() nothing runs in the group; a limit that was asked for and cannot be set is an error. A group's
name tells whose it is: liftbench-<owner>-<name> (owners.py).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import SandboxError
from sandboxes.cgroup_places import ALWAYS_IN_V2, membership, places
from sandboxes.orphans import Owner

_NAME: Final = re.compile(r"liftbench-(\d+-\d+-\d+)-")
_CPU_PERIOD_US: Final = 100_000  # the kernel's default
_PEAK_SLACK_BYTES: Final = 1 << 20  # the kernel takes pages in lots
_FREEZE_S: Final = 5.0
_KILL_S: Final = 10.0
_POLL_S: Final = 0.0005
_PROC: Final = Path("/proc")


class _Group:
    """A group of either version: a folder for each controller, all the same one in version 2."""

    def __init__(self, version: int, folders: Mapping[str, Path]) -> None:
        self.version = version
        self._folders = dict(folders)

    def _paths(self) -> list[Path]:
        return list(dict.fromkeys(self._folders.values()))

    def _read(self, controller: str, version_1: str, version_2: str) -> str | None:
        """None where there is no such file, or no group any more: nobody knows."""
        folder = self._folders.get(controller)
        if folder is None:
            return None
        try:
            return (folder / (version_1 if self.version == 1 else version_2)).read_text()
        except OSError:
            return None

    def processes(self) -> list[int]:
        """Process ids in it, as this PID namespace numbers them; those it cannot see are left out."""
        found: set[int] = set()
        for path in self._paths():
            try:
                # An invisible one is 0, and kill(0) would be our own group.
                found |= {int(word) for word in (path / "cgroup.procs").read_text().split()} - {0}
            except FileNotFoundError:
                continue  # removed
            except OSError as error:
                if error.errno != errno.ENODEV:  # removed while it was open
                    raise
        return sorted(found)

    def members(self) -> list[int]:
        """The same as one controller tells it, in a fraction of the time; empty when the group is gone."""
        try:
            words = (self._paths()[0] / "cgroup.procs").read_text().split()
        except OSError:
            return []
        return [int(word) for word in words if word != "0"]

    def memory_bytes(self) -> int | None:
        """In use now, less file pages that the kernel would give back first; None where unknown."""
        used = self._read("memory", "memory.usage_in_bytes", "memory.current")
        spare = _named(self._read("memory", "memory.stat", "memory.stat"), "inactive_file")
        return None if used is None else max(0, int(used) - (spare or 0))

    def peak_memory_bytes(self) -> int | None:
        """The most ever in use, file pages included; None where unknown (version 2 before Linux 5.19)."""
        peak = self._read("memory", "memory.max_usage_in_bytes", "memory.peak")
        return None if peak is None else int(peak)

    def cpu_s(self) -> float | None:
        """CPU time of all that ever ran in it; None where unknown."""
        used = self._read("cpuacct", "cpuacct.usage", "cpu.stat")
        if used is None:
            return None
        if self.version == 1:
            return int(used) / 1e9
        microseconds = _named(used, "usage_usec")
        return None if microseconds is None else microseconds / 1e6

    def oom_kills(self) -> int | None:
        """How many processes the kernel killed for want of memory; None where unknown."""
        return _named(self._read("memory", "memory.oom_control", "memory.events"), "oom_kill")

    def reached_its_limit(self) -> bool:
        """Whether it ever asked for more memory than it may have; True also where nobody knows.

        A process of it can be killed for want of memory without that: the machine, or what stands around
        the group, has run out of it.
        """
        if self.version == 1:
            # Linux 6.18 does not count failures, so the peak decides too.
            names = ("memory.failcnt", "memory.max_usage_in_bytes", "memory.limit_in_bytes")
            found = [self._read("memory", name, "") for name in names]
            failures, peak, limit = [None if one is None else int(one) for one in found]
            if failures is None or peak is None or limit is None:
                return True
            return failures > 0 or peak >= limit - _PEAK_SLACK_BYTES
        events = self._read("memory", "", "memory.events")
        return (_named(events, "oom") or 0) > 0 or _named(events, "oom") is None

    def can_freeze(self) -> bool:
        """Whether freeze() is in our power."""
        folder = self._folders.get("freezer")
        name = "freezer.state" if self.version == 1 else "cgroup.freeze"
        return folder is not None and os.access(folder / name, os.W_OK)

    def thaw_order(self) -> tuple[Path, str]:
        """The file and the word by which anybody with our rights thaws it; needs can_freeze()."""
        folder = self._folders["freezer"]
        return (folder / "freezer.state", "THAWED") if self.version == 1 else (folder / "cgroup.freeze", "0")

    def freeze(self, frozen: bool) -> None:
        """Stop or continue all of it; it stands still when this returns.

        Raises SandboxError when it does not (a process in uninterruptible sleep); it is thawed then.
        """
        try:
            stands = _until(lambda: self._order(frozen), _FREEZE_S)
            if not stands and frozen:
                self._order(False)
        except OSError as error:
            raise SandboxError(f"a control group could not be frozen or thawed: {error}") from error
        if not stands:
            raise SandboxError(f"a control group was not {'frozen' if frozen else 'thawed'} in {_FREEZE_S} s")

    def _order(self, frozen: bool) -> bool:
        """Ask for it, and tell whether it is so. Version 1 wants to be asked again while it is not."""
        folder = self._folders["freezer"]
        if self.version == 1:
            (folder / "freezer.state").write_text("FROZEN" if frozen else "THAWED")
            return (folder / "freezer.state").read_text().strip() == ("FROZEN" if frozen else "THAWED")
        (folder / "cgroup.freeze").write_text(str(int(frozen)))
        return _named((folder / "cgroup.events").read_text(), "frozen") == int(frozen)


class ForeignCgroup(_Group):
    """A group that something else has made, such as a container engine: read and frozen, no more."""

    @classmethod
    def of_process(cls, pid: int, named: str, proc: Path = _PROC) -> ForeignCgroup | None:
        """The group of process `pid` if its path contains `named` (the container's id), else None.

        Holds for every engine's way of naming. `named` guards against a process id of another PID
        namespace, which means another process here.
        """
        try:
            found = membership(pid, proc)
        except (FileNotFoundError, ProcessLookupError):
            return None  # it has ended
        folders = {k: v for k, v in found.folders.items() if named in str(v) and v.is_dir()}
        return cls(found.version, folders) if folders else None


class Cgroup(_Group):
    """One of ours."""

    def join_files(self) -> list[Path]:
        """Files into each of which a process writes its id to join."""
        return [path / "cgroup.procs" for path in self._paths()]

    def kill(self) -> None:
        """End all of it, also when frozen; nothing can start in it afterwards. Safe to call twice.

        Raises SandboxError when something does not die (a process in uninterruptible sleep).
        """
        folder = self._folders["pids"]
        try:
            # No fork outruns us; cgroup.kill is of version 2 since Linux 5.14.
            for file, word in ((folder / "pids.max", "0"), (folder / "cgroup.kill", "1")):
                if file.exists():
                    file.write_text(word)
            ended = _until(self._killed, _KILL_S)
        except FileNotFoundError:
            return  # removed
        if not ended:
            raise SandboxError(f"processes {self.processes()} of a control group do not die")

    def _killed(self) -> bool:
        """Kill what there is, and tell whether there was nothing."""
        if not self.processes():
            return True
        _kill_all(self.processes)
        if self.version == 1:
            self._order(False)  # there, a frozen process does not die
        return False

    def remove(self) -> None:
        """Remove it once it is empty. Safe to call twice. Raises SandboxError."""
        for path in self._paths():

            def removed(path: Path = path) -> bool:
                try:
                    path.rmdir()
                except FileNotFoundError:
                    return True
                except OSError as error:
                    if error.errno != errno.EBUSY:  # the last process is on its way out
                        raise SandboxError(f"a control group could not be removed: {error}") from error
                    return False
                return True

            if not _until(removed, _KILL_S):
                raise SandboxError(f"control group {path} stays busy: {self.processes()} are in it")


@dataclass(frozen=True)
class Cgroups:
    """Where we may make groups."""

    version: int
    folders: Mapping[str, Path]
    """By controller: the folder in which ours are made."""

    @classmethod
    def find(cls, proc: Path = _PROC) -> Cgroups | None:
        """The nearest place to our own group where memory and processes can be limited; None if none."""
        own = membership("self", proc)
        found = places(own)
        return None if found is None else cls(own.version, found)

    def facts(self) -> dict[str, str]:
        """What the groups made here really limit, for the record."""
        real = sorted(self.folders.keys() - (ALWAYS_IN_V2 | {"cpuacct"}))
        return {"cgroups": f"version {self.version}", "cgroup limits": ", ".join(real)}

    def create(
        self,
        name: str,
        *,
        memory_bytes: int | None,
        processes: int | None,
        cpus: float | None = None,
        cpu_set: Iterable[int] | None = None,
    ) -> Cgroup:
        """A new group; memory counts without swap, `cpus` is CPU seconds per second.

        Raises SandboxError, and leaves nothing behind, when a limit cannot be set.
        """
        if not re.fullmatch(r"[\w-]+", name):
            raise ValueError(f"no name for a control group: {name!r}")
        full = f"liftbench-{Owner.ours()}-{name}"
        wanted = {"cpu": cpus is not None, "cpuset": cpu_set is not None}
        lacking = [controller for controller, asked in wanted.items() if asked] - self.folders.keys()
        if lacking:
            raise SandboxError(f"control groups here have no {' and no '.join(sorted(lacking))} limit")
        used = {k: v / full for k, v in self.folders.items() if wanted.get(k, True)}
        made: dict[str, Path] = {}
        try:
            for path in dict.fromkeys(used.values()):
                path.mkdir()
                made[str(path)] = path
            if memory_bytes is not None:
                self._limit_memory(used["memory"], memory_bytes)
            if processes is not None:
                (used["pids"] / "pids.max").write_text(str(processes))
            if cpus is not None:
                self._limit_cpu(used["cpu"], int(cpus * _CPU_PERIOD_US))
            if cpu_set is not None:
                self._limit_cores(used["cpuset"], ",".join(str(n) for n in sorted(cpu_set)))
        except OSError as error:
            Cgroup(self.version, made).remove()
            raise SandboxError(f"control group {full} could not be made: {error}") from error
        return Cgroup(self.version, used)

    def _limit_memory(self, folder: Path, size_bytes: int) -> None:
        """Swap is no way out. A kernel that does not count it is told not to use it."""
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

    def _limit_cpu(self, folder: Path, quota_us: int) -> None:
        if self.version == 2:
            (folder / "cpu.max").write_text(f"{quota_us} {_CPU_PERIOD_US}")
            return
        (folder / "cpu.cfs_period_us").write_text(str(_CPU_PERIOD_US))
        (folder / "cpu.cfs_quota_us").write_text(str(quota_us))

    def _limit_cores(self, folder: Path, cores: str) -> None:
        if self.version == 1:  # a new group has no memory nodes, and nobody can join it
            (folder / "cpuset.mems").write_text((folder.parent / "cpuset.mems").read_text())
        (folder / "cpuset.cpus").write_text(cores)

    def sweep(self) -> list[str]:
        """Kill and remove groups whose harness is dead; their names. Raises SandboxError."""
        parents = dict.fromkeys(self.folders.values())
        names = {path.name for parent in parents for path in parent.glob("liftbench-*")}
        dead = sorted(name for name in names if _is_left_over(name))
        for name in dead:
            group = Cgroup(self.version, {k: v / name for k, v in self.folders.items()})
            group.kill()
            group.remove()
        return dead


def _named(text: str | None, name: str) -> int | None:
    """The number behind `name` in lines of names and numbers; in version 1 totals come with a prefix."""
    words = dict(line.split(" ", 1) for line in (text or "").splitlines() if " " in line)
    found = words.get(f"total_{name}", words.get(name))
    return None if found is None else int(found)


def _until(done: Callable[[], bool], most_s: float) -> bool:
    """Whether `done` became true in time."""
    deadline = time.monotonic() + most_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_S)
    return True


def _kill_all(members: Callable[[], list[int]]) -> None:
    """SIGKILL to what is in a group before and after its descriptor is open: a reused id is not hit."""
    with contextlib.ExitStack() as held:
        handles: dict[int, int] = {}
        for pid in members():
            with contextlib.suppress(ProcessLookupError):  # ended by itself
                handles[pid] = os.pidfd_open(pid)
                held.callback(os.close, handles[pid])
        for pid in handles.keys() & set(members()):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handles[pid], signal.SIGKILL)


def _is_left_over(name: str) -> bool:
    found = _NAME.match(name)
    owner = Owner.parse(found[1]) if found else None
    return owner is not None and owner.is_dead()
