import torch

from ._ops import ops


def _warm_up():
    x = torch.ones(64, 64)
    out = torch.empty_like(x)
    for _ in range(100):
        ops.scale(out, x, 2.0)
    assert bool((out == 2.0).all())


_warm_up()


def scale(out, x, *, alpha):
    ops.scale(out, x, alpha)
