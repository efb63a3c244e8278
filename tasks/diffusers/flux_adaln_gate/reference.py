"""Gated residual and modulated layer norm, as diffusers writes them in the Flux block.

Shapes: residual, x (batch, tokens, hidden), gate, scale, shift (batch, hidden)
-> out, norm (batch, tokens, hidden), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    gate, scale, shift = (inputs[name].unsqueeze(1) for name in ("gate", "scale", "shift"))
    out = inputs["residual"] + gate * inputs["x"]
    norm = F.layer_norm(out, (out.shape[-1],), eps=inputs["eps"])
    return out, norm * (1 + scale) + shift


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Tokens of very different spread and offset, so that mean, variance and eps all matter."""
    batch, tokens, hidden = (workload.dims[name] for name in ("batch", "tokens", "hidden"))
    spread = torch.exp2(generator.uniform((batch, tokens, 1), -8.0, 3.0))  # variance down to 1.5e-5, near eps
    offset = generator.uniform((batch, tokens, 1), -1.5, 1.5)
    operands = {
        "residual": (generator.normal((batch, tokens, hidden)) + offset) * spread,
        "x": generator.normal((batch, tokens, hidden)) * spread,
        "gate": 0.7 * generator.normal((batch, hidden)),
        "scale": 0.3 * generator.normal((batch, hidden)),
        "shift": 0.3 * generator.normal((batch, hidden)),
    }
    return {name: value.to(workload.dtype) for name, value in operands.items()}
