"""Embedding lookup, as a PyTorch user writes it.

Shapes: ids (tokens,) int64, table (vocab, dim) -> out (tokens, dim) of the dtype of the table.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F


def reference(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
    """The op in the dtype of the table; on a float64 table it is the truth."""
    return (F.embedding(inputs["ids"], inputs["table"]),)


def make_inputs(workload: Any, generator: Any) -> dict[str, torch.Tensor]:
    """A quarter of the tokens are of the 16 most frequent kinds; the last row of the table always occurs."""
    tokens, vocab, dim = (workload.dims[name] for name in ("tokens", "vocab", "dim"))
    anywhere = generator.integers((tokens,), 0, vocab)
    frequent = generator.integers((tokens,), 0, min(vocab, 16))
    ids = torch.where(generator.uniform((tokens,)) < 0.25, frequent, anywhere)
    ids[tokens // 2] = vocab - 1
    return {"ids": ids, "table": generator.normal((vocab, dim)).to(workload.dtype)}
