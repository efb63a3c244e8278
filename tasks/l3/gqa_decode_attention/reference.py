"""Attention of one new token per sequence to its cache, with grouped heads, as a PyTorch user writes it.

Shapes: q and out (batch, heads, head_dim), k_cache and v_cache (batch, kv_heads, max_len, head_dim), all of
one dtype; lengths (batch,) int32. Query head h reads the keys of head h // (heads / kv_heads).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _usable(x: torch.Tensor) -> torch.Tensor:
    """`x` on a GPU, at least float32 on a CPU.

    PyTorch's fused 16-bit attention ends the process on machines that announce AMX and do not allow it.
    """
    return x if x.is_cuda else x.to(torch.promote_types(x.dtype, torch.float32))


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs: the heads of a group are the queries of one head."""
    q, k, v = (_usable(inputs[name]) for name in ("q", "k_cache", "v_cache"))
    grouped = q.unflatten(1, (k.shape[1], -1))
    held = torch.arange(k.shape[2], device=q.device) < inputs["lengths"][:, None]
    mask = held[:, None, None, :]
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=inputs["scale"])
    return (out.flatten(1, 2).to(inputs["q"].dtype),)


def _attend(inputs: dict[str, Any], v: torch.Tensor) -> torch.Tensor:
    """softmax(scale * q k^T) v over the keys that each sequence has."""
    q, k = inputs["q"], inputs["k_cache"]
    grouped = q.unflatten(1, (k.shape[1], -1))
    free = torch.arange(k.shape[2], device=q.device) >= inputs["lengths"][:, None]
    scores = (grouped @ k.mT).mul_(inputs["scale"])
    scores = scores.masked_fill_(free[:, None, None, :], -torch.inf)
    return (scores.softmax(dim=-1) @ v).flatten(1, 2)


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in float64."""
    return (_attend(inputs, inputs["v_cache"]),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The average of |v| with the probabilities as weights: rounding them changes a share of this, and in
    float16, below its smallest normal number, a share of |v|."""
    v = inputs["v_cache"].abs()
    return (_attend(inputs, v) + v.max() / 2**14,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Every second sequence fills its cache, the others end anywhere; behind the end lie old values."""
    d = workload.dims
    rows = (d["batch"], d["kv_heads"] * d["group"], d["head_dim"])
    cache = (d["batch"], d["kv_heads"], d["max_len"], d["head_dim"])
    # Scores up to 150, where exp without the maximum overflows: standard deviations from 0.25 to 45.
    sharpness = torch.exp2(generator.uniform((*rows[:2], 1), -2.0, 5.5))
    operands = {
        "q": sharpness * generator.normal(rows),
        "k_cache": generator.normal(cache),
        "v_cache": generator.normal(cache),
    }
    lengths = generator.integers((d["batch"],), 1, d["max_len"] + 1).to(torch.int32)
    lengths[::2] = d["max_len"]
    return {**{name: value.to(workload.dtype) for name, value in operands.items()}, "lengths": lengths}
