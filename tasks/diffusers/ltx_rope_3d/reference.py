"""Rotary embedding over interleaved pairs, as diffusers writes it for LTX-Video.

Shapes: x (batch, tokens, hidden) of the workload's dtype, cos and sin (tokens, hidden) float32
-> out (batch, tokens, hidden) of the dtype of x; tokens = frames * height * width.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_THETA = 10000.0
# Latents per pixel and per frame (32, 32, 8), 25 frames a second, and the base sizes of 20 and 2048 that the
# model divides positions by.
_FRAME_STEP = 8.0 / 25.0 / 20.0
_PIXEL_STEP = 32.0 / 2048.0


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op, with half-precision x promoted by the float32 tables; on float64 inputs it is the truth."""
    x = inputs["x"]
    even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
    rotated = torch.stack((-odd, even), dim=-1).flatten(-2)
    return ((x * inputs["cos"] + rotated * inputs["sin"]).to(x.dtype),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """The tables of a grid of latents that starts at a random frame; one token in eight stands elsewhere."""
    batch, frames, height, width, hidden = (
        workload.dims[name] for name in ("batch", "frames", "height", "width", "hidden")
    )
    options: dict[str, Any] = {"dtype": torch.float64, "device": generator.device}
    start = generator.integers((1,), 1, 64).to(torch.float64)
    axes = (
        (torch.arange(frames, **options) + start) * _FRAME_STEP,
        torch.arange(height, **options) * _PIXEL_STEP,
        torch.arange(width, **options) * _PIXEL_STEP,
    )
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, 3, 1)
    # Else a row of the grid could serve for all rows of its frame, and most of the tables need not be read.
    elsewhere = generator.uniform((frames * height * width, 1, 1)) < 0.125
    grid = torch.where(elsewhere, generator.uniform(grid.shape).to(torch.float64), grid)
    frequencies = _THETA ** torch.linspace(0.0, 1.0, hidden // 6, **options) * (math.pi / 2)
    angles = ((2.0 * grid - 1.0) * frequencies).transpose(1, 2).flatten(1).repeat_interleave(2, dim=-1)
    angles = torch.nn.functional.pad(angles, (hidden % 6, 0))  # an angle of 0: cosine 1, sine 0
    tokens = frames * height * width
    return {
        "x": generator.normal((batch, tokens, hidden)).to(workload.dtype),
        "cos": angles.cos().to(torch.float32),
        "sin": angles.sin().to(torch.float32),
    }
