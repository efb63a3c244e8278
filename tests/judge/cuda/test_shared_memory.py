"""Which way of sharing is chosen, what is said of it, and what precedes a reveal."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.device.cuda import CudaError, Device
from harness.errors import DeviceError
from harness.judge.device_kernels import FLUSH_BYTES
from harness.judge.keystream import SecretGenerator
from harness.judge.shared_memory import (
    CudaTransport,
    IpcMemory,
    SharedBlock,
    TorchCache,
    Transport,
    VmmMemory,
)
from tests.fakes.cuda_driver import UUID, FakeDriver

CPU = torch.device("cpu")
NO_EXPORT = "cuMemExportToShareableHandle=801"


def opened(driver: FakeDriver, device: str | None = None) -> CudaTransport:
    return CudaTransport(device, driver=driver, tensors=CPU)


def test_descriptors_come_first(driver: FakeDriver) -> None:
    """Where export works it is used, and nothing needs explaining."""
    transport: Transport = opened(driver)
    facts = transport.facts()
    assert (transport.name, facts["transport"], facts["device"]) == ("cuda-vmm", "cuda-vmm", "Made-up GPU")
    assert "not by descriptor" not in facts
    assert not transport.stops_with_process
    transport.close()


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("LIFTBENCH_FAKE_CUDA", NO_EXPORT, "cuMemExportToShareableHandle failed: CUDA_ERROR_NOT_SUPPORTED"),
        ("LIFTBENCH_FAKE_CUDA", "cuMemCreate=801", "cuMemCreate failed"),
        ("LIFTBENCH_FAKE_CUDA_NO_EXPORT", "1", "the device does not support export by descriptor"),
    ],
)
def test_ipc_is_the_fallback(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, reason: str
) -> None:
    """Where descriptors are refused, legacy IPC is used; the reason and what it costs are in the facts."""
    monkeypatch.setenv(variable, value)
    transport = opened(driver)
    assert transport.name == "cuda-ipc"
    assert reason in transport.facts()["not by descriptor"]
    assert transport.facts()["reveal"].startswith("hot")
    memory = transport.allocate(100)
    assert "ipc_handle" in memory.handle().fields
    memory.close()
    transport.close()


def test_neither_way_is_an_error_with_both_reasons(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is graded on a device whose memory cannot be shared."""
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{NO_EXPORT} cuIpcGetMemHandle=800")
    with pytest.raises(DeviceError, match=r"By descriptor: cuMemExport.*By IPC: cuIpcGetMemHandle"):
        opened(driver)


def test_a_device_is_found_by_uuid_or_index(driver: FakeDriver) -> None:
    """As NVML and MIG write it; for any other the error says where the right names are."""
    for device in (UUID, UUID.upper().replace("GPU", "MIG"), "0", None):
        transport = opened(driver, device)
        assert transport.gpu.ordinal == 0
        transport.close()
    for device in ("1", "GPU-00000000-0000-0000-0000-000000000000", "gpu0"):
        with pytest.raises(DeviceError, match=r"no GPU .*nvidia-smi -L"):
            opened(driver, device)


def test_a_reveal_is_preceded_by_a_flush(driver: FakeDriver) -> None:
    """Persisting lines are reset, more than any L2 is written, and the device is idle when it returns."""
    transport = opened(driver)
    names = ("cuCtxResetPersistingL2Cache", "cuLaunchKernel", "cuCtxSynchronize")
    before = [driver.calls(name) for name in names]
    transport.before_reveal()
    transport.before_reveal()
    assert [driver.calls(name) - count for name, count in zip(names, before, strict=True)] == [2, 2, 2]
    assert FLUSH_BYTES >= 4 * (60 << 20)
    transport.close()


def test_inputs_are_drawn_on_the_device(driver: FakeDriver) -> None:
    """A generator on a device launches one kernel per draw, and draws what it would on the host."""
    transport, key = opened(driver), bytes(range(32))
    here, there = SecretGenerator(key), SecretGenerator(key, CPU, transport.kernels)
    before = driver.calls("cuLaunchKernel")
    for shape in ((), (3,), (2, 0), (5, 77)):
        assert torch.equal(here.normal(shape), there.normal(shape))
        assert torch.equal(here.uniform(shape, -1.5, 0.3), there.uniform(shape, -1.5, 0.3))
        assert torch.equal(here.integers(shape, 2, 9), there.integers(shape, 2, 9))
    assert driver.calls("cuLaunchKernel") - before == 9  # none for a shape without elements
    transport.close()


@pytest.mark.parametrize("call", ["cuInit", "cuDeviceGetAttribute", "cuMemAlloc_v2"])
def test_a_device_that_cannot_be_opened_is_given_back(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Whatever fails while opening, the error names it and nothing is held."""
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{call}=999")
    with pytest.raises(CudaError, match=f"^{call} failed"):
        opened(driver)
    assert driver.live == 0


@pytest.mark.parametrize(
    ("variable", "value", "says"),
    [
        ("LIFTBENCH_FAKE_CUDA_MPS", "1", r"^MPS runs.*echo quit \| nvidia-cuda-mps-control"),
        ("LIFTBENCH_FAKE_CUDA", "cuCtxResetPersistingL2Cache=801", "MIG instance.*nvidia-smi -mig 0"),
    ],
)
def test_a_gpu_that_others_share_is_refused_by_name(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, says: str
) -> None:
    """MPS and MIG, with what to do; a driver that does not know the question about MPS is no obstacle."""
    monkeypatch.setenv(variable, value)
    with pytest.raises(DeviceError, match=says):
        opened(driver)
    assert driver.live == 0
    monkeypatch.delenv(variable)
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", "cuDeviceGetAttribute=1-1")
    opened(driver, UUID).close()


class Cache(TorchCache):
    freed, unused = 0, 0

    def unused_bytes(self, device: torch.device) -> int:
        return self.unused

    def free(self) -> None:
        self.freed += 1


@pytest.mark.parametrize(
    ("no_export", "call"), [(None, "cuMemCreate"), ("1", "cuMemAlloc_v2")], ids=["by descriptor", "by IPC"]
)
def test_memory_that_torch_has_cached_is_given_back(
    driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, no_export: str | None, call: str
) -> None:
    """Before a plan, before a reveal where it is much, and where memory is short; twice short is an error."""
    if no_export:
        monkeypatch.setenv("LIFTBENCH_FAKE_CUDA_NO_EXPORT", no_export)
    cache = Cache()
    transport = CudaTransport(driver=driver, tensors=CPU, cache=cache)

    def freed_by(act: Callable[[], object]) -> int:
        before = cache.freed
        act()
        return cache.freed - before

    def allocate(size: int) -> Callable[[], None]:
        return lambda: transport.allocate(size).close()

    cache.unused = 1 << 20
    assert [freed_by(act) for act in (transport.before_plan, transport.before_reveal)] == [1, 0]
    assert freed_by(allocate(100)) == 0
    cache.unused = 1 << 30
    assert freed_by(transport.before_reveal) == 1

    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{call}=2@{driver.calls(call) + 1}-1")
    assert freed_by(allocate(20 << 20)) == 1
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{call}=2@{driver.calls(call) + 1}-2")
    with pytest.raises(CudaError, match=f"^{call} failed: CUDA_ERROR_OUT_OF_MEMORY"):
        transport.allocate(80 << 20)
    transport.close()


def test_a_lost_context_is_told(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sticky error every call fails, and the error says that the process must end."""
    transport = opened(driver)
    held = driver.live
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", "cuCtxSynchronize=700!")
    with pytest.raises(CudaError, match=r"end this process"):
        transport.before_reveal()
    monkeypatch.delenv("LIFTBENCH_FAKE_CUDA")
    with pytest.raises(CudaError, match=r"CUDA_ERROR_ILLEGAL_ADDRESS"):
        transport.allocate(10)
    assert driver.live == held
    driver.heal()
    transport.close()


UNIT = 2 << 20


@pytest.fixture
def shared(gpu: Device) -> Iterator[SharedBlock]:
    block = SharedBlock(gpu)
    yield block
    block.close()


def test_a_descriptor_shows_the_memory_and_a_snapshot_is_private(gpu: Device) -> None:
    """What the judge writes is what lies behind the descriptor, and nothing but zeros lies after it; what a
    worker writes after the snapshot is not in that."""
    memory = VmmMemory(gpu, 1000, CPU)
    memory.data.copy_(torch.arange(1000, dtype=torch.int64).to(torch.uint8))
    handle = memory.handle()
    assert handle.descriptor is not None
    with mmap.mmap(handle.descriptor, handle.fields["mapped_bytes"]) as mapped:
        view = torch.frombuffer(bytearray(mapped), dtype=torch.uint8)
    assert torch.equal(view[:1000], memory.data)
    assert view.numel() == UNIT and not view[1000:].any()
    memory.close()


def test_memory_that_a_worker_saw_is_never_used_again(gpu: Device) -> None:
    """A worker that keeps what it mapped sees nothing of a later allocation."""
    kept = []
    for value in (1, 2, 3):
        memory = VmmMemory(gpu, 64, CPU)
        memory.data.fill_(value)
        descriptor = memory.handle().descriptor
        assert descriptor is not None
        kept.append(os.dup(descriptor))
        memory.close()
    found = []
    for descriptor in kept:
        with mmap.mmap(descriptor, UNIT) as view:
            found.append(view[0])
        os.close(descriptor)
    assert found == [1, 2, 3]


@pytest.mark.parametrize("step", ["cuMemCreate", "cuMemSetAccess", "cuMemExportToShareableHandle"])
def test_a_step_that_fails_gives_back_the_earlier_ones(
    gpu: Device, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever fails, nothing is held, and the error names the step."""
    before = driver.live
    monkeypatch.setenv("LIFTBENCH_FAKE_CUDA", f"{step}=2")
    with pytest.raises(CudaError, match=f"^{step} failed: CUDA_ERROR_OUT_OF_MEMORY"):
        VmmMemory(gpu, 1000, CPU)
    assert driver.live == before


def test_ipc_reveals_by_copying(gpu: Device, shared: SharedBlock) -> None:
    """The shared block holds data from handle() to close(), and not before or after."""
    memory = IpcMemory(gpu, 1000, CPU, shared)
    view = memory.shared
    memory.data.fill_(5)
    assert not view.any()
    assert len(bytes.fromhex(memory.handle().fields["ipc_handle"])) == 64
    assert bool((view == 5).all())
    view.fill_(6)  # as a worker does
    assert bool((memory.shared == 6).all())
    memory.close()
    assert not view.any()


def test_an_outgrown_block_stays_allocated(gpu: Device, shared: SharedBlock, driver: FakeDriver) -> None:
    """A worker that has the old block open does not see what the new one holds."""
    small = IpcMemory(gpu, 1000, CPU, shared)
    small.close()
    before = driver.live
    large = IpcMemory(gpu, 5 << 20, CPU, shared)
    assert driver.live == before + 1
    assert large.handle().fields != small.handle().fields
    large.close()
    again = IpcMemory(gpu, 10, CPU, shared)
    assert again.handle().fields == large.handle().fields
    again.close()
