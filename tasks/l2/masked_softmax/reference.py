"""Softmax of scaled and masked attention scores, as eager attention in PyTorch writes it.

Shapes: scores (batch, heads, queries, keys), mask (batch, queries, keys) bool -> out like scores.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op with a softmax in float32; on float64 scores it is the truth."""
    scores, mask = inputs["scores"], inputs["mask"].unsqueeze(1)
    wide = torch.promote_types(scores.dtype, torch.float32)
    scaled = (scores.to(wide) * inputs["scale"]).masked_fill(~mask, -torch.inf)
    probabilities = F.softmax(scaled, dim=-1)
    return (probabilities.masked_fill(~mask.any(dim=-1, keepdim=True), 0.0).to(scores.dtype),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Flat, peaked and shifted rows; masks are a window with holes, and one in sixteen is empty."""
    batch, heads, queries, keys = (workload.dims[d] for d in ("batch", "heads", "queries", "keys"))
    rows = (batch, heads, queries, 1)
    sharpness = generator.uniform(rows, 0.5, 3.0)
    shift = 120.0 * generator.integers(rows, -1, 2).to(torch.float32)
    scores = generator.normal((batch, heads, queries, keys)) * sharpness + shift
    ends = generator.integers((batch, queries, 2), 0, keys + 1)
    place = torch.arange(keys, device=generator.device)
    window = (place >= ends.amin(dim=-1, keepdim=True)) & (place < ends.amax(dim=-1, keepdim=True))
    holes = generator.uniform((batch, queries, keys)) < 0.1
    empty = generator.uniform((batch, queries, 1)) < 1 / 16
    if batch * queries == 1:  # the only row is neither empty nor short
        window = place < keys - keys // 4
        empty = torch.zeros_like(empty)
    mask = window & ~holes & ~empty
    # A tenth of the masked scores are far above all that count: their maximum would send those to 0.
    far = (generator.uniform(scores.shape) < 0.1) & ~mask.unsqueeze(1)
    scores += 200.0 * far.to(scores.dtype)
    return {"scores": (scores / workload.scalars["scale"]).to(workload.dtype), "mask": mask}
