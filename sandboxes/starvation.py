"""How long a job's tasks were runnable while other processes of the machine held the cores.

Computed from three kernel statistics: run delay of the tasks (schedstat), CPU time of the job (its control
group, else its processes and the children they waited for), and core times (/proc/stat). Self-inflicted
delay does not count: competing with its own tasks, leaving cores idle, or running at a lower priority than
ours.
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
_TIMES = slice(11, 15)
"""Fields of /proc/PID/stat after the command."""


@dataclass(frozen=True)
class Cores:
    """Times of some cores since boot."""

    busy_s: float
    idle_s: float
    stolen_s: float
    """Steal time."""


@dataclass(frozen=True)
class Sample:
    """One measurement of a job's tasks and the cores that they may use."""

    cores: int
    times: Cores
    ran_s: float
    """CPU time of the job, ended tasks included."""
    waited_s: Mapping[int, float] = field(default_factory=dict)
    """Run delay by task."""


def starved_s(before: Sample, after: Sample) -> float:
    """How long other processes held cores that the job could have used between two samples.

    A job that could use two cores and had one starved for half of the time; one that slept did not starve.
    """
    ran = max(0.0, after.ran_s - before.ran_s)
    busy = max(ran, after.times.busy_s - before.times.busy_s)
    idle = after.times.idle_s - before.times.idle_s
    stolen = after.times.stolen_s - before.times.stolen_s
    elapsed = (busy + idle + stolen) / after.cores
    waited = sum(max(0.0, s - before.waited_s.get(task, 0.0)) for task, s in after.waited_s.items())
    if elapsed <= 0:
        return 0.0
    if busy > 0:
        waited += stolen * ran / busy
    wanted = min(ran + waited, after.cores * elapsed)
    others = busy - ran + stolen
    lost = max(0.0, min(wanted - ran - idle, others))
    return lost / max(1.0, wanted / elapsed)


class Starvation:
    """Accumulates starved_s over the life of one job."""

    def __init__(self, cores: Iterable[int] | None = None, proc: Path = _PROC) -> None:
        """`cores`: those that the job may use; by default ours."""
        self._cores = frozenset(os.sched_getaffinity(0) if cores is None else cores)
        self._proc = proc
        self._last: Sample | None = None
        self.seconds: float | None = 0.0 if (proc / "self/schedstat").exists() else None
        """None where the kernel has no schedstat."""

    def poll(self, pids: Iterable[int], cpu_s: float | None) -> None:
        """Sample the job. `pids`: its processes; `cpu_s`: CPU time by its control group."""
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
            times=_cores(self._proc, self._cores),
            ran_s=ran if cpu_s is None else cpu_s,
            waited_s=waited,
        )


def _yields(task: list[str], ours: list[str]) -> bool:
    """Whether it runs at a lower priority than ours, or under another policy."""
    return int(task[_NICE]) > int(ours[_NICE]) or task[_POLICY] != ours[_POLICY]


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except OSError:
        return []


def _stat(folder: Path) -> list[str] | None:
    """Fields of /proc/PID/stat after the command; None when it has ended."""
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
            user, nice, system, idle_ticks, iowait, irq, softirq, steal = (int(word) for word in words[:8])
            busy += user + nice + system + irq + softirq
            idle += idle_ticks + iowait
            stolen += steal
    return Cores(busy * _TICK_S, idle * _TICK_S, stolen * _TICK_S)
