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

_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
_NICE, _POLICY = 16, 38
_TIMES = slice(11, 15)
"""Fields of /proc/PID/stat after the command."""


@dataclass(frozen=True)
class Sample:
    cores: int
    busy_s: float
    """Times of these cores since boot."""
    idle_s: float
    stolen_s: float
    ran_s: float
    """CPU time of the job, ended tasks included."""
    waited_s: Mapping[int, float] = field(default_factory=dict)
    """Run delay by task."""


def starved_s(before: Sample, after: Sample) -> float:
    """How long other processes held cores that the job could have used between two samples.

    A job that could use two cores and had one starved for half of the time; one that slept did not starve.
    """
    ran = max(0.0, after.ran_s - before.ran_s)
    busy = max(ran, after.busy_s - before.busy_s)
    idle = after.idle_s - before.idle_s
    stolen = after.stolen_s - before.stolen_s
    elapsed = (busy + idle + stolen) / after.cores
    waited = sum(max(0.0, s - before.waited_s.get(task, 0.0)) for task, s in after.waited_s.items())
    if elapsed <= 0:
        return 0.0
    if busy > 0:
        waited += stolen * ran / busy
    wanted = min(ran + waited, after.cores * elapsed)
    lost = max(0.0, min(wanted - ran - idle, busy - ran + stolen))
    return lost / max(1.0, wanted / elapsed)


class Starvation:
    def __init__(self, cores: Iterable[int] | None = None, proc: Path = Path("/proc")) -> None:
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
        ours = _words(self._proc / "self/task" / str(os.getpid()) / "stat")
        for pid in pids:
            ran += sum(int(word) for word in _words(self._proc / str(pid) / "stat")[_TIMES]) * _TICK_S
            for task in _entries(self._proc / str(pid) / "task"):
                stat, delay = _words(task / "stat"), _words(task / "schedstat")[1:2]
                if stat and ours and int(stat[_NICE]) <= int(ours[_NICE]) and stat[_POLICY] == ours[_POLICY]:
                    waited[int(task.name)] = int(delay[0]) / 1e9 if delay else 0.0
        return Sample(len(self._cores), *self._core_times(), ran if cpu_s is None else cpu_s, waited)

    def _core_times(self) -> tuple[float, float, float]:
        busy = idle = stolen = 0
        for line in (self._proc / "stat").read_text().splitlines():
            name, *words = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in self._cores:
                user, nice, system, idle_ticks, iowait, irq, softirq, steal = (
                    int(word) for word in words[:8]
                )
                busy += user + nice + system + irq + softirq
                idle += idle_ticks + iowait
                stolen += steal
        return busy * _TICK_S, idle * _TICK_S, stolen * _TICK_S


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def _words(file: Path) -> list[str]:
    """Words of a file in /proc, in `stat` those after the command; empty when its task has ended."""
    try:
        return file.read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []
