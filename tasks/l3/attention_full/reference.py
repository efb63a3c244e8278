"""Attention without a mask, self or cross, as a PyTorch user writes it.

Shapes: q and out (batch, heads, queries, head_dim), k and v (batch, heads, keys, head_dim), all of one dtype.
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
    """The op in the dtype of its inputs."""
    q, k, v = (_usable(inputs[name]) for name in "qkv")
    out = F.scaled_dot_product_attention(q, k, v, scale=inputs["scale"])
    return (out.to(inputs["q"].dtype),)


def _attend(inputs: dict[str, Any], v: torch.Tensor) -> torch.Tensor:
    """softmax(scale * q k^T) v, one head at a time: all scores of a batch would need gigabytes."""
    out = torch.empty_like(inputs["q"])
    for b in range(v.shape[0]):
        for h in range(v.shape[1]):
            scores = (inputs["q"][b, h] @ inputs["k"][b, h].mT).mul_(inputs["scale"])
            out[b, h] = scores.softmax(dim=-1) @ v[b, h]
    return out


def truth(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in float64."""
    return (_attend(inputs, inputs["v"]),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The average of |v| with the probabilities as weights: rounding them changes a share of this, and in
    float16, below its smallest normal number, a share of |v|."""
    v = inputs["v"].abs()
    return (_attend(inputs, v) + v.max() / 2**14,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Queries of very different sharpness: some rows average many keys, others pick one."""
    d = workload.dims
    rows = (d["batch"], d["heads"], d["queries"], d["head_dim"])
    keys = (d["batch"], d["heads"], d["keys"], d["head_dim"])
    # Scores up to 150, where exp without the maximum overflows: standard deviations from 0.25 to 45.
    sharpness = torch.exp2(generator.uniform((*rows[:3], 1), -2.0, 5.5))
    operands = {
        "q": sharpness * generator.normal(rows),
        "k": generator.normal(keys),
        "v": generator.normal(keys),
    }
    return {name: value.to(workload.dtype) for name, value in operands.items()}
