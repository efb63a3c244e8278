"""A kernel whose result and time are known: is the device healthy, and as fast as before?

Expected values come from a closed form, never from the device. The kernel keeps the arithmetic units busy,
so its time follows the SM clock, and hardly the memory clock.
"""

from __future__ import annotations

import time
from ctypes import byref, c_float, c_uint, c_ulonglong, c_void_p
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from harness.device.cuda import Device
from harness.device.health import KnownRun
from harness.errors import DeviceError

_PTX = Path(__file__).with_name("known.ptx")
_NAME = "liftbench_known"
_BLOCK = 256
_COUNT = 1 << 20
"""Threads: 31 for each of the 256 x 132 lanes of an H100's schedulers, so all of them are busy."""
_FILL = 0xA5
_FIRST_ROUNDS, _MOST_ROUNDS = 256, 1 << 20
_TARGET_US = 1000.0
_POLL_S = 100e-6
# The generators of known.cu: factor, increment, modulus.
_INTEGER = (1664525, 1013904223, 1 << 32)
_FLOAT = (5, 12345, 1 << 20)


def _after(rounds: int, generator: tuple[int, int, int]) -> tuple[int, int]:
    step, modulus = generator[:2], generator[2]
    factor, increment = 1, 0
    while rounds:
        if rounds & 1:
            factor, increment = factor * step[0] % modulus, (increment * step[0] + step[1]) % modulus
        step = step[0] * step[0] % modulus, (step[1] * step[0] + step[1]) % modulus
        rounds >>= 1
    return factor, increment


def expected(count: int, rounds: int) -> NDArray[np.uint32]:
    """(count,) words that the kernel leaves after `rounds` rounds over bytes of 0xA5."""
    index = np.arange(count, dtype=np.uint64)
    factor, increment = _after(rounds, _INTEGER)
    x = (index * np.uint64(factor) + np.uint64(increment)) & np.uint64(_INTEGER[2] - 1)
    factor, increment = _after(rounds, _FLOAT)
    low = index & np.uint64(_FLOAT[2] - 1)
    f = (low * np.uint64(factor) + np.uint64(increment)) & np.uint64(_FLOAT[2] - 1)
    fill = np.uint64(_FILL * 0x01010101)
    return (x ^ f ^ fill).astype(np.uint32)


class KnownKernel:
    """Loaded on one device. Close it before the device."""

    def __init__(
        self, device: Device, *, count: int = _COUNT, rounds: int = _FIRST_ROUNDS, deadline_s: float = 5.0
    ) -> None:
        """`count`: threads and words; `rounds`: see tune(); `deadline_s`: of one launch. Raises CudaError."""
        self._deadline_s = deadline_s
        self.rounds = rounds
        self._device = device
        self._count = count
        self._module = c_void_p()
        self._events = (c_void_p(), c_void_p())
        self._words = device.allocate(4 * count)
        try:
            self._module = device.load(_PTX.read_bytes())
            self._function = device.function(self._module, _NAME)
            for event in self._events:
                device.call("cuEventCreate", byref(event), 0)
        except DeviceError:
            self.close()
            raise

    def tune(self, target_us: float = _TARGET_US) -> None:
        self.run()  # the first launch pays for loading
        took = max(self.run().microseconds, 1.0)
        self.rounds = max(1, min(_MOST_ROUNDS, round(self.rounds * target_us / took)))

    def run(self) -> KnownRun:
        """Launch once, and check every word. Raises DeviceError where it fails or does not end."""
        call = self._device.call
        self._device.fill(self._words, _FILL, 4 * self._count)
        values = (c_ulonglong(self._words), c_uint(self._count), c_uint(self.rounds))
        start, end = self._events
        call("cuEventRecord", start, None)
        self._device.launch(self._function, -(-self._count // _BLOCK), _BLOCK, *values)
        call("cuEventRecord", end, None)
        give_up = time.monotonic() + self._deadline_s
        while not self._device.driver.reached(end):
            if time.monotonic() > give_up:
                said = f"the known kernel did not end within {self._deadline_s:g} s: see nvidia-smi for other"
                raise DeviceError(f"{said} processes, else reset the GPU (nvidia-smi --gpu-reset)")
            time.sleep(_POLL_S)
        milliseconds = c_float()
        call("cuEventElapsedTime", byref(milliseconds), start, end)
        found = np.empty(self._count, dtype=np.uint32)
        call("cuMemcpyDtoH_v2", found.ctypes.data, self._words, 4 * self._count)
        ok = bool(np.array_equal(found, expected(self._count, self.rounds)))
        return KnownRun(ok, milliseconds.value * 1e3)

    def close(self) -> None:
        for event in self._events:
            if event:
                self._device.call("cuEventDestroy_v2", event)
        if self._module:
            self._device.unload(self._module)
        self._device.free(self._words)
