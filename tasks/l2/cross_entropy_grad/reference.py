"""Cross-entropy and the gradient of its logits, as PyTorch code without autograd writes it.

Shapes: logits (tokens, vocab), target (tokens,) int64, grad_loss (tokens,) float32
-> loss (tokens,) float32, logits (tokens, vocab), the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """loss in float32, the gradient in the dtype of the logits; on float64 inputs they are the truth."""
    logits, target = inputs["logits"], inputs["target"]
    wide = torch.promote_types(logits.dtype, torch.float32)
    ignored = target == inputs["ignore_index"]
    place = target.masked_fill(ignored, 0).unsqueeze(1)
    log_probabilities = F.log_softmax(logits, dim=-1, dtype=wide)
    loss = -log_probabilities.gather(1, place).squeeze(1)
    gradient = log_probabilities.exp()
    gradient.scatter_add_(1, place, torch.full_like(place, -1, dtype=wide))
    gradient *= inputs["grad_loss"].masked_fill(ignored, 0.0).unsqueeze(1)
    return loss.masked_fill(ignored, 0.0), gradient.to(logits.dtype)


def scale(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """RMS of the losses, and |grad_loss| * (p + 1 / vocab)."""
    loss, _ = reference(inputs)
    probability = F.softmax(inputs["logits"], dim=-1)
    weight = inputs["grad_loss"].abs().unsqueeze(1)
    return loss.square().mean().sqrt().expand_as(loss), weight * (probability + 1.0 / probability.shape[1])


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
    grad_loss = generator.normal((tokens,))
    return {"logits": logits.to(workload.dtype), "target": target, "grad_loss": grad_loss}
