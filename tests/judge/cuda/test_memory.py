"""Device memory that judge and worker share, over the stand-in: what a worker can see of it, and when."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.device.cuda import CudaError, Device
from harness.judge.cuda_transport import IpcMemory, SharedBlock, VmmMemory
from tests.fakes.cuda_driver import FakeDriver

CPU = torch.device("cpu")
UNIT = 2 << 20


@pytest.fixture
def gpu(driver: FakeDriver) -> Iterator[Device]:
    device = Device(driver)
    yield device
    device.close()


@pytest.fixture
def shared(gpu: Device) -> Iterator[SharedBlock]:
    block = SharedBlock(gpu)
    yield block
    block.close()


def seen(memory: VmmMemory) -> torch.Tensor:
    handle = memory.handle()
    assert handle.descriptor is not None
    with mmap.mmap(handle.descriptor, handle.fields["mapped_bytes"]) as view:
        return torch.frombuffer(bytearray(view), dtype=torch.uint8)


def test_a_descriptor_shows_the_memory(gpu: Device) -> None:
    """What the judge writes is what lies behind the descriptor, and nothing but zeros lies after it."""
    memory = VmmMemory(gpu, 1000, CPU)
    memory.data.copy_(torch.arange(1000, dtype=torch.int64).to(torch.uint8))
    view = seen(memory)
    assert torch.equal(view[:1000], memory.data)
    assert view.numel() == UNIT
    assert not view[1000:].any()
    memory.close()


def test_a_snapshot_is_private(gpu: Device) -> None:
    """What a worker writes after the snapshot is not in it."""
    memory = VmmMemory(gpu, 64, CPU)
    memory.data.fill_(7)
    first = memory.take()
    memory.data.fill_(9)
    assert set(first.tolist()) == {7}
    assert set(memory.take().tolist()) == {9}
    assert set(first.tolist()) == {7}
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


STEPS = [
    "cuMemGetAllocationGranularity",
    "cuMemCreate",
    "cuMemAddressReserve",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemsetD8Async",
    "cuMemExportToShareableHandle",
]


@pytest.mark.parametrize("step", STEPS)
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
    assert bool((memory.take() == 6).all())
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


def test_a_context_is_current_in_every_thread(gpu: Device) -> None:
    """Contexts belong to threads; a device serves any of them."""
    import threading

    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(gpu.granularity))
    thread.start()
    thread.join()
    assert found == [UNIT]
