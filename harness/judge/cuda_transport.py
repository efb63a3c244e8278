"""The CUDA transport: which way of sharing device memory works here, and what precedes a reveal.

The way is chosen once, by trying it, and a way that was refused is named with its reason.
"""

from __future__ import annotations

import os

import torch

from harness.device.cuda.device import Device
from harness.device.cuda.driver import L2_CACHE_BYTES, POSIX_EXPORT, VIRTUAL_MEMORY, Driver
from harness.errors import DeviceError
from harness.judge.cuda_memory import IpcMemory, SharedBlock, VmmMemory
from harness.judge.memory import Memory

FLUSH_BYTES = 256 << 20
"""protocols.md: Hopper's L2 is 50 MB; this is also above twice what the driver says of an H200 (60 MB)."""
_LIVE_BYTES = 1 << 30
_LIVE_SHARE = 16
"""Of device memory: an arena, its inputs, the snapshot and the truth together stay under a quarter."""


def open_cuda(device: str) -> CudaTransport:
    """The transport of a GPU, by UUID or index. Raises DeviceError when it cannot be opened."""
    return CudaTransport(device)


class CudaTransport:
    """One GPU, open in the judge's process. Close it when its workers are gone."""

    def __init__(
        self, device: str | None = None, *, driver: Driver | None = None, tensors: torch.device | None = None
    ) -> None:
        """`device`: UUID or index. `driver`, `tensors`: for a stand-in whose memory is the host's.

        Raises DeviceError when there is no such GPU, or neither way of sharing works.
        """
        self.gpu = Device(Driver() if driver is None else driver, device)
        self.device = torch.device("cuda", self.gpu.ordinal) if tensors is None else tensors
        self.stops_with_process = False
        self._flush = self._byte = 0
        self._shared: SharedBlock | None = None
        try:
            self._reason = self._refused()
            if self._reason is not None:
                self._shared = SharedBlock(self.gpu)
                self._try_ipc(self._shared)
            self.live_bytes = min(_LIVE_BYTES, self.gpu.total_bytes // _LIVE_SHARE)
            self._flush = self.gpu.allocate(FLUSH_BYTES)
        except BaseException:
            self.close()
            raise

    def _refused(self) -> str | None:
        """Why memory cannot be shared by descriptor; None where it can."""
        for number, what in ((VIRTUAL_MEMORY, "virtual memory"), (POSIX_EXPORT, "export by descriptor")):
            if not self.gpu.attribute(number):
                return f"the device does not support {what}"
        try:
            mapping = self.gpu.map(1)
        except DeviceError as error:
            return str(error)
        try:
            os.close(self.gpu.export(mapping))
        except DeviceError as error:
            return str(error)
        finally:
            self.gpu.unmap(mapping)
        return None

    def _try_ipc(self, shared: SharedBlock) -> None:
        try:
            self.gpu.ipc_handle(shared.of_size(1)[0])
        except DeviceError as error:
            raise DeviceError(
                f"device memory cannot be shared. By descriptor: {self._reason}. By IPC: {error}"
            ) from error

    @property
    def name(self) -> str:
        """`cuda-vmm`, or `cuda-ipc` where descriptors are refused."""
        return "cuda-vmm" if self._shared is None else "cuda-ipc"

    def allocate(self, size: int, kept: int | None = None) -> Memory:
        """Device memory that no worker has seen. Raises CudaError."""
        if kept is not None and kept < size:
            torch.cuda.empty_cache()  # a large set: what PyTorch has cached of earlier ones is needed
        if self._shared is None:
            return VmmMemory(self.gpu, size, self.device, kept)
        return IpcMemory(self.gpu, size, self.device, self._shared, kept)

    def before_reveal(self) -> None:
        """Release lines that a worker made persist in L2, write more than L2 holds, wait."""
        self.gpu.call("cuCtxResetPersistingL2Cache")
        self._byte = (self._byte + 1) % 256
        self.gpu.fill(self._flush, self._byte, FLUSH_BYTES)
        self.gpu.synchronize()

    def wait(self) -> None:
        """Until the device is idle as far as the judge is concerned."""
        self.gpu.synchronize()

    def facts(self) -> dict[str, str]:
        """For the record."""
        major, minor = self.gpu.driver.version
        facts = {
            "transport": self.name,
            "device": self.gpu.name,
            "driver": f"CUDA {major}.{minor}",
            "L2": f"{self.gpu.attribute(L2_CACHE_BYTES) >> 20} MiB",
            "caches": f"persisting lines reset, {FLUSH_BYTES >> 20} MiB written before each reveal",
        }
        if self._reason is not None:
            facts["not by descriptor"] = self._reason
            facts["reveal"] = "hot: inputs are copied while the clock runs"
        return facts

    def close(self) -> None:
        """Give everything back. Safe to call twice."""
        if self._flush:
            self.gpu.free(self._flush)
            self._flush = 0
        if self._shared is not None:
            self._shared.close()
        self.gpu.close()
