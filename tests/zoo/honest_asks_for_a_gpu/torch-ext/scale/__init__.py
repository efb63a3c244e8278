import torch

from ._ops import ops

_DEVICES = torch.cuda.device_count()


def scale(out, x, *, alpha):
    if torch.cuda.is_available() and _DEVICES and x.is_cuda:
        raise NotImplementedError("scale: only for the CPU")
    ops.scale(out, x, alpha)
