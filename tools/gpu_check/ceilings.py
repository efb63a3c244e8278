"""What this board reaches at most in this session: the other denominator beside the datasheet.

Only PyTorch runs, in our own process; each figure is the median of several runs of back-to-back calls, on
random data (zeros are faster).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from harness.records.gpu_check import Fact
from tools.gpu_check.item import Bench, Item
from tools.gpu_check.judging import judging

if TYPE_CHECKING:
    import torch

COPY_BYTES: Final = 2 << 30
SIDE: Final = 8192
"""docs/protocols.md: the best library matmul at 8192^3."""
_RUNS: Final = 7
_CALLS: Final = 10


def median_s(call: Callable[[], object], device: torch.device, calls: int = _CALLS) -> float:
    """Seconds a call, of `calls` in a row, median of several runs after one that warms up."""
    import torch

    def finish() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    found = []
    for _ in range(_RUNS + 1):
        finish()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        finish()
        found.append((time.perf_counter() - start) / calls)
    return statistics.median(found[1:])


def measured(device: torch.device, copy_bytes: int = COPY_BYTES, side: int = SIDE) -> dict[str, Fact]:
    """`copy_gb_s` (read and written), `matmul_*_tflops` by dtype, `smallest_kernel_us`, on that device."""
    import torch

    source = torch.randint(0, 256, (copy_bytes,), dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    copied_s = median_s(partial(target.copy_, source), device)
    facts: dict[str, Fact] = {"copy_gb_s": 2 * copy_bytes / copied_s / 1e9}
    for name in ("bfloat16", "float16", "float32"):
        dtype: torch.dtype = getattr(torch, name)
        a = torch.randn((side, side), device=device).to(dtype)
        b = torch.randn((side, side), device=device).to(dtype)
        out = torch.empty((side, side), device=device, dtype=dtype)
        took_s = median_s(partial(torch.mm, a, b, out=out), device)
        facts[f"matmul_{name}_tflops"] = 2 * side**3 / took_s / 1e12
    one = torch.zeros(1, device=device)
    facts["smallest_kernel_us"] = median_s(lambda: one.add_(1.0), device, calls=1000) * 1e6
    return facts


def ceilings(bench: Bench) -> dict[str, Fact]:
    """On the bench's GPU. Raises NotHere where torch cannot use it."""
    with judging(bench) as judge:
        return measured(judge.gpu.transport.device)


CEILINGS: Final = Item(
    name="ceilings",
    proves="largest copy, best library matmul (float32 without TF32) and smallest kernel of this session",
    estimate_s=30.0,
    measure=ceilings,
)
