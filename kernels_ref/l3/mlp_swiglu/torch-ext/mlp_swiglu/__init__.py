"""The feed-forward block of a Llama layer, written into a tensor that the caller owns."""

import torch

from ._ops import ops


def mlp_swiglu(
    out: torch.Tensor, x: torch.Tensor, w_gate: torch.Tensor, w_up: torch.Tensor, w_down: torch.Tensor
) -> None:
    """out = (silu(x @ w_gate.T) * (x @ w_up.T)) @ w_down.T.

    Shapes: out and x (tokens, hidden), w_gate and w_up (inner, hidden), w_down (hidden, inner).
    """
    ops.mlp_swiglu(out, x, w_gate, w_up, w_down)


__all__ = ["mlp_swiglu"]
