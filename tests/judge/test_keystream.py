"""The secret generator: what it draws is what it says, and nobody else can draw it."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.keystream import SecretGenerator

KEY = bytes(range(32))
COUNT = 1 << 18


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


def test_tensors_are_where_they_are_wanted() -> None:
    """Everything drawn lies on the generator's device, and transforms are computed there."""
    generator = SecretGenerator(KEY, torch.device("meta"))
    drawn = (generator.normal((5,)), generator.uniform((2, 3)), generator.integers((4,), 0, 9))
    assert {tensor.device.type for tensor in drawn} == {"meta"}


def test_key_size() -> None:
    """A key that is not 256 bits is refused."""
    with pytest.raises(ValueError, match="32 bytes"):
        SecretGenerator(b"short")


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


def test_uniform_fills_its_interval() -> None:
    """A chi-square over 64 bins does not refuse uniformity, and all lies in (low, high]."""
    x = SecretGenerator(KEY).uniform((COUNT,), -2.0, 6.0)
    assert float(x.min()) > -2.0
    assert float(x.max()) <= 6.0
    counts = torch.histc(x, bins=64, min=-2.0, max=6.0)
    expected = COUNT / 64
    chi_square = float(((counts - expected) ** 2 / expected).sum())
    assert abs(chi_square - 63) < 5 * math.sqrt(2 * 63)


def test_zero_never_reaches_the_logarithm() -> None:
    """Units lie in (0, 1] whatever the stream says, so normals are finite."""

    class Worst(SecretGenerator):
        def _words(self, count: int) -> torch.Tensor:
            return torch.tensor([0, -1, 1 << 24, -(1 << 24)], dtype=torch.int32).repeat(count)[:count]

    worst = Worst(KEY)
    assert worst._unit(4).tolist() == [2.0**-24, 1.0, 2.0**-24, 2.0**-24]
    assert bool(worst.normal((64,)).isfinite().all())


def test_integers_lie_in_their_range() -> None:
    """Every value of [low, high) appears, evenly, and nothing else."""
    x = SecretGenerator(KEY).integers((COUNT,), -3, 5)
    counts = torch.bincount(x + 3, minlength=8).double()
    assert (x.dtype, len(counts)) == (torch.int64, 8)
    assert float(((counts - COUNT / 8) ** 2 / (COUNT / 8)).sum()) < 7 + 5 * math.sqrt(14)


@pytest.mark.parametrize("shape", [(0,), (3, 0), (), (1,), (7, 3)])
def test_shapes(shape: tuple[int, ...]) -> None:
    """Every shape works, empty and odd ones too."""
    generator = SecretGenerator()
    for drawn in (generator.normal(shape), generator.uniform(shape), generator.integers(shape, 0, 9)):
        assert tuple(drawn.shape) == shape
