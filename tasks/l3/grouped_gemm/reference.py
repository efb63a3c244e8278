"""The expert layer of a mixture of experts on tokens sorted by expert, as a PyTorch user writes it.

Shapes: x (tokens, k), weights (experts, n, k), offsets (experts + 1,) int64 -> out (tokens, n).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """One linear layer for every expert; on float64 inputs it is the truth."""
    return (_grouped(inputs["x"], inputs["weights"], inputs["offsets"]),)


def library(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """PyTorch's own grouped product."""
    ends = inputs["offsets"][1:].to(torch.int32)
    return (F.grouped_mm(inputs["x"], inputs["weights"].transpose(-2, -1), offs=ends),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What a product of these rows is like when signs are random: (|x| |weight|^T) / sqrt(k)."""
    x = inputs["x"]
    return (_grouped(x.abs(), inputs["weights"].abs(), inputs["offsets"]) / x.shape[-1] ** 0.5,)


def _grouped(x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    sizes = offsets.diff().tolist()
    return torch.cat([F.linear(rows, weight) for rows, weight in zip(x.split(sizes), weights, strict=True)])


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Experts of very different popularity; about one in six gets no token."""
    tokens, experts, n, k = (workload.dims[name] for name in ("tokens", "experts", "n", "k"))
    popularity = generator.uniform((experts,), -0.2, 1.0).clamp_(min=0.0)
    popularity[generator.integers((1,), 0, experts)] += 0.5
    edges = popularity.cumsum(0) / popularity.sum()
    chosen = generator.uniform((tokens,)).sort().values
    offsets = torch.zeros(experts + 1, dtype=torch.int64, device=generator.device)
    offsets[1:] = torch.searchsorted(chosen, edges, right=True)
    offsets[-1] = tokens
    x = generator.normal((tokens, k)) + 0.1
    weights = generator.normal((experts, n, k)) * (2.0 / k**0.5)
    return {"x": x.to(workload.dtype), "weights": weights.to(workload.dtype), "offsets": offsets}
