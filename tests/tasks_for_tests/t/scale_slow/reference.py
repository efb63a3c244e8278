"""A scaled copy: x (rows, cols) -> out (rows, cols)."""

from __future__ import annotations

from typing import Any

import torch

PASSES = 300
"""A few milliseconds: a ratio to a reference of microseconds would be that of the host's noise."""


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs, many times over."""
    for _ in range(PASSES - 1):
        inputs["alpha"] * inputs["x"]
    return (inputs["alpha"] * inputs["x"],)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Standard normal values."""
    shape = (workload.dims["rows"], workload.dims["cols"])
    return {"x": generator.normal(shape).to(workload.dtype)}
