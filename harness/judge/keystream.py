"""Random numbers that a student cannot predict.

Every generator has its own 256-bit key from the kernel, and no key leaves the judge. Draw n (from 1) of a key
is the ChaCha20 stream (RFC 8439) of nonce n, read as 32-bit words; normals come from 24-bit uniforms by the
Box-Muller transform.
"""

from __future__ import annotations

import math
import os
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

_KEY_BYTES = 32
_BLOCK_BYTES = 64
_MAX_STREAM_BYTES = _BLOCK_BYTES << 32
_CHUNK_BYTES = 4 << 20
_MAX_THREADS = 8


def keystream(key: bytes, nonce: int, count: int, *, first_block: int = 0) -> torch.Tensor:
    """(count,) int32: words of the ChaCha20 stream of a 32-byte key and a nonce below 2^96, made by several
    threads (the cipher releases the interpreter lock). Raises ValueError when the stream would repeat (256
    GiB)."""
    if first_block * _BLOCK_BYTES + 4 * count > _MAX_STREAM_BYTES:
        raise ValueError(f"{count} words are more than one nonce has")
    words = torch.zeros(count, dtype=torch.int32)
    stream = memoryview(words.view(torch.uint8).numpy().data)
    zeros = memoryview(bytes(min(len(stream), _CHUNK_BYTES)))

    def fill(start: int) -> None:
        chunk = stream[start : start + _CHUNK_BYTES]
        counter = first_block + start // _BLOCK_BYTES
        initial = counter.to_bytes(4, "little") + nonce.to_bytes(12, "little")
        encryptor = Cipher(algorithms.ChaCha20(key, initial), mode=None).encryptor()
        encryptor.update_into(zeros[: len(chunk)], chunk)

    starts = range(0, len(stream), _CHUNK_BYTES)
    if len(starts) < 2:
        list(map(fill, starts))
    else:
        with ThreadPoolExecutor(min(_MAX_THREADS, len(os.sched_getaffinity(0)))) as pool:
            list(pool.map(fill, starts))
    return words


class SecretGenerator:
    def __init__(self, key: bytes | None = None, device: torch.device | None = None) -> None:
        """`key`: 32 bytes, for tests (default: a fresh one). `device`: where words, which are made on the
        host, are transformed (default: CPU). Raises ValueError for a key of another size."""
        self._key = secrets.token_bytes(_KEY_BYTES) if key is None else key
        if len(self._key) != _KEY_BYTES:
            raise ValueError(f"a key has {_KEY_BYTES} bytes, not {len(self._key)}")
        self.device = torch.device("cpu") if device is None else device
        """Where tensors are made; a task's own tensors (an arange, a mask) must be there too."""
        self._draws = 0

    def _words(self, count: int) -> torch.Tensor:
        self._draws += 1
        return keystream(self._key, self._draws, count).to(self.device)

    def _unit(self, count: int) -> torch.Tensor:
        return self._words(count).bitwise_and_(0xFFFFFF).float().add_(1.0).mul_(2.0**-24)

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
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
