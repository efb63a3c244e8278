"""Attention of one new token per sequence to a paged cache, with grouped heads, as a PyTorch user writes it.

Shapes: q and out (batch, heads, head_dim), k_cache and v_cache (blocks, block_size, kv_heads, head_dim), all
of one dtype; block_table (batch, max_blocks) and context_lens (batch,) int32. Entries of block_table that no
key needs are -1. Query head h reads the keys of head h // (heads / kv_heads).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _gathered(cache: torch.Tensor, block_table: torch.Tensor) -> torch.Tensor:
    """(batch, kv_heads, max_blocks * block_size, head_dim): the keys or values of each sequence in order."""
    return cache[block_table.clamp(min=0)].flatten(1, 2).transpose(1, 2)


def _held(inputs: dict[str, Any], k: torch.Tensor) -> torch.Tensor:
    """(batch, 1, 1, keys) bool: which keys a sequence has."""
    places = torch.arange(k.shape[2], device=k.device)
    return (places < inputs["context_lens"][:, None])[:, None, None, :]


def _usable(x: torch.Tensor) -> torch.Tensor:
    """`x` on a GPU, at least float32 on a CPU.

    PyTorch's fused 16-bit attention ends the process on machines that announce AMX and do not allow it.
    """
    return x if x.is_cuda else x.to(torch.promote_types(x.dtype, torch.float32))


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs: the heads of a group are the queries of one head."""
    k = _usable(_gathered(inputs["k_cache"], inputs["block_table"]))
    v = _usable(_gathered(inputs["v_cache"], inputs["block_table"]))
    grouped = _usable(inputs["q"]).unflatten(1, (k.shape[1], -1))
    mask = _held(inputs, k)
    out = F.scaled_dot_product_attention(grouped, k, v, attn_mask=mask, scale=inputs["scale"])
    return (out.flatten(1, 2).to(inputs["q"].dtype),)


def _attend(inputs: dict[str, Any], values: torch.Tensor) -> torch.Tensor:
    """softmax(scale * q k^T) v over the keys that each sequence has."""
    k = _gathered(inputs["k_cache"], inputs["block_table"])
    grouped = inputs["q"].unflatten(1, (k.shape[1], -1))
    scores = (grouped @ k.mT).mul_(inputs["scale"])
    p = scores.masked_fill_(~_held(inputs, k), -torch.inf).softmax(dim=-1)
    return (p @ _gathered(values, inputs["block_table"])).flatten(1, 2)


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in float64."""
    return (_attend(inputs, inputs["v_cache"]),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The average of |v| with the probabilities as weights: rounding them changes a share of this, and in
    float16, below its smallest normal number, a share of |v|."""
    v = inputs["v_cache"].abs()
    return (_attend(inputs, v) + v.max() / 2**14,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Every second sequence is of full length, the others end anywhere; blocks lie in any order."""
    d = workload.dims
    batch, max_blocks, size = d["batch"], d["max_blocks"], d["block_size"]
    rows = (batch, d["kv_heads"] * d["group"], d["head_dim"])
    cache = (batch * max_blocks, size, d["kv_heads"], d["head_dim"])
    # Scores up to 150, where exp without the maximum overflows: standard deviations from 0.25 to 45.
    sharpness = torch.exp2(generator.uniform((*rows[:2], 1), -2.0, 5.5))
    operands = {
        "q": sharpness * generator.normal(rows),
        "k_cache": generator.normal(cache),
        "v_cache": generator.normal(cache),
    }
    lengths = generator.integers((batch,), 1, max_blocks * size + 1).to(torch.int32)
    lengths[::2] = max_blocks * size
    shuffled = generator.uniform((batch * max_blocks,)).argsort().reshape(batch, max_blocks)
    unused = torch.arange(max_blocks, device=generator.device) * size >= lengths[:, None]
    return {
        **{name: value.to(workload.dtype) for name, value in operands.items()},
        "block_table": shuffled.masked_fill(unused, -1).to(torch.int32),
        "context_lens": lengths,
    }
