"""The secret generator: its stream is ChaCha20, and what it draws has the stated distribution."""

from __future__ import annotations

import math
import secrets
from statistics import NormalDist

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge import distributions
from harness.judge import keystream as module
from harness.judge.keystream import SecretGenerator, draw

KEY = bytes(range(32))
COUNT = 1 << 18
WORDS = distributions.words()


def test_the_vector_of_the_rfc() -> None:
    """RFC 8439, 2.3.2: the block of that key, nonce and counter."""
    nonce = int.from_bytes(bytes.fromhex("000000090000004a00000000"), "little")
    expected = (
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e"
    )
    assert draw(KEY, nonce, 16, WORDS, first_block=1).numpy().tobytes().hex() == expected


def test_pieces_join_without_a_seam() -> None:
    """What several threads make in pieces is one stream at every piece's start."""
    key, share = secrets.token_bytes(32), module._SHARE_WORDS
    whole = draw(key, 3, 3 * share + 5, WORDS)
    for start in range(0, len(whole), module._PIECE_WORDS):
        part = whole[start : start + 16]
        assert torch.equal(part, draw(key, 3, len(part), WORDS, first_block=start // 16))


def test_a_nonce_has_an_end() -> None:
    """More than 2^32 blocks would repeat, and are refused before any is made."""
    with pytest.raises(ValueError, match="more than one nonce has"):
        draw(KEY, 1, 1 << 36 | 1, WORDS)


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


def normals(words: list[int]) -> torch.Tensor:
    made = torch.empty(len(words))
    distributions.normal().transform(torch.tensor(words).to(torch.int32), made)
    return made


def test_a_normal_is_the_inverse_of_its_distribution() -> None:
    """It is within 6e-7 of the exact one for words of every size; the top bit is the sign."""
    words = [secrets.randbelow(1 << bits) for bits in range(32) for _ in range(200)] + [(1 << 31) - 1]
    made = normals(words)
    exact = torch.tensor([-NormalDist().inv_cdf((m + 0.5) / 2**32) for m in words], dtype=torch.float64)
    assert float((made - exact).abs().max()) < 6e-7
    assert 6.33 < float(made.max()) < 6.34
    assert torch.equal(normals([m | 1 << 31 for m in words]), -made)


def test_normals_are_normal() -> None:
    """Moments are 0, 1, 0, 3; the empirical distribution is the normal one, tails included; neighbors are
    uncorrelated."""
    x = SecretGenerator(KEY).normal((COUNT,)).double()
    sigma = 1 / math.sqrt(COUNT)
    for power, moment, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96), (6, 15, 10170)):
        assert abs(float((x**power).mean()) - moment) < 5 * math.sqrt(spread) * sigma
    assert abs(float((x[1:] * x[:-1]).mean())) < 5 * sigma
    expected = 0.5 * torch.erfc(-x.sort().values / math.sqrt(2))
    assert float((expected - torch.arange(COUNT) / COUNT).abs().max()) < 2.2 * sigma  # of 1e-4 chance
    for bound in (1.0, 2.0, 3.0, 4.0):
        share = math.erfc(bound / math.sqrt(2))
        beyond = int((x.abs() > bound).sum())
        assert abs(beyond - share * COUNT) < 5 * math.sqrt(share * COUNT)


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
