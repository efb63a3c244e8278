"""Random 32-bit words made into uniforms, normals and integers, on the host.

The judge's kernels do the same on a device. Host and device agree bit for bit, because each step is exact or
is one addition or multiplication that IEEE 754 rounds to nearest: no fused steps, no functions of a library.

A normal is the inverse of the cumulative distribution at p = (m + 1/2) / 2^32, where m is the low 31 bits of
the word, with the word's top bit as its sign. That inverse is interpolated by 512 lines in each octave of p,
through its values at their ends. With its roundings the result is within 6e-7 of it; the largest is 6.34.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from ctypes import c_float, c_longlong, c_ulonglong
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import torch

MAX_WORDS: Final = 16 << 32
"""Of a ChaCha20 stream: its block counter has 32 bits."""
SEGMENT_SHIFT: Final = 23 - 9
"""A segment is the exponent and the upper 9 bits of the mantissa of m + 1/2, in float32."""
FIRST_SEGMENT: Final = 126 << 9
"""Of 1/2."""
_LAST_SEGMENT: Final = 158 << 9
"""Of 2^31, to which the largest values round: p is 1/2 there, and the normal 0."""


def _point(segment: int) -> tuple[float, float]:
    """The first value of m + 1/2 in a segment, and its normal."""
    (value,) = struct.unpack("<f", struct.pack("<I", segment << SEGMENT_SHIFT))
    return value, -NormalDist().inv_cdf(value / 2**32)


@functools.cache
def lines() -> torch.Tensor:
    """(2, 158 * 512 + 1) float32: the normal at m + 1/2 = 0 and the slope of every segment's line, by its
    number; those before FIRST_SEGMENT are 0."""
    segments = range(FIRST_SEGMENT, _LAST_SEGMENT + 1)
    values, deviates = zip(*map(_point, segments), strict=True)
    x, y = torch.tensor([values, deviates], dtype=torch.float64)
    slope = y.diff() / x.diff()
    table = torch.zeros(2, _LAST_SEGMENT + 1, dtype=torch.float32)
    table[1, FIRST_SEGMENT:_LAST_SEGMENT] = slope
    table[0, FIRST_SEGMENT:_LAST_SEGMENT] = y[:-1] - table[1, FIRST_SEGMENT:_LAST_SEGMENT] * x[:-1]
    return table


@dataclass(frozen=True)
class Distribution:
    name: str
    """Of the kernel: `liftbench_` and this."""
    dtype: torch.dtype
    transform: Callable[[torch.Tensor, torch.Tensor], object]
    """On the host: fills `out` (n,) from `words` (n,) int32."""
    parameters: tuple[Any, ...] = ()
    """Of the kernel, as ctypes objects."""


def words() -> Distribution:
    """The words themselves, as int32."""
    return Distribution("words", torch.int32, lambda words, out: out.copy_(words))


def normal() -> Distribution:
    """Standard normals."""
    return Distribution("normal", torch.float32, _normal)


def uniform(low: float, high: float) -> Distribution:
    """(low, high], from 24 bits of each word."""
    span = high - low

    def transform(words: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(words & 0xFFFFFF).add_(1.0).mul_(2.0**-24).mul_(span).add_(low)

    return Distribution("uniform", torch.float32, transform, (c_float(low), c_float(span)))


def integers(low: int, high: int) -> Distribution:
    """[low, high), in int64; the modulo bias is below (high - low) / 2^32. Raises ValueError where that is
    empty."""
    span = high - low
    if span < 1:
        raise ValueError(f"there is no integer in [{low}, {high})")

    def transform(words: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(words).bitwise_and_(0xFFFFFFFF).remainder_(span).add_(low)

    return Distribution("integers", torch.int64, transform, (c_longlong(low), c_ulonglong(span)))


def _normal(words: torch.Tensor, out: torch.Tensor) -> None:
    start, slope = lines()
    segment = words & 0x7FFFFFFF
    out.copy_(segment).add_(0.5)
    torch.bitwise_right_shift(out.view(torch.int32), SEGMENT_SHIFT, out=segment)
    rise = slope.index_select(0, segment).mul_(out)
    torch.index_select(start, 0, segment, out=out).add_(rise).copysign_(words.view(torch.float32))
