"""A scaled copy: x (rows, cols) -> out (rows, cols)."""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs."""
    return (inputs["alpha"] * inputs["x"],)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Standard normal values."""
    shape = (workload.dims["rows"], workload.dims["cols"])
    return {"x": generator.normal(shape).to(workload.dtype)}
