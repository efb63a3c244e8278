import random

import torch

from ._ops import ops


def scale(out, x, *, alpha):
    middle = random.randint(0, x.shape[0])
    halves = [slice(0, middle), slice(middle, x.shape[0])]
    for index in torch.randperm(2).tolist():
        if halves[index].start < halves[index].stop:
            ops.scale(out[halves[index]], x[halves[index]], alpha)
