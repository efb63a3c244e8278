"""Random numbers that a student cannot predict.

Every generator has its own fresh 256-bit key from the kernel; two never share a stream, and nothing of a
key leaves the judge.

The stream: draw n (from 1) of a key is ChaCha20 with nonce n, as 32-bit words in order; normals by the
Box-Muller transform from 24-bit uniforms.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_KEY_BYTES = 32


class SecretGenerator:
    """Draws tensors from a keyed stream."""

    def __init__(self, key: bytes | None = None, device: torch.device | None = None) -> None:
        """`key`: 32 bytes, for tests only; a fresh one is drawn otherwise. ValueError for other sizes.

        `device`: where tensors are wanted; the CPU when None. Words are made on the host and copied there,
        the transforms are computed there.
        """
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key
        if len(self._key) != _KEY_BYTES:
            raise ValueError(f"a key has {_KEY_BYTES} bytes, not {len(self._key)}")
        self._device = device
        self._draws = 0

    @property
    def device(self) -> torch.device:
        """Where tensors are made; what a task makes beside them (an arange, a mask) has to be there too."""
        import torch

        return torch.device("cpu") if self._device is None else self._device

    def _words(self, count: int) -> torch.Tensor:
        """(count,) int32, uniform over all 32-bit patterns."""
        from harness.judge.chacha import keystream

        self._draws += 1
        words = keystream(self._key, self._draws, count)
        return words if self._device is None else words.to(self._device)

    def _unit(self, count: int) -> torch.Tensor:
        """(count,) float32 in (0, 1]: 24 random bits, never 0."""
        return self._words(count).bitwise_and_(0xFFFFFF).float().add_(1.0).mul_(2.0**-24)

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
        """`shape` float32, N(0, 1)."""
        import torch

        count = math.prod(shape)
        half = (count + 1) // 2
        radius = self._unit(half).log_().mul_(-2.0).sqrt_()
        angle = self._unit(half).mul_(2.0 * math.pi)
        values = torch.empty(2 * half, dtype=torch.float32, device=radius.device)
        torch.mul(radius, angle.cos(), out=values[:half])
        torch.mul(radius, angle.sin_(), out=values[half:])
        return values[:count].reshape(tuple(shape))

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """`shape` float32, uniform in (low, high]."""
        return self._unit(math.prod(shape)).mul_(high - low).add_(low).reshape(tuple(shape))

    def integers(self, shape: Sequence[int], low: int, high: int) -> torch.Tensor:
        """`shape` int64, uniform in [low, high); the modulo bias is below (high - low) / 2^32."""
        words = self._words(math.prod(shape)).long() & 0xFFFFFFFF
        return (words % (high - low) + low).reshape(tuple(shape))
