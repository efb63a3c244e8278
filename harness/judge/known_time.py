"""References that take a known time: a softmax, then a wait until so many microseconds have passed."""

from __future__ import annotations

import time
from typing import Any, Final

import torch

LONG_US: Final = 2400
SHORT_US: Final = 1200
"""Calling costs some 10 us on either side: beside 300 us it would show."""


def long(inputs: dict[str, Any]) -> tuple[torch.Tensor]:
    return _softmax_within(inputs, LONG_US)


def short(inputs: dict[str, Any]) -> tuple[torch.Tensor]:
    return _softmax_within(inputs, SHORT_US)


def _softmax_within(inputs: dict[str, Any], us: int) -> tuple[torch.Tensor]:
    end = time.perf_counter_ns() + 1000 * us
    out = torch.softmax(inputs["x"], dim=-1)
    if out.is_cuda:
        torch.cuda.synchronize()
    while time.perf_counter_ns() < end:
        pass
    return (out,)
