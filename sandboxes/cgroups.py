"""Control groups, versions 1 and 2: limits that hold for a whole process tree.

Owns: finding where we may make groups, making, reading, freezing, killing and removing them, and
removing what a dead harness has left. Does not own: who joins a group (outside.py writes its own
process id into `join_files`), and groups that others have made, which are only read and frozen.
Invariant: after kill() nothing runs in the group; a limit that was asked for and cannot be set is an
error. A group's name tells whose it is: liftbench-<pid>-<start time>-<PID namespace>-<name>.
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

_NEEDED: Final = frozenset({"memory", "pids", "freezer"})
_USEFUL: Final = frozenset({"cpu", "cpuacct", "cpuset"})
_ALWAYS_IN_V2: Final = frozenset({"freezer", "cpuacct"})  # of the core, not controllers
_NAME: Final = re.compile(r"liftbench-(\d+)-(\d+)-(\d+)-")
_CPU_PERIOD_US: Final = 100_000  # the kernel's default
_FREEZE_S: Final = 5.0
_KILL_S: Final = 10.0
_POLL_S: Final = 0.0005
_SELF: Final = Path("/proc/self")


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

    def can_freeze(self) -> bool:
        """Whether freeze() is in our power."""
        folder = self._folders.get("freezer")
        name = "freezer.state" if self.version == 1 else "cgroup.freeze"
        return folder is not None and os.access(folder / name, os.W_OK)

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
    def of_process(cls, pid: int, named: str, process: Path | None = None) -> ForeignCgroup | None:
        """The group of process `pid` if its path contains `named` (the container's id), else None.

        Works for every engine's naming. `named` guards against a number from another PID namespace.
        `process`: the folder in /proc, for tests.
        """
        version, folders = _groups_of(process or Path(f"/proc/{pid}"))
        found = {k: v for k, v in folders.items() if named in str(v) and v.is_dir()}
        return cls(version, found) if found else None


class Cgroup(_Group):
    """One of ours."""

    def join_files(self) -> list[Path]:
        """Files into each of which a process writes its id to join."""
        return [path / "cgroup.procs" for path in self._paths()]

    def kill(self) -> None:
        """End all of it, also when frozen; nothing can start in it afterwards. Safe to call twice.

        Raises SandboxError when something does not die (a process in uninterruptible sleep).
        """
        try:
            self._folders["pids"].joinpath("pids.max").write_text("0")  # no fork outruns us
        except FileNotFoundError:
            return  # removed
        kill_file = self._folders["pids"] / "cgroup.kill"  # version 2 since Linux 5.14
        if kill_file.exists():
            kill_file.write_text("1")
        elif self.version == 1 or self.can_freeze():
            self._order(False)  # a frozen process does not die

        def ended() -> bool:
            _kill_all(self.processes)
            return not self.processes()

        if not _until(ended, _KILL_S):
            raise SandboxError(f"processes {self.processes()} of a control group do not die")

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
    def find(cls, process: Path = _SELF) -> Cgroups | None:
        """The nearest place to our own group where limits can be set; None if there is none.

        In version 2 that is our own group or one above it, since a group that has processes hands no
        controllers down. `process`: our folder in /proc.
        """
        version, own = _groups_of(process)
        if version == 2:
            for folder in _upwards(own["freezer"], _unified_mount(process)):
                enabled = _handed_down(folder)
                if enabled >= _NEEDED:
                    return cls(2, dict.fromkeys(sorted(enabled), folder))
            return None
        usable = {name: folder for name, folder in own.items() if os.access(folder, os.W_OK)}
        return cls(1, usable) if usable.keys() >= _NEEDED else None

    def facts(self) -> dict[str, str]:
        """What the groups made here really limit, for the record."""
        real = sorted(self.folders.keys() - _ALWAYS_IN_V2)
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
        full = f"liftbench-{os.getpid()}-{_start_time(os.getpid())}-{_pid_namespace()}-{name}"
        wanted = {"cpu": cpus is not None, "cpuset": cpu_set is not None}
        lacking = [controller for controller, asked in wanted.items() if asked] - self.folders.keys()
        if lacking:
            raise SandboxError(f"control groups here have no {' and no '.join(sorted(lacking))} limit")
        used = {k: v / full for k, v in self.folders.items() if wanted.get(k, True)}
        group = Cgroup(self.version, used)
        try:
            for path in dict.fromkeys(used.values()):
                path.mkdir()
            if memory_bytes is not None:
                self._limit_memory(used["memory"], memory_bytes)
            if processes is not None:
                (used["pids"] / "pids.max").write_text(str(processes))
            if cpus is not None:
                self._limit_cpu(used["cpu"], int(cpus * _CPU_PERIOD_US))
            if cpu_set is not None:
                self._limit_cores(used["cpuset"], ",".join(str(n) for n in sorted(cpu_set)))
        except OSError as error:
            group.remove()
            raise SandboxError(f"control group {full} could not be made: {error}") from error
        return group

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


def _start_time(pid: int) -> str | None:
    """When a process started, in clock ticks since boot; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except (FileNotFoundError, ProcessLookupError):
        return None


def _pid_namespace() -> str:
    """Our PID namespace's number: in another one, the same process id means another process."""
    return re.sub(r"\D", "", str(Path("/proc/self/ns/pid").readlink()))


def _is_left_over(name: str) -> bool:
    found = _NAME.match(name)
    if found is None or found[3] != _pid_namespace():
        return False
    return _start_time(int(found[1])) != found[2]


# --- where groups are ---------------------------------------------------------------------------


def _mounts(process: Path) -> list[tuple[str, str, Path, list[str]]]:
    """Type, root, place and options of mounted control group hierarchies (proc(5), mountinfo)."""
    found = []
    for line in (process / "mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind in ("cgroup", "cgroup2"):
            words = before.split(" ")
            found.append((kind, words[3], Path(words[4]), options.split(",")))
    return found


def _unified_mount(process: Path) -> Path:
    return next(place for kind, _, place, _ in _mounts(process) if kind == "cgroup2")


def _groups_of(process: Path) -> tuple[int, dict[str, Path]]:
    """Version, and by controller the folder of a process's group, as our own mounts show it.

    Version 2 where it has the controllers that we need; on a hybrid system version 1 holds them.
    """
    paths = {}
    for line in (process / "cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        paths |= dict.fromkeys(controllers.split(","), path)
    old: dict[str, Path] = {}
    for kind, root, place, options in _mounts(_SELF if process.name.isdigit() else process):
        names = [""] if kind == "cgroup2" else [o for o in options if o in _NEEDED | _USEFUL]
        for name in names:
            path = Path(paths.get(name, "/nowhere"))
            if not path.is_relative_to(root):
                continue
            folder = place / path.relative_to(root)
            if kind == "cgroup":
                old.setdefault(name, folder)
            elif _NEEDED <= _listed(place / "cgroup.controllers") | _ALWAYS_IN_V2:
                here = _listed(folder / "cgroup.controllers") & (_NEEDED | _USEFUL)
                return 2, dict.fromkeys(sorted(here | _ALWAYS_IN_V2), folder)
    return 1, old


def _listed(file: Path) -> set[str]:
    return set(file.read_text().split()) if file.exists() else set()


def _upwards(folder: Path, top: Path) -> list[Path]:
    """`folder` and those above it, up to the hierarchy's top, as far as we may make groups and join them."""
    found = []
    for place in [folder, *folder.parents]:
        if os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK):
            found.append(place)
        if place == top:
            break
    return found


def _handed_down(folder: Path) -> set[str]:
    """Controllers that groups below `folder` have, after asking for those that we can use."""
    control = folder / "cgroup.subtree_control"
    for name in sorted((_listed(folder / "cgroup.controllers") & (_NEEDED | _USEFUL)) - _listed(control)):
        with contextlib.suppress(OSError):  # EBUSY: it has processes; the answer is read below
            control.write_text(f"+{name}")
    return (_listed(control) & (_NEEDED | _USEFUL)) | _ALWAYS_IN_V2
