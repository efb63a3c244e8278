"""Whether an op treats the rows of its inputs apart, so that the truth of some rows can be computed alone.

A row is an index of the first axis. The proof is by trial on the trusted side: nothing of a student's takes
part.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

Tensors = dict[str, torch.Tensor]
Outputs = tuple[torch.Tensor, ...]
_secret = random.SystemRandom()
ROWS = 4
DRAWS = 3
_CLOSE = 1e-9
"""Of float64 results that are sums in another order; what depends on other rows differs by far more."""


def take_rows(inputs: Tensors, names: Sequence[str], rows: torch.Tensor) -> Tensors:
    """Copies of those rows of the named inputs; the others as they are."""
    return {
        name: value.index_select(0, rows.to(value.device)) if name in names else value
        for name, value in inputs.items()
    }


def treats_rows_apart(
    draw: Callable[[int], Tensors],
    truth: Callable[[Tensors], Outputs],
    names: Sequence[str],
    rows: int = ROWS,
    draws: int = DRAWS,
) -> bool:
    """Whether a few rows in reverse, and a random part of them, give just those rows of the outputs: the
    first excludes what depends on a row's place, the second what depends on other rows or on their number.

    `draw(n)`: inputs with n rows in the operands `names`; `truth`: the float64 outputs of such inputs.
    """
    for _ in range(draws):
        inputs = draw(rows)
        whole = truth(inputs)
        if any(not out.dim() or out.shape[0] != rows for out in whole):
            return False
        some = _secret.sample(range(rows), _secret.randint(1, max(1, rows - 1)))
        for chosen in (torch.arange(rows).flip(0), torch.tensor(some)):
            try:
                part = truth(take_rows(inputs, names, chosen))
            except torch.OutOfMemoryError:
                raise
            except (IndexError, RuntimeError, ValueError):
                return False  # it does not take every number of rows
            if not all(_equal(p, w[chosen.to(w.device)]) for p, w in zip(part, whole, strict=True)):
                return False
    return True


def _equal(part: torch.Tensor, whole: torch.Tensor) -> bool:
    if part.shape != whole.shape:
        return False
    if not whole.is_floating_point():
        return torch.equal(part, whole)
    scale = float(whole.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0).abs().max()) if whole.numel() else 0.0
    return torch.allclose(part, whole, rtol=_CLOSE, atol=_CLOSE * scale, equal_nan=True)
