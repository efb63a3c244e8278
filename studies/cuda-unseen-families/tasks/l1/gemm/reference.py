"""A linear layer without bias, as a PyTorch user writes it.

Shapes: a (m, k), b (n, k) -> out (m, n), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    return (F.linear(inputs["a"], inputs["b"]),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What a product of these rows is like when signs are random: (|a| |b|^T) / sqrt(k), shape (m, n)."""
    a, b = inputs["a"].abs(), inputs["b"].abs()
    return (F.linear(a, b) / a.shape[-1] ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Activations about as large as 1 with a small mean, weights as large as a trained layer's."""
    m, n, k = (workload.dims[name] for name in ("m", "n", "k"))
    a = generator.normal((m, k)) + 0.1
    b = generator.normal((n, k)) * (2.0 / k**0.5)
    return {"a": a.to(workload.dtype), "b": b.to(workload.dtype)}
