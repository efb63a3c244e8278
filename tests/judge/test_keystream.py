"""The secret generator: its stream is ChaCha20, and what it draws has the stated distribution."""

from __future__ import annotations

import math
import secrets
import struct

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from hypothesis import given, settings
from hypothesis import strategies as st

from harness.judge import keystream as module
from harness.judge.keystream import SecretGenerator, keystream

KEY = bytes(range(32))
COUNT = 1 << 18


def block_of_the_rfc(key: bytes, nonce: int, counter: int) -> bytes:
    constants = struct.unpack("<12I", b"expand 32-byte k" + key)
    start = [*constants, counter, *struct.unpack("<3I", nonce.to_bytes(12, "little"))]
    x = list(start)

    def quarter(a: int, b: int, c: int, d: int) -> None:
        for (into, add, turn), bits in zip(((a, b, d), (c, d, b)) * 2, (16, 12, 8, 7), strict=True):
            x[into] = (x[into] + x[add]) & 0xFFFFFFFF
            mixed = x[turn] ^ x[into]
            x[turn] = (mixed << bits | mixed >> (32 - bits)) & 0xFFFFFFFF

    for _ in range(10):
        for i in range(4):
            quarter(i, 4 + i, 8 + i, 12 + i)
        for i in range(4):
            quarter(i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4)
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start, strict=True)))


def test_the_vector_of_the_rfc() -> None:
    """RFC 8439, 2.3.2: the block of that key, nonce and counter."""
    nonce = int.from_bytes(bytes.fromhex("000000090000004a00000000"), "little")
    expected = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert keystream(KEY, nonce, 16, first_block=1).numpy().tobytes().hex() == expected
    assert block_of_the_rfc(KEY, nonce, 1).hex() == expected


@given(nonce=st.integers(0, 2**96 - 1), count=st.integers(0, 100), key=st.binary(min_size=32, max_size=32))
@settings(deadline=None, max_examples=50)
def test_the_stream_is_chacha20(nonce: int, count: int, key: bytes) -> None:
    """Of any key, nonce and length, odd ones too; a shorter stream is the start of a longer one."""
    blocks = b"".join(block_of_the_rfc(key, nonce, i) for i in range(7))
    assert keystream(key, nonce, count).numpy().tobytes() == blocks[: 4 * count]


def test_chunks_join_without_a_seam() -> None:
    """What several threads make in chunks is the stream of RFC 8439 at every chunk's start."""
    key, chunk = secrets.token_bytes(32), module._CHUNK_BYTES // 4
    whole = keystream(key, 3, 3 * chunk + 5)
    for start in (0, chunk, 2 * chunk, 3 * chunk):
        part = whole[start : start + 16].numpy().tobytes()
        assert part == block_of_the_rfc(key, 3, start // 16)[: len(part)]


def test_a_nonce_has_an_end() -> None:
    """More than 2^32 blocks would repeat, and are refused before any is made."""
    with pytest.raises(ValueError, match="more than one nonce has"):
        keystream(KEY, 1, 1 << 36 | 1)


def test_a_known_key_gives_known_values() -> None:
    """The stream is a function of the key and of the order of draws, on every machine."""
    first, second = SecretGenerator(KEY), SecretGenerator(KEY)
    assert torch.equal(first.normal((3, 5)), second.normal((3, 5)))
    assert torch.equal(first.integers((9,), 0, 100), second.integers((9,), 0, 100))
    assert SecretGenerator(KEY).integers((4,), 0, 1 << 16).tolist() == [14552, 28243, 59408, 25160]


def test_fresh_keys_differ() -> None:
    """Two generators never share a stream, nor do two draws of one generator."""
    draws = [SecretGenerator().uniform((64,)) for _ in range(20)]
    one = SecretGenerator()
    draws += [one.uniform((64,)) for _ in range(20)]
    assert len({tuple(d.tolist()) for d in draws}) == len(draws)


def test_torch_generator_decides_nothing() -> None:
    """Seeding torch's own generator, as a student can, changes nothing and is not disturbed."""
    torch.manual_seed(0)
    first = SecretGenerator().normal((8,))
    state = torch.get_rng_state()
    torch.manual_seed(0)
    assert not torch.equal(SecretGenerator().normal((8,)), first)
    assert torch.equal(torch.get_rng_state(), state)


def test_normal_moments() -> None:
    """Normals have moments 0, 1, 0, 3, and the two halves of Box-Muller are uncorrelated."""
    x = SecretGenerator(KEY).normal((COUNT,)).double()
    sigma = 1 / math.sqrt(COUNT)
    assert abs(float(x.mean())) < 5 * sigma
    assert abs(float(x.var()) - 1) < 5 * math.sqrt(2) * sigma
    assert abs(float((x**3).mean())) < 5 * math.sqrt(15) * sigma
    assert abs(float((x**4).mean()) - 3) < 5 * math.sqrt(96) * sigma
    half = COUNT // 2
    assert abs(float((x[:half] * x[half:]).mean())) < 5 * sigma * math.sqrt(2)


def test_uniforms_and_integers_fill_their_ranges() -> None:
    """A chi-square refuses neither; uniforms lie in (low, high], integers in [low, high)."""
    x = SecretGenerator(KEY).uniform((COUNT,), -2.0, 6.0)
    assert float(x.min()) > -2.0 and float(x.max()) <= 6.0
    expected = COUNT / 64
    chi_square = float(((torch.histc(x, bins=64, min=-2.0, max=6.0) - expected) ** 2 / expected).sum())
    assert abs(chi_square - 63) < 5 * math.sqrt(2 * 63)
    y = SecretGenerator(KEY).integers((COUNT,), -3, 5)
    counts = torch.bincount(y + 3, minlength=8).double()
    assert (y.dtype, len(counts)) == (torch.int64, 8)
    assert float(((counts - COUNT / 8) ** 2 / (COUNT / 8)).sum()) < 7 + 5 * math.sqrt(14)
