"""Group norm and SiLU over (n, channels, positions), as a PyTorch user writes it.

Shapes: x (n, channels, positions), weight (channels,), bias (channels,) -> out like x, all of one dtype.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    y = F.group_norm(inputs["x"], inputs["groups"], inputs["weight"], inputs["bias"], inputs["eps"])
    return (F.silu(y),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Groups of very different spread, channels of different offset, so that eps and grouping matter."""
    n, channels, positions = (workload.dims[name] for name in ("n", "channels", "positions"))
    groups = workload.scalars["groups"]
    spread = torch.exp2(generator.uniform((n, groups, 1, 1), -8.0, 3.0))  # variance from 1.5e-5, near eps
    offset = generator.uniform((n, groups, channels // groups, 1), -1.0, 3.0)
    noise = generator.normal((n, groups, channels // groups * positions))
    # One element, anywhere, has a ninth of a group's energy: without it, 16 bits could not tell the
    # statistics of a sample of a large group from those of all of it.
    share = math.sqrt(noise.shape[-1] / 8)
    sign = 2.0 * generator.integers((n, groups, 1), 0, 2) - 1.0
    noise.scatter_(-1, generator.integers((n, groups, 1), 0, noise.shape[-1]), share * sign.to(noise.dtype))
    x = (noise.reshape(n, groups, channels // groups, positions) + offset) * spread
    weight = 1.0 + 0.2 * generator.normal((channels,))
    bias = 0.3 * generator.normal((channels,))
    operands = {"x": x.reshape(n, channels, positions), "weight": weight, "bias": bias}
    return {name: value.to(workload.dtype) for name, value in operands.items()}
