"""A contraction: a (rows, depth), b (depth, cols) -> out (rows, cols)."""

from __future__ import annotations

import math
from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The product."""
    return (inputs["a"] @ inputs["b"],)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What a sum of `depth` such products would have as its size, were their signs random."""
    return (inputs["a"].abs() @ inputs["b"].abs() / math.sqrt(inputs["a"].shape[1]),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Standard normal values."""
    rows, depth, cols = (workload.dims[name] for name in ("rows", "depth", "cols"))
    return {
        "a": generator.normal((rows, depth)).to(workload.dtype),
        "b": generator.normal((depth, cols)).to(workload.dtype),
    }
