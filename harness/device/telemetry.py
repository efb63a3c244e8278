"""Samples the machine before and after a candidate's turn and decides whether the turn counts.

A turn is called disturbed by what the machine shows, never by the figures measured in it. Load that the timed
process causes never discards its turn, or it could discard slow ones. Heat does; too many discards are
flagged. Unknown facts disturb nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.records.timing import BlockTelemetry, Extent
from sandboxes.nvml import GpuState, open_nvml

MOST_DROPPED: Final = 0.10
"""Largest share of disturbed blocks of a calibration that is not called noisy (our choice)."""
MOST_STEAL: Final = 0.05
"""Most steal in a turn, as a share of one core (our choice): outside and inside figures agree within 0.10."""
STEAL_TICKS: Final = 2
"""The kernel counts steal in ticks of 10 ms: a single one means nothing in a short turn."""
LOWEST_CLOCK: Final = 0.90
"""Least share of the SM clock before the turn: boost varies by 10 to 30 %."""
GPU_PROCESSES: Final = 2
"""Judge and one worker: at most one worker with a context lives while timing."""
# NVML's reasons that something is wrong; a power cap is reached by heavy kernels themselves.
_SLOWED: Final = {
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "power brake",
}
_READINGS, _SETTLE_S = 4, 0.001
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class TelemetrySample:
    """One reading of the machine; None is unknown. Counters are since boot, over all cores."""

    at_s: float
    cores: int
    runnable: int | None = None
    """Runnable threads on the whole machine, the sampling one included."""
    cpu_mhz: float | None = None
    steal_s: float | None = None
    """Time in which the hypervisor ran something else."""
    cpu_wait_s: float | None = None
    """Time in which some thread waited for a core (pressure stall information)."""
    interrupts: int | None = None
    softirqs: int | None = None
    gpu: GpuState | None = None
    gpu_processes: int | None = None
    """Processes with a compute context on that GPU."""


SamplePair = tuple[TelemetrySample, TelemetrySample]
"""Before and after a turn."""


class Telemetry:
    """Samples the kernel's counters, and NVML's of one GPU. Only between turns: a sample took 0.1 ms on a
    2-core host (NVML: not measured). Close it when done."""

    def __init__(
        self,
        gpu_uuid: str | None = None,
        proc: Path = Path("/proc"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without NVML `gpu_uuid` is ignored. Raises NvmlError."""
        self._uuid = gpu_uuid or ""
        self._nvml = None if gpu_uuid is None else open_nvml()
        self._proc = proc
        self._clock = clock

    def sample(self) -> TelemetrySample:
        # First: clocks fall soon after the GPU's work is done.
        gpu = None if self._nvml is None else self._nvml.state(self._uuid)
        stat, cores = self._text("stat"), os.cpu_count() or 1
        runnable = self._runnable(cores)
        lines, fields = self._text("cpuinfo").splitlines(), stat.partition("\n")[0].split()
        mhz = [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]
        waited = self._text("pressure/cpu").partition("\n")[0]
        total = waited.rpartition("total=")[2]
        return TelemetrySample(
            gpu=gpu,
            gpu_processes=None if self._nvml is None else len(self._nvml.processes(self._uuid)),
            at_s=self._clock(),
            cores=cores,
            runnable=runnable,
            cpu_mhz=sum(mhz) / len(mhz) if mhz else None,
            steal_s=int(fields[8]) * _TICK_S if len(fields) > 8 and fields[0] == "cpu" else None,
            cpu_wait_s=int(total) / 1e6 if waited.startswith("some") and total.isdecimal() else None,
            interrupts=_counter(stat, "intr"),
            softirqs=_counter(stat, "softirq"),
        )

    def _runnable(self, cores: int) -> int | None:
        """Runnable threads; the least of a few readings where they are more than cores. Linux 6.12 and later
        count threads that have just gone to sleep."""
        least: int | None = None
        for _ in range(_READINGS):
            loads = self._text("loadavg").split()
            seen = loads[3].partition("/")[0] if len(loads) > 3 else ""
            if not seen.isdecimal():
                return None
            least = int(seen) if least is None else min(least, int(seen))
            if least <= cores:
                break
            time.sleep(_SETTLE_S)
        return least

    def _text(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""

    def close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()


def _counter(stat: str, name: str) -> int | None:
    line = next((line for line in stat.splitlines() if line.startswith(f"{name} ")), "")
    return int(line.split()[1]) if line else None


@dataclass
class Watched:
    """What was seen during a turn; complete when the turn is over."""

    reason: str | None = None
    """Why the turn does not count; None if it does."""
    samples: SamplePair | None = None


class Conditions:
    def __init__(
        self,
        telemetry: Telemetry,
        kept_processes: int = 0,
        *,
        around_turns: bool = False,
        doubt: Callable[[], str | None] = lambda: None,
    ) -> None:
        """`kept_processes`: our own, frozen on the GPU. `around_turns`: sample while no candidate runs, so
        that one cannot have its slow turns dropped by its own threads; not on a GPU, whose clocks fall as
        soon as its process has ended. `doubt`: asked before a turn for a reason against it."""
        self.around_turns = around_turns
        self._telemetry = telemetry
        self._kept_processes = kept_processes
        self._doubt = doubt

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        watched, doubt = Watched(), self._doubt()
        before = self._telemetry.sample()
        yield watched
        watched.samples = (before, self._telemetry.sample())
        watched.reason = doubt or disturbed(*watched.samples, self._kept_processes)


def disturbed(before: TelemetrySample, after: TelemetrySample, kept_processes: int = 0) -> str | None:
    """Why a turn between two samples does not count; None if it does."""
    for sample in (before, after):
        if sample.runnable is not None and sample.runnable > sample.cores:
            return f"more threads than its {sample.cores} cores were runnable"
        if sample.gpu_processes is not None and sample.gpu_processes > GPU_PROCESSES + kept_processes:
            return f"{sample.gpu_processes} processes use the GPU"
    elapsed_s = after.at_s - before.at_s
    stolen_s = _difference(before.steal_s, after.steal_s) or 0.0
    if stolen_s >= STEAL_TICKS * _TICK_S and stolen_s > MOST_STEAL * elapsed_s:
        return "the hypervisor took time from it"
    if before.gpu is None or after.gpu is None:
        return None
    return _gpu_disturbed(before.gpu, after.gpu)


def _gpu_disturbed(before: GpuState, after: GpuState) -> str | None:
    for state in (before, after):
        slowed = [reason for reason in state.held_down_by or () if reason in _SLOWED]
        if slowed:
            return f"the GPU's clocks are held down by: {', '.join(slowed)}"
    capped = "power cap" in (after.held_down_by or ())  # a kernel that draws much power lowers its own clock
    if not before.sm_mhz or after.sm_mhz is None or capped:
        return None
    if after.sm_mhz < LOWEST_CLOCK * before.sm_mhz:
        return f"the SM clock fell from {before.sm_mhz} to {after.sm_mhz} MHz"
    return None


def block_telemetry(block: int, turns: Sequence[SamplePair], reasons: Sequence[str]) -> BlockTelemetry:
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
