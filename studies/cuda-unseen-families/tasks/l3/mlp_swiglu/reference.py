"""The feed-forward block of a Llama layer (SwiGLU), as a PyTorch user writes it.

Shapes: x (tokens, hidden), w_gate and w_up (inner, hidden), w_down (hidden, inner) -> out (tokens, hidden).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    x = inputs["x"]
    activation = F.silu(F.linear(x, inputs["w_gate"])) * F.linear(x, inputs["w_up"])
    return (F.linear(activation, inputs["w_down"]),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What the last product is like when signs are random, were every gate open: shape (tokens, hidden).

    Twice that: PyTorch rounds g, u, the gate and h, and four errors are twice as large as one.
    """
    x, w_down = inputs["x"], inputs["w_down"].abs()
    open_gates = (F.linear(x, inputs["w_gate"]) * F.linear(x, inputs["w_up"])).abs()
    return (2.0 * F.linear(open_gates, w_down) / w_down.shape[-1] ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Normalised activations, and weights that keep gate, up and output at about 1."""
    tokens, hidden, inner = (workload.dims[name] for name in ("tokens", "hidden", "inner"))
    operands = {
        "x": generator.normal((tokens, hidden)) + 0.1,
        "w_gate": generator.normal((inner, hidden)) * (1.5 / hidden**0.5),
        "w_up": generator.normal((inner, hidden)) * (1.0 / hidden**0.5),
        "w_down": generator.normal((hidden, inner)) * (1.5 / inner**0.5),
    }
    return {name: value.to(workload.dtype) for name, value in operands.items()}
