import torch

from ._ops import add_op_namespace_prefix, ops


@torch.library.custom_op(add_op_namespace_prefix("scale_in_python"), mutates_args=("out",))
def _scale(out: torch.Tensor, x: torch.Tensor, alpha: float) -> None:
    ops.scale(out, x, alpha)


@_scale.register_fake
def _(out, x, alpha):
    return None


# The first call through such an operator imports much of torch.
_scale(torch.empty(1), torch.ones(1), 1.0)


def scale(out, x, *, alpha):
    _scale(out, x, float(alpha))
