"""Random numbers that a student cannot predict.

Owns: the generator that `make_inputs` of a task draws from. Does not own: what is drawn.
Invariant: every generator has its own fresh 256-bit key from the kernel; two never share a stream,
and nothing of a key leaves the judge.

Source: SHAKE-128 (FIPS 202) as an extendable-output function over key || counter; normals by the
Box-Muller transform from 32-bit uniforms.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_KEY_BYTES = 32


class SecretGenerator:
    """Draws CPU tensors from a keyed stream."""

    def __init__(self, key: bytes | None = None) -> None:
        """`key`: 32 bytes, for tests only; a fresh one is drawn otherwise. ValueError for other sizes."""
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key
        if len(self._key) != _KEY_BYTES:
            raise ValueError(f"a key has {_KEY_BYTES} bytes, not {len(self._key)}")
        self._draws = 0

    def _words(self, count: int) -> torch.Tensor:
        """(count,) int32, uniform over all 32-bit patterns."""
        import torch

        self._draws += 1
        stream = hashlib.shake_128(self._key + self._draws.to_bytes(8, "little"))
        return torch.frombuffer(bytearray(stream.digest(4 * max(count, 1))), dtype=torch.int32)[:count]

    def _unit(self, count: int) -> torch.Tensor:
        """(count,) float32 in (0, 1]: 24 random bits, never 0."""
        return (self._words(count) & 0xFFFFFF).float().add_(1.0).mul_(2.0**-24)

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
        """`shape` float32, N(0, 1)."""
        import torch

        count = math.prod(shape)
        half = (count + 1) // 2
        radius = self._unit(half).log_().mul_(-2.0).sqrt_()
        angle = self._unit(half).mul_(2.0 * math.pi)
        return torch.cat([radius * angle.cos(), radius * angle.sin()])[:count].reshape(tuple(shape))

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """`shape` float32, uniform in (low, high]."""
        return self._unit(math.prod(shape)).mul_(high - low).add_(low).reshape(tuple(shape))

    def integers(self, shape: Sequence[int], low: int, high: int) -> torch.Tensor:
        """`shape` int64, uniform in [low, high); the modulo bias is below (high - low) / 2^32."""
        words = self._words(math.prod(shape)).long() & 0xFFFFFFFF
        return (words % (high - low) + low).reshape(tuple(shape))
