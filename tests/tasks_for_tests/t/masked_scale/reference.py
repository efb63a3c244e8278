"""Partly written: y (rows, cols) where mask (rows, cols) is true; x (rows, cols) is read."""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What y holds afterwards."""
    return (torch.where(inputs["mask"], inputs["alpha"] * inputs["x"], inputs["y"]),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Half of the mask is set."""
    shape = (workload.dims["rows"], workload.dims["cols"])
    values = {name: generator.normal(shape).to(workload.dtype) for name in ("y", "x")}
    return values | {"mask": generator.uniform(shape) > 0.5}
