"""An integer output with ties: x (rows, cols) -> index (rows,) int64."""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """One of the places, whichever torch takes."""
    return (inputs["x"].argmax(dim=-1),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Few different values, so that nearly every row has ties."""
    shape = (workload.dims["rows"], workload.dims["cols"])
    return {"x": generator.integers(shape, 0, 4).to(workload.dtype)}


def compare(
    outputs: tuple[torch.Tensor, ...], truths: tuple[torch.Tensor, ...], inputs: dict[str, torch.Tensor]
) -> float:
    """0 where every index points at a largest element, else inf."""
    reached = inputs["x"].gather(1, outputs[0].unsqueeze(1)).squeeze(1)
    return 0.0 if bool((reached == inputs["x"].amax(dim=1)).all()) else float("inf")
