"""Random numbers that a student cannot predict.

Every generator has its own 256-bit key from the operating system, and no key leaves the judge but as an
argument of its own kernels. Draw n (from 1) of a key is the ChaCha20 stream (RFC 8439) of nonce n, read as
32-bit words, one for each number.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from harness.judge import distributions
from harness.judge.device_kernels import DeviceKernels
from harness.judge.distributions import MAX_WORDS, Distribution

KEY_BYTES = 32
_BLOCK_BYTES = 64
_BLOCK_WORDS = _BLOCK_BYTES // 4
_PIECE_WORDS = 1 << 17
"""Stays in a core's cache; of smaller pieces, what each operation costs by itself shows."""
_SHARE_WORDS = 1 << 18
"""A thread is worth starting for."""
_MAX_THREADS = 8


def draw(
    key: bytes, nonce: int, count: int, distribution: Distribution, first_block: int = 0
) -> torch.Tensor:
    """(count,) on the host, one number for each word of the ChaCha20 stream of a 32-byte key and a nonce
    below 2^96, made a piece at a time by several threads (cipher and PyTorch release the interpreter lock).
    Raises ValueError when the stream would repeat (256 GiB)."""
    if first_block * _BLOCK_WORDS + count > MAX_WORDS:
        raise ValueError(f"{count} words are more than one nonce has")
    out = torch.empty(count, dtype=distribution.dtype)
    threads = max(1, min(-(-count // _SHARE_WORDS), _MAX_THREADS, len(os.sched_getaffinity(0))))
    share = -(-count // (threads * _BLOCK_WORDS)) * _BLOCK_WORDS

    def fill(mine: torch.Tensor, block: int) -> None:
        initial = block.to_bytes(4, "little") + nonce.to_bytes(12, "little")
        cipher = Cipher(algorithms.ChaCha20(key, initial), mode=None).encryptor()
        words = torch.empty(min(len(mine), _PIECE_WORDS), dtype=torch.int32)
        stream = memoryview(words.view(torch.uint8).numpy().data)
        zeros = bytes(len(stream))
        for piece in torch.split(mine, _PIECE_WORDS):
            size = 4 * len(piece)
            cipher.update_into(memoryview(zeros)[:size], stream[:size])
            distribution.transform(words[: len(piece)], piece)

    if threads == 1:
        fill(out, first_block)
    else:
        shares = torch.split(out, share)
        blocks = [first_block + at * share // _BLOCK_WORDS for at in range(len(shares))]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(fill, shares, blocks))
    return out


def derived(key: bytes, what: str) -> bytes:
    """A key of 32 bytes for one purpose (BLAKE2b, keyed)."""
    return hashlib.blake2b(what.encode(), key=key, digest_size=KEY_BYTES).digest()


class Seed:
    """All that a check draws: shapes, places and order by `random`, and the key of each set of inputs. It is
    secret until the grade is there, and then part of it."""

    def __init__(self, value: bytes | None = None) -> None:
        """`value`: 32 bytes (default: fresh ones)."""
        self.value = secrets.token_bytes(KEY_BYTES) if value is None else value
        self.random = random.Random(self.value)

    def key(self, case: str, draw: int) -> bytes:
        """Of a case's inputs, its draws counted from 0."""
        return derived(self.value, f"{draw} {case}")


class SecretGenerator:
    def __init__(
        self,
        key: bytes | None = None,
        device: torch.device | None = None,
        kernels: DeviceKernels | None = None,
    ) -> None:
        """`key`: 32 bytes, for tests (default: a fresh one). `device`: where tensors are made (default: CPU).
        `kernels`: those that draw on that device (default: numbers are drawn on the host, and copied). Raises
        ValueError for a key of another size."""
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key
        if len(self._key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(self._key)}")
        self.device = torch.device("cpu") if device is None else device
        """Where tensors are made; a task's own tensors (an arange, a mask) must be there too."""
        self._kernels = kernels
        self._draws = 0

    def _draw(self, shape: Sequence[int], distribution: Distribution) -> torch.Tensor:
        self._draws += 1
        count = math.prod(shape)
        if self._kernels is None:
            drawn = draw(self._key, self._draws, count, distribution).to(self.device)
        else:
            drawn = torch.empty(count, dtype=distribution.dtype, device=self.device)
            self._kernels.draw(self._key, self._draws, count, distribution, drawn.data_ptr())
        return drawn.reshape(tuple(shape))

    def normal(self, shape: Sequence[int]) -> torch.Tensor:
        """`shape` float32, standard normals."""
        return self._draw(shape, distributions.normal())

    def uniform(self, shape: Sequence[int], low: float = 0.0, high: float = 1.0) -> torch.Tensor:
        """`shape` float32, uniform in (low, high]."""
        return self._draw(shape, distributions.uniform(low, high))

    def integers(self, shape: Sequence[int], low: int, high: int) -> torch.Tensor:
        """`shape` int64, uniform in [low, high); the modulo bias is below (high - low) / 2^32. Raises
        ValueError where that is empty."""
        return self._draw(shape, distributions.integers(low, high))
