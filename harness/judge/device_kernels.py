"""The judge's own kernels on a device: random numbers, poison, restore, flush, and samples of outputs.

Every launch is on the default stream of the device's primary context, which is PyTorch's too, and nothing
waits for it.
"""

from __future__ import annotations

import struct
from ctypes import c_uint, c_ulonglong, c_void_p
from pathlib import Path
from typing import Any, Final

from harness.device.cuda import Device
from harness.errors import HarnessBug
from harness.judge import distributions
from harness.judge.distributions import MAX_WORDS, Distribution

FLUSH_BYTES: Final = 256 << 20
"""Hopper's L2 is 50 MB; this is also above twice what the driver reports of an H200 (60 MB)."""
WIDTHS: Final = (1, 2, 4, 8)
"""Element sizes of `gather`, in bytes."""
_PTX = Path(__file__).with_name("device_kernels.ptx")
_NAMES = ("gather", "fill", "copy", "words", "uniform", "normal", "integers")
_THREADS = 256
_MOST_BLOCKS = 16 * 132
"""Eight blocks of 256 threads fill a multiprocessor, of which an H100 has 132; threads take several steps."""
_UNIT = 16
"""Bytes that a thread writes at a time, and words of a ChaCha20 block."""


class DeviceKernels:
    """Loaded on one device. Close it before the device."""

    def __init__(
        self, device: Device, flush_bytes: int = FLUSH_BYTES, most_blocks: int = _MOST_BLOCKS
    ) -> None:
        """`most_blocks`: of a launch. Raises CudaError."""
        self._most_blocks = most_blocks
        self._device = device
        self.flush_bytes = flush_bytes
        self._flushed = self._lines = self._byte = 0
        self._functions: dict[str, c_void_p] = {}
        self._module: c_void_p | None = device.load(_PTX.read_bytes())
        try:
            self._functions = {name: device.function(self._module, f"liftbench_{name}") for name in _NAMES}
            self._flushed = device.allocate(flush_bytes)
            # Start and slope of each line side by side.
            lines = distributions.lines()[:, distributions.FIRST_SEGMENT :].T.contiguous().numpy().tobytes()
            self._lines = device.allocate(len(lines))
            device.write(self._lines, lines)
        except BaseException:
            self.close()
            raise

    def gather(self, base: int, offsets: int, count: int, width: int, out: int) -> None:
        """Copies the elements of `width` bytes at `base` + offset to `out`, packed.

        `offsets`: (count,) int64 on the device, in bytes, multiples of `width`. Elements are read past L1.
        Raises HarnessBug for a width that is none of WIDTHS, or for addresses that are no multiples of it.
        """
        if width not in WIDTHS or base % width or out % width:
            raise HarnessBug(f"no gather of {width} bytes at {base:#x} to {out:#x}")
        values = c_ulonglong(base), c_ulonglong(offsets), c_ulonglong(count), c_uint(width), c_ulonglong(out)
        self._launch("gather", count, *values)

    def fill(self, pointer: int, byte: int, size: int) -> None:
        """Every one of `size` bytes becomes `byte` (0 to 255)."""
        self._launch("fill", -(-size // _UNIT), c_ulonglong(pointer), c_uint(byte), c_ulonglong(size))

    def copy(self, to: int, source: int, size: int) -> None:
        """Copies `size` bytes; the two ranges must not overlap."""
        self._launch("copy", -(-size // _UNIT), c_ulonglong(to), c_ulonglong(source), c_ulonglong(size))

    def flush(self) -> None:
        """Writes more memory than L2 holds."""
        self._byte = (self._byte + 1) % 256
        self.fill(self._flushed, self._byte, self.flush_bytes)

    def draw(self, key: bytes, nonce: int, count: int, distribution: Distribution, out: int) -> None:
        """Fills (count,) numbers at `out` from the ChaCha20 stream of a 32-byte key and a nonce below 2^96,
        bit for bit those of the host. Raises ValueError when the stream would repeat (256 GiB)."""
        if count > MAX_WORDS:
            raise ValueError(f"{count} words are more than one nonce has")
        parameters = distribution.parameters
        if distribution.name == "normal":
            segments = c_uint(distributions.FIRST_SEGMENT), c_uint(distributions.SEGMENT_SHIFT)
            parameters = c_ulonglong(self._lines), *segments
        words = struct.unpack("<12I", key + bytes(4) + nonce.to_bytes(12, "little"))
        stream = (c_uint * 12)(*words)
        self._launch(
            distribution.name, -(-count // _UNIT), c_ulonglong(out), stream, c_ulonglong(count), *parameters
        )

    def _launch(self, name: str, threads: int, *values: Any) -> None:
        """Launches `threads`, but no more than the device has room for; nothing for none."""
        if threads:
            blocks = min(-(-threads // _THREADS), self._most_blocks)
            self._device.launch(self._functions[name], blocks, _THREADS, *values)

    def close(self) -> None:
        for pointer in filter(None, (self._flushed, self._lines)):
            self._device.free(pointer)
        self._flushed = self._lines = 0
        self._functions = {}
        if self._module is not None:
            self._device.unload(self._module)
            self._module = None
