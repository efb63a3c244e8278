"""Stable sort of tokens by expert and the gather of their rows, as a PyTorch user writes them.

Shapes: x (tokens, hidden), ids (tokens, k) int32, load (experts,) int32
-> x_sorted (tokens * k, hidden) like x, order (tokens * k,) int32, offsets (experts + 1,) int32, load.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op; rows are copied in whatever dtype they have."""
    ids, load = inputs["ids"].flatten().long(), inputs["load"]
    order = ids.argsort(stable=True)
    counts = torch.zeros_like(load).scatter_add(0, ids, torch.ones_like(ids, dtype=load.dtype))
    offsets = F.pad(counts.cumsum(0, dtype=torch.int32), (1, 0))
    x_sorted = inputs["x"][order // inputs["ids"].shape[1]]
    return x_sorted, order.to(torch.int32), offsets, load + counts


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Every token takes its k best of experts that differ in popularity."""
    tokens, k, experts, hidden = (workload.dims[name] for name in ("tokens", "k", "experts", "hidden"))
    liking = generator.normal((tokens, experts)) + generator.normal((experts,))
    return {
        "x": generator.normal((tokens, hidden)).to(workload.dtype),
        "ids": liking.topk(k, dim=-1).indices.to(torch.int32),
        "load": generator.integers((experts,), 0, 1_000_000).to(torch.int32),
    }
