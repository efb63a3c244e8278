"""The secret generator: its stream is ChaCha20, and what it draws has the stated distribution."""

from __future__ import annotations

import math
import secrets

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge import keystream as module
from harness.judge.keystream import SecretGenerator, keystream

KEY = bytes(range(32))
COUNT = 1 << 18


def test_the_vector_of_the_rfc() -> None:
    """RFC 8439, 2.3.2: the block of that key, nonce and counter."""
    nonce = int.from_bytes(bytes.fromhex("000000090000004a00000000"), "little")
    expected = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert keystream(KEY, nonce, 16, first_block=1).numpy().tobytes().hex() == expected


def test_chunks_join_without_a_seam() -> None:
    """What several threads make in chunks is one stream at every chunk's start."""
    key, chunk = secrets.token_bytes(32), module._CHUNK_BYTES // 4
    whole = keystream(key, 3, 3 * chunk + 5)
    for start in (0, chunk, 2 * chunk, 3 * chunk):
        part = whole[start : start + 16]
        assert torch.equal(part, keystream(key, 3, len(part), first_block=start // 16))


def test_a_nonce_has_an_end() -> None:
    """More than 2^32 blocks would repeat, and are refused before any is made."""
    with pytest.raises(ValueError, match="more than one nonce has"):
        keystream(KEY, 1, 1 << 36 | 1)


def test_a_known_key_gives_known_values() -> None:
    """The stream is a function of the key and of the order of draws, on every machine."""
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
