"""How long a job's tasks could have run while other processes of the machine had the cores.

Three accounts of the kernel decide: what the tasks waited for a core (schedstat), what they ran (their
control group, else themselves and the children they have waited for), and what the cores did (/proc/stat).
What a job does to itself counts for nothing: waiting for its own tasks, for cores that it does not use
though they are idle, or at a priority below ours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_NICE, _POLICY = 16, 38
"""Fields of /proc/PID/stat behind the command, as the four below."""
_TIMES = slice(11, 15)


@dataclass(frozen=True)
class Cores:
    """What some cores did since the machine's start, in seconds."""

    busy_s: float
    idle_s: float
    stolen_s: float
    """By other virtual machines."""


@dataclass(frozen=True)
class Sample:
    """A job's tasks and the cores that they may use."""

    cores: int
    did: Cores
    ran_s: float
    """CPU time of the job, tasks that have ended included."""
    waited_s: Mapping[int, float] = field(default_factory=dict)
    """By task: how long it was runnable and did not run."""


def starved_s(before: Sample, after: Sample) -> float:
    """For how long in between others had the cores that the job could have used: a job that could have used
    two and had one starved for half of the time, and one that slept did not."""
    ran = max(0.0, after.ran_s - before.ran_s)
    busy = max(ran, after.did.busy_s - before.did.busy_s)
    idle = after.did.idle_s - before.did.idle_s
    stolen = after.did.stolen_s - before.did.stolen_s
    passed = (busy + idle + stolen) / after.cores
    waited = sum(max(0.0, s - before.waited_s.get(task, 0.0)) for task, s in after.waited_s.items())
    if passed <= 0:
        return 0.0
    if busy > 0:
        waited += stolen * ran / busy
    wanted = min(ran + waited, after.cores * passed)
    others = busy - ran + stolen
    lost = max(0.0, min(wanted - ran - idle, others))
    return lost / max(1.0, wanted / passed)


class Starvation:
    """Adds it up for one job; see `starved_s`."""

    def __init__(self, cores: Iterable[int] | None = None, proc: Path = _PROC) -> None:
        """`cores`: those that the job may use; ours by default."""
        self._cores = frozenset(os.sched_getaffinity(0) if cores is None else cores)
        self._proc = proc
        self._last: Sample | None = None
        self.seconds: float | None = 0.0 if (proc / "self/schedstat").exists() else None
        """None where the kernel keeps no such account."""

    def look(self, pids: Iterable[int], cpu_s: float | None) -> None:
        """Look at the job again. `pids`: its processes; `cpu_s`: by its control group."""
        if self.seconds is None:
            return
        sample = self._sample(pids, cpu_s)
        if self._last is not None:
            self.seconds += starved_s(self._last, sample)
        self._last = sample

    def _sample(self, pids: Iterable[int], cpu_s: float | None) -> Sample:
        ran, waited = 0.0, dict[int, float]()
        ours = _stat(self._proc / "self/task" / str(os.getpid()))
        for pid in pids:
            process = _stat(self._proc / str(pid))
            if process is None:
                continue
            ran += sum(int(word) for word in process[_TIMES]) * _TICK_S
            for task in _names(self._proc / str(pid) / "task"):
                stat = _stat(self._proc / str(pid) / "task" / task)
                if stat is None or ours is None or _yields(stat, ours):
                    continue
                waited[int(task)] = _waited_s(self._proc / str(pid) / "task" / task)
        return Sample(
            cores=len(self._cores),
            did=_cores(self._proc, self._cores),
            ran_s=ran if cpu_s is None else cpu_s,
            waited_s=waited,
        )


def _yields(task: list[str], ours: list[str]) -> bool:
    """Whether it has given itself less than its share: its priority is below ours, or another kind."""
    return int(task[_NICE]) > int(ours[_NICE]) or task[_POLICY] != ours[_POLICY]


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []  # it has ended


def _stat(folder: Path) -> list[str] | None:
    """The fields behind the command; None when it has ended."""
    try:
        return (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _waited_s(folder: Path) -> float:
    try:
        return int((folder / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0


def _cores(proc: Path, wanted: frozenset[int]) -> Cores:
    busy = idle = stolen = 0
    for line in (proc / "stat").read_text().splitlines():
        name, *words = line.split()
        if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in wanted:
            user, nice, system, still, waiting, interrupts, soft, steal = (int(word) for word in words[:8])
            busy += user + nice + system + interrupts + soft
            idle += still + waiting
            stolen += steal
    return Cores(busy * _TICK_S, idle * _TICK_S, stolen * _TICK_S)
