"""A project whose calls do next to nothing: what a reveal costs without any work."""

from __future__ import annotations

import torch


def nothing(*operands: torch.Tensor) -> None:
    """Returns at once."""


def kernel(*operands: torch.Tensor) -> None:
    """Launches one tiny kernel."""
    operands[0].view(-1)[:1].zero_()


def kernel_and_wait(*operands: torch.Tensor) -> None:
    """Launches one tiny kernel, and waits for the device."""
    kernel(*operands)
    if operands[0].is_cuda:
        torch.cuda.synchronize()
