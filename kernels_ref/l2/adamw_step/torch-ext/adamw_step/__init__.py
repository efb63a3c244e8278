"""One AdamW step, in place."""

import torch

from ._ops import ops


def adamw_step(
    p: torch.Tensor,
    grad: torch.Tensor,
    exp_avg: torch.Tensor,
    exp_avg_sq: torch.Tensor,
    *,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    step: int,
) -> None:
    """All (count,): p and grad of one dtype, exp_avg and exp_avg_sq float32; step counts from 1."""
    ops.adamw_step(p, grad, exp_avg, exp_avg_sq, lr, beta1, beta2, eps, weight_decay, step)


__all__ = ["adamw_step"]
