"""A reduction: x (rows, cols) -> out (rows,)."""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The sums of all rows."""
    return (inputs["x"].sum(dim=-1),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Positive values: the sums do not cancel."""
    shape = (workload.dims["rows"], workload.dims["cols"])
    return {"x": generator.uniform(shape, 0.5, 1.5).to(workload.dtype)}
