"""Histogram over equal bins, as a PyTorch user writes it.

Shapes: counts (bins,) int32, x (count,) -> counts (bins,) int32. Bins are chosen in float32, whatever x is.
"""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op; exact, also on float64 inputs, which hold numbers of the workload's dtype."""
    counts, low, high = inputs["counts"], inputs["low"], inputs["high"]
    bins = counts.numel()
    x = inputs["x"].to(torch.float32)
    place = ((x - low) * (bins / (high - low))).clamp(0, bins - 1).to(torch.int64)
    place = torch.where((x >= low) & (x <= high), place, bins)
    return (counts + torch.bincount(place, minlength=bins + 1)[:bins].to(torch.int32),)


def library(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """torch.histc, whose float32 counts are exact up to 2^24 in a bin."""
    counts, x = inputs["counts"], inputs["x"].to(torch.float32)
    found = torch.histc(x, counts.numel(), min=inputs["low"], max=inputs["high"])
    return (counts + found.to(torch.int32),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """A fifth in a narrow peak off centre, a tenth spread widely beyond the range, some exactly on edges."""
    count, bins = workload.dims["count"], workload.dims["bins"]
    low, high = workload.scalars["low"], workload.scalars["high"]
    width = (high - low) / bins
    x, kind = generator.normal((count,)), generator.uniform((count,))
    peak = 0.3 * high + 0.1 * width * x
    x = torch.where(kind < 0.2, peak, torch.where(kind < 0.9, x, 8.0 * x))
    x[1::97] = torch.round((x[1::97] - low) / width) * width + low
    x[2::1009], x[3::2003] = low, high
    return {
        "counts": generator.integers((bins,), 1, 1000).to(torch.int32),
        "x": x.to(workload.dtype),
    }
