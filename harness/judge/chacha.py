"""ChaCha20 (RFC 8439) as a stream of words: by OpenSSL's libcrypto, or in PyTorch where there is none.

Both ways give the same words. libcrypto makes 1.7 GB/s a core where SHAKE-128 of hashlib made 0.45 and held
the interpreter's lock; calls by ctypes release it, so long streams are made by several threads.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_char_p, c_int, c_void_p

import torch

_LIBRARIES = ("libcrypto.so.3", "libcrypto.so.1.1")
_BLOCK_BYTES = 64
_CHUNK_BYTES = 4 << 20
_MOST_THREADS = 8
_MOST_BYTES = _BLOCK_BYTES << 32
"""The block counter has 32 bits."""
_ROTATIONS = (16, 12, 8, 7)
_COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
_DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))

Cipher = Callable[[bytes, int, int, torch.Tensor], None]
"""(key, nonce, number of the first block, int32 zeros to fill: whole blocks but for the last)."""


def keystream(key: bytes, nonce: int, count: int, cipher: Cipher | None = None) -> torch.Tensor:
    """(count,) int32: the words of the stream of a 32-byte key and a nonce below 2^96.

    ValueError for more than 256 GiB, which would repeat.
    """
    if 4 * count > _MOST_BYTES:
        raise ValueError(f"{count} words are more than one nonce has")
    words = torch.zeros(count, dtype=torch.int32)
    fill = cipher or best_cipher()
    starts = range(0, count, _CHUNK_BYTES // 4)

    def one(start: int) -> None:
        fill(key, nonce, 4 * start // _BLOCK_BYTES, words[start : start + starts.step])

    threads = min(_MOST_THREADS, len(os.sched_getaffinity(0)), len(starts))
    if threads < 2:
        for start in starts:
            one(start)
    else:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, starts))
    return words


@functools.cache
def best_cipher() -> Cipher:
    """libcrypto's where it can be loaded, else the one below, which is some fifteen times slower."""
    for library in _LIBRARIES:
        try:
            return libcrypto(library)
        except (OSError, AttributeError):  # not on this machine, or built without ChaCha20
            continue
    return in_torch


def libcrypto(library: str) -> Cipher:
    """OpenSSL's. OSError when there is no such library or it refuses, AttributeError when it lacks it."""
    crypto = ctypes.CDLL(library)
    signatures = {
        "EVP_CIPHER_CTX_new": (c_void_p, []),
        "EVP_CIPHER_CTX_free": (None, [c_void_p]),
        "EVP_chacha20": (c_void_p, []),
        "EVP_EncryptInit_ex": (c_int, [c_void_p, c_void_p, c_void_p, c_char_p, c_char_p]),
        "EVP_EncryptUpdate": (c_int, [c_void_p, c_void_p, c_void_p, c_void_p, c_int]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(crypto, name)
        function.restype, function.argtypes = result, arguments

    def fill(key: bytes, nonce: int, first: int, words: torch.Tensor) -> None:
        size, written = 4 * words.numel(), c_int()
        # Its vector is the counter, then the nonce of RFC 8439.
        vector = first.to_bytes(4, "little") + nonce.to_bytes(12, "little")
        context = crypto.EVP_CIPHER_CTX_new()
        try:
            begun = crypto.EVP_EncryptInit_ex(context, crypto.EVP_chacha20(), None, key, vector)
            address = words.data_ptr()
            done = begun == 1 and crypto.EVP_EncryptUpdate(
                context, address, ctypes.byref(written), address, size
            )
            if done != 1 or written.value != size:
                raise OSError(f"{library} could not make {size} bytes of ChaCha20")
        finally:
            crypto.EVP_CIPHER_CTX_free(context)

    fill(bytes(32), 0, 0, torch.zeros(16, dtype=torch.int32))  # refused where only FIPS ciphers may be used
    return fill


def in_torch(key: bytes, nonce: int, first: int, words: torch.Tensor) -> None:
    """Word by word of the state over all blocks at once, in int32, whose sums wrap."""
    blocks = -(-4 * words.numel() // _BLOCK_BYTES)
    constants = struct.unpack("<12i", b"expand 32-byte k" + key)
    tail = struct.unpack("<3i", nonce.to_bytes(12, "little"))
    counter = torch.arange(first, first + blocks, dtype=torch.int64).to(torch.int32)
    start = torch.stack(
        [torch.full((blocks,), value, dtype=torch.int32) for value in constants]
        + [counter]
        + [torch.full((blocks,), value, dtype=torch.int32) for value in tail]
    )
    state = start.clone()
    for _ in range(10):
        for lanes in (*_COLUMNS, *_DIAGONALS):
            _quarter_round(state, *lanes)
    words.copy_((state + start).T.reshape(-1)[: words.numel()])


def _quarter_round(state: torch.Tensor, a: int, b: int, c: int, d: int) -> None:
    for (into, add, turn), bits in zip(((a, b, d), (c, d, b)) * 2, _ROTATIONS, strict=True):
        state[into] += state[add]
        mixed = state[turn] ^ state[into]
        # >> keeps the sign: the bits that came down must not bring it along.
        state[turn] = (mixed << bits) | ((mixed >> (32 - bits)) & ((1 << bits) - 1))
