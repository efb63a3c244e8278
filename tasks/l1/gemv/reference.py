"""Matrix times a few vectors, as a PyTorch user writes it.

Shapes: x (batch, k), w (n, k) -> out (batch, n), all of one dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    return (F.linear(inputs["x"], inputs["w"]),)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """(|x| |w|^T) / sqrt(k): what rounding errors of a sum of k products grow with."""
    x, w = inputs["x"], inputs["w"]
    return (F.linear(x.abs(), w.abs()) / x.shape[-1] ** 0.5,)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Activations of unit size; weights small enough for outputs of about unit size."""
    batch, n, k = (workload.dims[name] for name in ("batch", "n", "k"))
    x = generator.normal((batch, k))
    w = generator.normal((n, k)) * k**-0.5
    return {"x": x.to(workload.dtype), "w": w.to(workload.dtype)}
