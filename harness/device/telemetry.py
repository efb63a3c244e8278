"""What the machine did while a candidate had its turn, and whether that turn counts.

A turn is called disturbed by what the machine shows, never by the figures measured in it. What the timed
process does by itself does not disturb its turn, or a project could have its slow turns dropped (except by
heat; too many dropped turns are flagged). Unknown facts disturb nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from harness.records.timing import BlockTelemetry, Extent, GpuSample, TelemetrySample
from sandboxes.nvml import Nvml, open_nvml

MOST_DROPPED: Final = 0.10
"""Share of blocks; beyond it the workload is measured once more, then published flagged (protocols.md)."""
MOST_STEAL: Final = 0.05
"""Of one core during a turn [own]: the margin within which an outside and an inside figure agree is 0.10."""
STEAL_TICKS: Final = 2
"""The kernel counts steal in ticks of 10 ms: a single one means nothing in a short turn."""
LOWEST_CLOCK: Final = 0.90
"""Of the SM clock before the turn: boost varies by 10 to 30 % (protocols.md)."""
GPU_PROCESSES: Final = 2
"""Judge and one worker: at most one worker with a context lives while timing."""
# NVML's reasons that something is wrong; a power cap is reached by heavy kernels themselves.
_SLOWED: Final = {
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
}
Turn = tuple[TelemetrySample, TelemetrySample]


class Telemetry(Protocol):
    """Samples the machine. Only between turns: a sample took 0.1 ms on a 2-core host (NVML: not measured)."""

    def sample(self) -> TelemetrySample: ...


class HostTelemetry:
    def __init__(self, proc: Path = Path("/proc"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = proc
        self._clock = clock
        self._ticks_per_s = os.sysconf("SC_CLK_TCK")

    def sample(self) -> TelemetrySample:
        loads, stat = self._text("loadavg").split(), self._text("stat")
        runnable = loads[3].partition("/")[0] if len(loads) > 3 else ""
        lines, fields = self._text("cpuinfo").splitlines(), stat.partition("\n")[0].split()
        mhz = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
        waited = self._text("pressure/cpu").partition("\n")[0]
        total = waited.rpartition("total=")[2]
        return TelemetrySample(
            at_s=self._clock(),
            cores=os.cpu_count() or 1,
            runnable=int(runnable) if runnable.isdecimal() else None,
            load_1m=float(loads[0]) if loads else None,
            cpu_mhz=sum(mhz) / len(mhz) if mhz else None,
            steal_s=int(fields[8]) / self._ticks_per_s if len(fields) > 8 and fields[0] == "cpu" else None,
            cpu_wait_s=int(total) / 1e6 if waited.startswith("some") and total.isdecimal() else None,
            interrupts=_counter(stat, "intr"),
            softirqs=_counter(stat, "softirq"),
        )

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""


def _counter(stat: str, name: str) -> int | None:
    line = next((line for line in stat.splitlines() if line.startswith(f"{name} ")), "")
    return int(line.split()[1]) if line else None


class GpuTelemetry:
    """The kernel's counters, and NVML's of one GPU; close it when done."""

    def __init__(self, uuid: str, nvml: Nvml, host: Telemetry) -> None:
        self._uuid = uuid
        self._nvml = nvml
        self._host = host

    def sample(self) -> TelemetrySample:
        clocks = self._nvml.clocks(self._uuid)
        sensors = self._nvml.sensors(self._uuid)
        gpu = GpuSample(
            sm_mhz=clocks.sm_mhz,
            memory_mhz=clocks.memory_mhz,
            power_w=sensors.power_w,
            temperature_c=sensors.temperature_c,
            held_down_by=clocks.held_down_by,
            processes=len(self._nvml.processes(self._uuid)),
        )
        return self._host.sample().model_copy(update={"gpu": gpu})

    def close(self) -> None:
        self._nvml.close()


def make_telemetry(gpu_uuid: str | None) -> HostTelemetry | GpuTelemetry:
    """For the GPU with that UUID where NVML is available, else for the host alone. Raises NvmlError."""
    nvml = None if gpu_uuid is None else open_nvml()
    if gpu_uuid is None or nvml is None:
        return HostTelemetry()
    return GpuTelemetry(gpu_uuid, nvml, HostTelemetry())


@dataclass
class Watched:
    reason: str | None = None
    samples: Turn | None = None


class Conditions(Protocol):
    @property
    def around_lives(self) -> bool:
        """Whether it samples while no candidate runs, rather than while one waits for its reveals."""

    def watched(self) -> AbstractContextManager[Watched]: ...


class TelemetryConditions:
    around_lives = False
    """A GPU's clocks fall as soon as its process has ended."""

    def __init__(self, telemetry: Telemetry, kept_processes: int = 0) -> None:
        self._telemetry = telemetry
        self._kept_processes = kept_processes

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        watched = Watched()
        before = self._telemetry.sample()
        yield watched
        watched.samples = (before, self._telemetry.sample())
        watched.reason = disturbed(*watched.samples, self._kept_processes)


class HostConditions(TelemetryConditions):
    around_lives = True
    """A candidate's own threads must not be counted: it could have its slow turns dropped."""

    def __init__(self) -> None:
        super().__init__(HostTelemetry())


def disturbed(before: TelemetrySample, after: TelemetrySample, kept_processes: int = 0) -> str | None:
    """Why a turn between two samples does not count. `kept_processes`: our own, frozen on the GPU."""
    for sample in (before, after):
        if sample.runnable is not None and sample.runnable > sample.cores:
            return f"{sample.runnable} threads want {sample.cores} cores"
    elapsed_s = after.at_s - before.at_s
    stolen_s = _difference(before.steal_s, after.steal_s) or 0.0
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    if stolen_s >= STEAL_TICKS * tick_s and stolen_s > MOST_STEAL * elapsed_s:
        return f"the hypervisor took {stolen_s:.2f} of {elapsed_s:.2f} s"
    if before.gpu is None or after.gpu is None:
        return None
    return _gpu_disturbed(before.gpu, after.gpu, kept_processes)


def _gpu_disturbed(before: GpuSample, after: GpuSample, kept_processes: int) -> str | None:
    for sample in (before, after):
        slowed = [reason for reason in sample.held_down_by or () if reason in _SLOWED]
        if slowed:
            return f"the GPU's clocks are held down by: {', '.join(slowed)}"
        if sample.processes is not None and sample.processes > GPU_PROCESSES + kept_processes:
            return f"{sample.processes} processes use the GPU"
    capped = "power cap" in (after.held_down_by or ())  # a kernel that draws much power lowers its own clock
    if not before.sm_mhz or after.sm_mhz is None or capped:
        return None
    if after.sm_mhz < LOWEST_CLOCK * before.sm_mhz:
        return f"the SM clock fell from {before.sm_mhz} to {after.sm_mhz} MHz"
    return None


def block_telemetry(block: int, turns: Sequence[Turn], reasons: Sequence[str]) -> BlockTelemetry:
    samples = [sample for turn in turns for sample in turn]
    gpus = [sample.gpu for sample in samples if sample.gpu is not None]
    runnable = [sample.runnable for sample in samples if sample.runnable is not None]
    held = [reason for gpu in gpus for reason in gpu.held_down_by or ()]
    known = any(gpu.held_down_by is not None for gpu in gpus)
    return BlockTelemetry(
        block=block,
        disturbed=tuple(dict.fromkeys(reasons)),
        runnable_most=max(runnable, default=None),
        steal_s=_difference(samples[0].steal_s, samples[-1].steal_s),
        cpu_wait_s=_difference(samples[0].cpu_wait_s, samples[-1].cpu_wait_s),
        cpu_mhz=_extent(sample.cpu_mhz for sample in samples),
        sm_mhz=_extent(gpu.sm_mhz for gpu in gpus),
        memory_mhz=_extent(gpu.memory_mhz for gpu in gpus),
        power_w=_extent(gpu.power_w for gpu in gpus),
        temperature_c=_extent(gpu.temperature_c for gpu in gpus),
        held_down_by=tuple(dict.fromkeys(held)) if known else None,
    )


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else max(0.0, after - before)


def _extent(values: Iterable[float | None]) -> Extent | None:
    known = [value for value in values if value is not None]
    return Extent(low=min(known), high=max(known)) if known else None
