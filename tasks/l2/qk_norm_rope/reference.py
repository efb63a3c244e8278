"""Per-head RMS norm and rotary embedding of queries and keys, as a PyTorch user writes it for Qwen3.

Shapes: qkv (tokens, groups + 2, kv_heads, head_dim) and weights (head_dim,) of the workload's dtype,
cos and sin (tokens, head_dim // 2) float32 -> qkv with its query and key heads replaced.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op, with half precision promoted by the float32 tables; on float64 inputs it is the truth."""
    qkv = inputs["qkv"]
    cos, sin = (inputs[name][:, None, None] for name in ("cos", "sin"))
    parts = []
    for part, weight in ((qkv[:, :-2], inputs["q_weight"]), (qkv[:, -2:-1], inputs["k_weight"])):
        a, b = F.rms_norm(part, (part.shape[-1],), weight, inputs["eps"]).chunk(2, dim=-1)
        parts.append(torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(qkv.dtype))
    return (torch.cat((*parts, qkv[:, -1:]), dim=1),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Heads of very different size, random positions up to 32767, the frequencies of Qwen3 (base 1000000)."""
    tokens, groups, kv_heads, head_dim = (
        workload.dims[name] for name in ("tokens", "groups", "kv_heads", "head_dim")
    )
    shape = (tokens, groups + 2, kv_heads, head_dim)
    scale = torch.exp2(
        generator.uniform((*shape[:-1], 1), -9.0, 3.0)
    )  # mean square from 4e-6, near eps, to 64
    positions = generator.integers((tokens, 1), 1, 32768).to(torch.float64)
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float64, device=generator.device) / head_dim
    angles = positions * 1e6**-exponents
    return {
        "qkv": (generator.normal(shape) * scale).to(workload.dtype),
        "q_weight": (1.0 + 0.2 * generator.normal((head_dim,))).to(workload.dtype),
        "k_weight": (1.0 + 0.2 * generator.normal((head_dim,))).to(workload.dtype),
        "cos": angles.cos().to(torch.float32),
        "sin": angles.sin().to(torch.float32),
    }
