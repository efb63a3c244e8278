"""In place: y (rows, cols) is read and written, x (rows, cols) is read."""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What y holds afterwards."""
    return (inputs["y"] + inputs["alpha"] * inputs["x"],)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Positive values: nothing cancels."""
    shape = (workload.dims["rows"], workload.dims["cols"])
    return {name: generator.uniform(shape, 0.5, 1.5).to(workload.dtype) for name in ("y", "x")}
