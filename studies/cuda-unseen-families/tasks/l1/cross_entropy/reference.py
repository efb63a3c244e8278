"""Cross-entropy with its log-sum-exp, as training code with a z-loss writes it in PyTorch.

Shapes: logits (tokens, vocab), target (tokens,) int64 -> loss (tokens,), lse (tokens,), float32.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def _wide(logits: torch.Tensor) -> torch.dtype:
    """float32, or float64 for the truth."""
    return torch.promote_types(logits.dtype, torch.float32)


def _picked(values: torch.Tensor, target: torch.Tensor, ignored: torch.Tensor) -> torch.Tensor:
    """(tokens,): values[i, target[i]]; that of token 0 where ignored."""
    return values.gather(1, target.masked_fill(ignored, 0).unsqueeze(1)).squeeze(1)


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """loss and lse in float32; on float64 logits they are the truth."""
    logits = inputs["logits"].to(_wide(inputs["logits"]))
    ignored = inputs["target"] == inputs["ignore_index"]
    lse = torch.logsumexp(logits, dim=-1)
    loss = lse - _picked(logits, inputs["target"], ignored)
    return loss.masked_fill(ignored, 0.0), lse


def library(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """What F.cross_entropy is made of; lse is the difference of any logit and its log-probability."""
    logits = inputs["logits"]
    log_probabilities = F.log_softmax(logits, dim=-1, dtype=_wide(logits))
    loss = F.nll_loss(
        log_probabilities, inputs["target"], ignore_index=inputs["ignore_index"], reduction="none"
    )
    return loss, logits[:, 0] - log_probabilities[:, 0]


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Flat and peaked rows, some shifted by 120; half the targets are likely tokens, a tenth are ignored."""
    tokens, vocab = workload.dims["tokens"], workload.dims["vocab"]
    sharpness = generator.uniform((tokens, 1), 0.5, 3.0)
    shift = 120.0 * generator.integers((tokens, 1), -1, 2).to(torch.float32)
    logits = generator.normal((tokens, vocab)) * sharpness + shift
    target = generator.integers((tokens,), 0, vocab)
    likelier = 6.0 * (generator.uniform((tokens, 1)) < 0.5)
    logits.scatter_add_(1, target.unsqueeze(1), likelier.to(logits.dtype))
    ignored = generator.uniform((tokens,)) < 0.1
    if tokens > 1:  # a single token has a loss
        target = target.masked_fill(ignored, workload.scalars["ignore_index"])
    return {"logits": logits.to(workload.dtype), "target": target}
