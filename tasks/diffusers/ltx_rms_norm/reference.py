"""RMS norm of queries and keys over the hidden width, as diffusers writes it for LTX-Video.

Shapes: q (batch, q_tokens, hidden), k (batch, k_tokens, hidden), weights (hidden,) -> outputs like q and k;
all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    q, k, eps = inputs["q"], inputs["k"], inputs["eps"]
    width = (q.shape[-1],)
    return F.rms_norm(q, width, inputs["q_weight"], eps), F.rms_norm(k, width, inputs["k_weight"], eps)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Tokens of very different size, so that neither the norm nor eps can be left out."""
    batch, hidden = workload.dims["batch"], workload.dims["hidden"]
    operands = {}
    for name in ("q", "k"):
        tokens = workload.dims[f"{name}_tokens"]
        # Mean square from 1.5e-5, near eps, to 64.
        scale = torch.exp2(generator.uniform((batch, tokens, 1), -8.0, 3.0))
        operands[name] = generator.normal((batch, tokens, hidden)) * scale
        operands[f"{name}_weight"] = 1.0 + 0.1 * generator.normal((hidden,))
    return {name: value.to(workload.dtype) for name, value in operands.items()}
