"""Rotary embedding of keys and write of keys and values into a paged cache, as a PyTorch user writes it.

Shapes: key_cache, value_cache (blocks, block_size, kv_heads, head_dim) and key, value (tokens, kv_heads,
head_dim) of the workload's dtype, cos and sin (tokens, head_dim // 2) float32, slots (tokens,) int64
-> key_cache, value_cache, in place.
"""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op, with 16-bit keys promoted by the float32 tables; on float64 inputs it is the truth."""
    key, value, slots = inputs["key"], inputs["value"], inputs["slots"]
    cos, sin = inputs["cos"].unsqueeze(1), inputs["sin"].unsqueeze(1)
    a, b = key.chunk(2, dim=-1)
    rotated = torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(key.dtype)
    inputs["key_cache"].flatten(0, 1).index_copy_(0, slots, rotated)
    inputs["value_cache"].flatten(0, 1).index_copy_(0, slots, value)
    return inputs["key_cache"], inputs["value_cache"]


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Random positions up to 8191, frequencies of base 10000, slots from all over the cache."""
    names = ("tokens", "blocks", "block_size", "kv_heads", "head_dim")
    tokens, blocks, block_size, kv_heads, head_dim = (workload.dims[name] for name in names)
    positions = generator.integers((tokens, 1), 1, 8192).to(torch.float64)
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=generator.device) / head_dim
    angles = positions * 10000.0**-exponents
    cache, new = (blocks, block_size, kv_heads, head_dim), (tokens, kv_heads, head_dim)
    operands = {
        "key_cache": generator.normal(cache),
        "value_cache": generator.normal(cache),
        "key": generator.normal(new),
        "value": generator.normal(new),
    }
    return {
        **{name: made.to(workload.dtype) for name, made in operands.items()},
        "cos": angles.cos().to(torch.float32),
        "sin": angles.sin().to(torch.float32),
        "slots": generator.uniform((blocks * block_size,)).argsort()[:tokens],
    }
