"""A linear layer with bias, then the tanh form of GELU, as a PyTorch user writes it.

Shapes: x (m, k), weight (n, k), bias (n,) -> out (m, n), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    return (F.gelu(F.linear(inputs["x"], inputs["weight"], inputs["bias"]), approximate="tanh"),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What a product of these rows is like when signs are random: (|x| |weight|^T) / sqrt(k)."""
    x, weight = inputs["x"].abs(), inputs["weight"].abs()
    return (F.linear(x, weight) / x.shape[-1] ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Normalised activations, and weights and biases that reach both the linear and the flat part of GELU."""
    m, n, k = (workload.dims[name] for name in ("m", "n", "k"))
    x = generator.normal((m, k)) + 0.1
    weight = generator.normal((n, k)) * (1.5 / k**0.5)
    bias = 0.5 * generator.normal((n,))
    operands = {"x": x, "weight": weight, "bias": bias}
    return {name: value.to(workload.dtype) for name, value in operands.items()}
