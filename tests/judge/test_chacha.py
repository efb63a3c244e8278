"""The stream cipher: RFC 8439's own vector, and the same words however they are made."""

from __future__ import annotations

import secrets

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge import chacha
from harness.judge.chacha import Cipher, best_cipher, in_torch, keystream

KEY = bytes(range(32))


@pytest.mark.parametrize("cipher", [in_torch, best_cipher()])
def test_the_vector_of_the_rfc(cipher: Cipher) -> None:
    """RFC 8439, 2.3.2: the block of that key, nonce and counter."""
    words = torch.zeros(16, dtype=torch.int32)
    cipher(KEY, int.from_bytes(bytes.fromhex("000000090000004a00000000"), "little"), 1, words)
    assert words.numpy().tobytes().hex() == (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )


@given(nonce=st.integers(0, 2**96 - 1), count=st.integers(0, 3000), key=st.binary(min_size=32, max_size=32))
@settings(deadline=None, max_examples=50)
def test_both_ways_give_the_same_words(nonce: int, count: int, key: bytes) -> None:
    """Of any key, nonce and length, odd ones too."""
    assert torch.equal(keystream(key, nonce, count, in_torch), keystream(key, nonce, count))


@given(count=st.integers(1, 5000), cut=st.integers(1, 5000))
@settings(deadline=None, max_examples=50)
def test_a_shorter_stream_is_the_start_of_a_longer(count: int, cut: int) -> None:
    """The words do not depend on how many are asked for."""
    assert torch.equal(keystream(KEY, 7, count)[:cut], keystream(KEY, 7, min(count, cut)))


def test_chunks_join_without_a_seam() -> None:
    """What several threads make in chunks is what one would have made in one go."""
    key, count = secrets.token_bytes(32), 3 * chacha._CHUNK_BYTES // 4 + 5
    whole = torch.zeros(count, dtype=torch.int32)
    best_cipher()(key, 3, 0, whole)
    assert torch.equal(keystream(key, 3, count), whole)


def test_a_nonce_has_an_end() -> None:
    """More than 2^32 blocks would repeat, and are refused before any is made."""
    with pytest.raises(ValueError, match="more than one nonce has"):
        keystream(KEY, 1, 1 << 36 | 1)


def test_no_library_no_cipher() -> None:
    """A library that is not there is told apart from one that fails."""
    with pytest.raises(OSError, match="libnothing"):
        chacha.libcrypto("libnothing.so.9")
    with pytest.raises(AttributeError):
        chacha.libcrypto("libm.so.6")
