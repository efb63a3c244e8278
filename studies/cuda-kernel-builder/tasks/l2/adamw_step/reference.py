"""One AdamW step, as a PyTorch user writes it.

Shapes: p, grad (count,) of one dtype, exp_avg, exp_avg_sq (count,) float32 -> the three but grad, in place.
"""

from __future__ import annotations

from typing import Any

import torch


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op, computed in the dtype of exp_avg; on float64 inputs it is the truth."""
    p, exp_avg, exp_avg_sq = inputs["p"], inputs["exp_avg"], inputs["exp_avg_sq"]
    lr, beta1, beta2, step = (inputs[name] for name in ("lr", "beta1", "beta2", "step"))
    grad = inputs["grad"].to(exp_avg.dtype)
    exp_avg.mul_(beta1).add_(grad, alpha=1.0 - beta1)
    exp_avg_sq.mul_(beta2).addcmul_(grad, grad, value=1.0 - beta2)
    denominator = (exp_avg_sq.sqrt() / (1.0 - beta2**step) ** 0.5).add_(inputs["eps"])
    decayed = p.to(exp_avg.dtype) * (1.0 - lr * inputs["weight_decay"])
    p.copy_(decayed.addcdiv_(exp_avg, denominator, value=-lr / (1.0 - beta1**step)))
    return p, exp_avg, exp_avg_sq


def library(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The kernel behind torch.optim.AdamW(fused=True), which wants one dtype for parameters and states."""
    p, exp_avg, exp_avg_sq = inputs["p"], inputs["exp_avg"], inputs["exp_avg_sq"]
    if p.dtype != exp_avg.dtype:
        return reference(inputs)
    torch._fused_adamw_(
        [p],
        [inputs["grad"]],
        [exp_avg],
        [exp_avg_sq],
        [],
        [torch.full((), float(inputs["step"]), dtype=torch.float32, device=p.device)],
        lr=inputs["lr"],
        beta1=inputs["beta1"],
        beta2=inputs["beta2"],
        weight_decay=inputs["weight_decay"],
        eps=inputs["eps"],
        amsgrad=False,
        maximize=False,
    )
    return p, exp_avg, exp_avg_sq


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """Moments that fit the gradients; an eighth of the gradients are about 1e-8, as small as eps."""
    shape = (workload.dims["count"],)
    noise = generator.uniform(shape)
    scale = torch.where(noise < 0.125, 1e-8, 1e-3)
    grad, momentum = scale * generator.normal(shape), scale * generator.normal(shape)
    return {
        "p": (0.02 * generator.normal(shape)).to(workload.dtype),
        "grad": grad.to(workload.dtype),
        "exp_avg": 0.5 * momentum + 0.1 * grad,
        "exp_avg_sq": (scale * (0.3 + 8.0 * noise * (1.0 - noise))).square(),
    }
