"""Router with sigmoid scores and a bias for the choice, as DeepSeek-V3 has it, without groups.

Shapes: logits (tokens, experts), bias (experts,) -> weights (tokens, 8), all float32; ids (tokens, 8) int32.
"""

from __future__ import annotations

import math
from typing import Any

import torch

_CHOSEN = 8
_NO_ZERO = 1e-20
_TIE = 2e-6
_WEIGHT_TOLERANCE = 1e-5


def _weights(scores: torch.Tensor, ids: torch.Tensor, scaling: float) -> torch.Tensor:
    chosen = scores.gather(-1, ids)
    return scaling * chosen / (chosen.sum(dim=-1, keepdim=True) + _NO_ZERO)


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of its inputs; on float64 inputs it is the truth."""
    scores = inputs["logits"].sigmoid()
    ids = (scores + inputs["bias"]).topk(_CHOSEN, dim=-1).indices
    return _weights(scores, ids, inputs["scaling"]), ids.to(torch.int32)


def compare(
    outputs: tuple[torch.Tensor, ...], truths: tuple[torch.Tensor, ...], inputs: dict[str, Any]
) -> float:
    """The larger of: how far a biased score is from the one of its rank, over 2e-6; the error of the weights.

    Infinite where an id is out of range or occurs twice in a row. The true weights sum up to `scaling`.
    """
    weights, ids = outputs[0].double(), outputs[1].long()
    scores = inputs["logits"].double().sigmoid()
    biased = scores + inputs["bias"].double()
    in_range = (ids >= 0) & (ids < biased.shape[-1])
    repeated = ids.sort(dim=-1).values.diff(dim=-1) == 0
    if not bool(in_range.all()) or bool(repeated.any()):
        return math.inf
    best = biased.topk(_CHOSEN, dim=-1).values
    rank_error = (best - biased.gather(-1, ids)).abs() / _TIE
    scaling = truths[0].sum(dim=-1).amax().item()
    truth = _weights(scores, ids, scaling)
    s = truth.square().mean(dim=-1, keepdim=True).sqrt().clamp(min=scaling / _CHOSEN)
    weight_error = (weights - truth).abs() / (_WEIGHT_TOLERANCE * (truth.abs() + s))
    return float(torch.maximum(rank_error.amax(), weight_error.amax()))


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Rows of their own mean and spread; an eighth of them, and the bias, on a coarse grid: ties occur."""
    tokens, experts = workload.dims["tokens"], workload.dims["experts"]
    spread = generator.uniform((tokens, 1), 0.5, 2.0)
    logits = generator.normal((tokens, experts)) * spread + generator.normal((tokens, 1))
    coarse = (logits * 4.0).round() / 4.0
    logits[: tokens // 8] = coarse[: tokens // 8]
    bias = (generator.normal((experts,)) * 4.0).round() / 32.0
    return {"logits": logits, "bias": bias}
