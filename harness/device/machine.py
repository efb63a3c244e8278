"""Facts about this machine, and the locks that keep it quiet while timing."""

from __future__ import annotations

import fcntl
import os
import platform
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

from harness.builder.toolchain import Toolchain
from harness.locks import flock
from harness.records import MachineFacts
from sandboxes.nvml import Gpu, Nvml, NvmlError, open_nvml

T = TypeVar("T")
_TOPOLOGY: Final = Path("/sys/devices/system/cpu")


def cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")


def _of_gpu(ask: Callable[[Nvml, Gpu], T], uuid: str | None = None) -> T | None:
    """`ask` of the GPU with that UUID, by default of the first; None without one."""
    try:
        nvml = open_nvml()
        if nvml is None:
            return None
        with nvml:
            gpus = [gpu for gpu in nvml.gpus() if uuid in (None, gpu.uuid)]
            return ask(nvml, gpus[0]) if gpus else None
    except NvmlError:
        return None


def gpu_memory_bytes() -> int | None:
    return _of_gpu(lambda nvml, gpu: nvml.memory(gpu.uuid).total_bytes)


def machine_facts(toolchain: Toolchain, gpu_uuid: str | None = None) -> MachineFacts:
    """This machine and its GPU, by default the first. Takes a fraction of a second; torch is not imported."""
    found = _of_gpu(lambda nvml, gpu: (gpu.name, gpu.uuid, nvml.driver_version()), gpu_uuid)
    gpu, uuid, driver = found or (None, None, None)
    cuda = toolchain.cuda
    return MachineFacts(
        platform=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        cpu=cpu_name(),
        cpu_count=os.cpu_count() or 1,
        torch=toolchain.torch_version,
        gpu=gpu,
        gpu_uuid=uuid,
        driver=driver,
        cuda=cuda.version if cuda else None,
        nvcc=cuda.version if cuda else None,
        gxx=toolchain.gxx_version,
    )


def judge_and_worker_cpus(
    allowed: Iterable[int] | None = None, topology: Path = _TOPOLOGY
) -> tuple[frozenset[int] | None, frozenset[int] | None]:
    """One CPU for the judge and one for workers; None, None where there is only one.

    Of two physical cores where there are; and the judge not on CPU 0, which serves most interrupts.
    `allowed`: by default those of this process.
    """
    cpus = sorted(os.sched_getaffinity(0) if allowed is None else allowed)
    if len(cpus) < 2:
        return None, None
    worker = cpus[-1]
    beside = threads_of_core(worker, topology)
    judge = max(cpus[:-1], key=lambda cpu: (cpu not in beside, cpu != 0, cpu))
    return frozenset([judge]), frozenset([worker])


def threads_of_core(cpu: int, topology: Path = _TOPOLOGY) -> set[int]:
    """The CPUs of the same physical core; only itself where that is not known."""
    try:
        listed = (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
        ends = [part.partition("-") for part in listed.split(",")]
        return {n for first, _, last in ends for n in range(int(first), int(last or first) + 1)}
    except (OSError, ValueError):
        return {cpu}


class Cores(NamedTuple):
    """CPUs of one grader: of its judge and its workers while something is timed, and of everything else."""

    judge: frozenset[int] | None
    workers: frozenset[int] | None
    others: frozenset[int]


def cores_of_gpu(
    index: int,
    count: int,
    allowed: Iterable[int] | None = None,
    topology: Path = _TOPOLOGY,
) -> Cores:
    """Two physical cores for each of `count` GPUs, from the last one down, and the rest for builds.

    Where that leaves none for builds, GPUs share the CPUs of `judge_and_worker_cpus`, and so do builds.
    """
    cpus = frozenset(os.sched_getaffinity(0) if allowed is None else allowed)
    cores = sorted({frozenset(threads_of_core(cpu, topology)) & cpus for cpu in cpus}, key=min)
    if len(cores) <= 2 * count:
        return Cores(*judge_and_worker_cpus(cpus, topology), cpus)
    kept, taken = cores[: -2 * count], cores[-2 * count :]
    judge, workers = taken[2 * index : 2 * index + 2]
    return Cores(frozenset([min(judge)]), frozenset([min(workers)]), frozenset[int]().union(*kept))


@contextmanager
def pinned(cpus: frozenset[int] | None) -> Iterator[None]:
    if cpus is None:
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class QuietLock:
    """Readers (builds, checks) and writers (timing) of one device, across processes. A waiting writer is not
    overtaken by new readers."""

    def __init__(self, directory: Path, device: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._what = "the CPU" if device == "cpu" else f"device {device}"
        self._gate = directory / f"{device}.gate"
        self._lock = directory / f"{device}.lock"

    def shared(self) -> AbstractContextManager[None]:
        return self._hold(fcntl.LOCK_SH)

    def exclusive(self) -> AbstractContextManager[None]:
        return self._hold(fcntl.LOCK_EX)

    @contextmanager
    def _hold(self, kind: int) -> Iterator[None]:
        with self._lock.open("w") as lock:
            # A process holds the gate while it waits for the lock, so that readers do not starve a writer.
            with self._gate.open("w") as gate:
                flock(gate, fcntl.LOCK_EX, self._what, self._lock, self._gate)
                flock(lock, kind, self._what, self._lock)
            yield


class Phases:
    """Groups the work of many threads into phases: first they build and check, then they are timed. Timing
    begins when no thread builds or checks any more, and continues until none waits for it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._working = 0
        self._to_time = 0
        self._timing = False

    @contextmanager
    def work(self) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: not self._timing)
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify_all()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Being timed; waits until no thread works."""
        with self._changed:
            self._to_time += 1
            try:
                self._changed.wait_for(lambda: self._timing or self._working == 0)
            except BaseException:
                self._to_time -= 1
                raise
            self._timing = True
        try:
            yield
        finally:
            with self._changed:
                self._to_time -= 1
                self._timing = self._to_time > 0
                self._changed.notify_all()
