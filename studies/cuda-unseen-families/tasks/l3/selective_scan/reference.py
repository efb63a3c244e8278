"""Selective state-space scan, as PyTorch without a kernel of its own does it: a parallel scan by doubling.

Shapes: u, delta (batch, dim, length), A (dim, state), B, C (batch, state, length), D (dim,) -> out like u.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op, in float32 whatever the dtype of u; on float64 inputs it is the truth."""
    u = inputs["u"]
    wide = torch.promote_types(u.dtype, torch.float32)
    a, d = inputs["A"].to(wide), inputs["D"].to(wide)
    x, delta, b, c = (inputs[name].to(wide) for name in ("u", "delta", "B", "C"))
    # (batch, dim, state, length): h[t] = decay[t] * h[t - 1] + h[t]
    decay = torch.exp(delta[:, :, None] * a[:, :, None])
    h = (delta * x)[:, :, None] * b[:, None]
    length, step = u.shape[-1], 1
    while step < length:
        # h[t] now holds the last `step` terms; it takes those before from `step` earlier, decayed.
        h = h + decay * F.pad(h[..., :-step], (step, 0))
        decay = decay * F.pad(decay[..., :-step], (step, 0))
        step *= 2
    y = (h * c[:, None]).sum(dim=2) + d[:, None] * x
    return (y.to(u.dtype),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Channels that forget within a few steps, and channels that remember a thousand."""
    batch, dim, state, length = (workload.dims[name] for name in ("batch", "dim", "state", "length"))
    # Each channel has a step size of its own, as in a trained model. If all drew from one range, all would
    # forget within 256 steps, and a sequence could be cut into pieces that do not wait for each other.
    size = generator.uniform((batch, dim, 1), -9.0, -2.0)
    typed = {
        "u": generator.normal((batch, dim, length)),
        "delta": torch.exp2(size + generator.uniform((batch, dim, length), -1.0, 1.0)),
        "B": generator.normal((batch, state, length)),
        "C": generator.normal((batch, state, length)),
    }
    operands = {name: value.to(workload.dtype) for name, value in typed.items()}
    operands["A"] = -torch.exp2(generator.uniform((dim, state), -1.0, 4.0))
    operands["D"] = 0.25 * generator.normal((dim,))
    return operands
