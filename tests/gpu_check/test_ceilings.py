"""What a board reaches at most, tried on the CPU: the arithmetic is the same."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from tools.gpu_check.ceilings import CEILINGS, measured, median_s
from tools.gpu_check.items import all_items


def test_every_ceiling_is_measured() -> None:
    """Copy, matmul by dtype and smallest kernel all have a figure."""
    facts = measured(torch.device("cpu"), copy_bytes=1 << 16, side=8)
    assert set(facts) == {
        "copy_gb_s",
        "matmul_bfloat16_tflops",
        "matmul_float16_tflops",
        "matmul_float32_tflops",
        "smallest_kernel_us",
    }
    assert all(isinstance(value, float) and value > 0 for value in facts.values())


def test_a_figure_is_of_one_call() -> None:
    """All runs make the calls that they say, and the first run is left out."""
    calls: list[int] = []
    assert median_s(lambda: calls.append(1), torch.device("cpu"), calls=5) > 0
    assert len(calls) == 5 * 8


def test_ceilings_are_asked_before_the_experts() -> None:
    """Their shares of the copy bandwidth need it."""
    names = [item.name for item in all_items()]
    assert names.index(CEILINGS.name) < min(names.index(name) for name in names if name.startswith("expert/"))
