"""What the judge's kernels do, checked on any device; as a program, on the emulated GPU: CUDART DRIVER."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from contextlib import closing

import numpy as np
import pytest

from harness.device.cuda import Device, Driver
from harness.device.known_kernel import KnownKernel
from harness.errors import HarnessBug
from harness.judge.device_kernels import WIDTHS, DeviceKernels
from harness.judge.distributions import integers, normal, uniform, words
from harness.judge.keystream import draw

ROOM = 1 << 17
FLUSHED = 5000


def check_gather(kernels: DeviceKernels, memory: int, device: Device) -> None:
    """Elements of every width arrive packed, in the order of their offsets; nothing behind changes."""
    source, offsets, out = memory, memory + ROOM // 4, memory + ROOM // 2
    held = np.random.default_rng(0).integers(0, 256, ROOM // 4, dtype=np.uint8)
    device.write(source, held.tobytes())
    for width in WIDTHS:
        for count in (1, 257, 1000):
            places = width * np.random.default_rng(count).integers(0, len(held) // width, count)
            device.write(offsets, places.tobytes())
            device.fill(out, 0xCC, 8 * count + 16)
            kernels.gather(source, offsets, count, width, out)
            wanted = held.view(f"u{width}")[places // width].tobytes()
            found = device.read(out, width * count + 16)
            assert found == wanted + b"\xcc" * 16, f"gather of {count} elements of {width} bytes"
        if width > 1:
            with pytest.raises(HarnessBug, match=f"no gather of {width} bytes"):
                kernels.gather(source + 1, offsets, 1, width, out)
    with pytest.raises(HarnessBug, match="no gather of 3 bytes"):
        kernels.gather(source, offsets, 1, 3, out)


def check_ranges(kernels: DeviceKernels, memory: int, device: Device) -> None:
    """fill() and copy() change their range and nothing beside it, whatever its size and alignment."""
    held = bytes(np.random.default_rng(0).integers(0, 255, 9000, dtype=np.uint8))
    source = memory + ROOM // 2
    device.write(source, held)
    for start in (0, 1, 15, 16):
        for size in (0, 1, 14, 16, 33, 8200):
            for wanted, launch in (
                (b"\xff" * size, lambda at, n: kernels.fill(at, 0xFF, n)),
                (held[:size], lambda at, n: kernels.copy(at, source, n)),
                (held[start : start + size], lambda at, n, s=source + start: kernels.copy(at, s, n)),
            ):
                device.fill(memory, 0, size + 64)
                launch(memory + start, size)
                found = device.read(memory, size + 64)
                assert found == bytes(start) + wanted + bytes(64 - start), f"{size} bytes from {start}"


def check_flush(kernels: DeviceKernels, memory: int, device: Device) -> None:
    """The whole buffer is written, with another byte each time."""
    seen = set()
    for _ in range(3):
        kernels.flush()
        seen.add(device.read(kernels._flushed, FLUSHED))
    assert len(seen) == 3 and all(len(set(each)) == 1 for each in seen)


def check_draws(kernels: DeviceKernels, memory: int, device: Device) -> None:
    """Numbers are those of the host, bit for bit, at and around the ends of blocks and of grids."""
    ranges = (-3, 5), (0, 3), (-(1 << 40), 1 << 41)
    drawn = [words(), normal(), uniform(-2.0, 6.1), *(integers(*ends) for ends in ranges)]
    for number, distribution in enumerate(drawn):
        for count in (0, 1, 15, 16, 17, 4095, 4097, 8191):
            key, nonce = bytes(range(number, 32 + number)), count << 64 | 0xABCDEF << 20 | number
            wanted = draw(key, nonce, count, distribution)
            size = wanted.nbytes
            device.fill(memory, 0xCC, size + 16)
            kernels.draw(key, nonce, count, distribution, memory)
            found = device.read(memory, size + 16)
            assert found == wanted.numpy().tobytes() + b"\xcc" * 16, f"{count} {distribution.name}s"
    with pytest.raises(ValueError, match="more than one nonce has"):
        kernels.draw(bytes(32), 1, 1 << 36 | 1, words(), memory)


Check = Callable[[DeviceKernels, int, Device], None]
CHECKS: list[Check] = [check_gather, check_ranges, check_flush, check_draws]


def run(check: Check, device: Device) -> None:
    memory = device.allocate(ROOM)
    with closing(DeviceKernels(device, FLUSHED, most_blocks=1)) as kernels:
        check(kernels, memory, device)
    device.free(memory)


def main() -> None:
    runtime, driver = sys.argv[1:]
    ctypes.CDLL(runtime, mode=ctypes.RTLD_GLOBAL)
    with closing(Device(Driver(driver))) as device:
        with closing(KnownKernel(device, count=1 << 12, rounds=64)) as kernel:
            assert kernel.run().ok
        mapping = device.map(1 << 20)
        device.fill(mapping.pointer, 1, mapping.size)
        device.unmap(mapping)
        for check in CHECKS:
            run(check, device)
        print(device.name)


if __name__ == "__main__":
    main()
