"""What is told of a project's Python without running it."""

from __future__ import annotations

import pytest

from harness.builder.validate import python_facts

THIN = '''"""Scales."""
from __future__ import annotations

import torch
from torch import Tensor

from ._ops import ops

__all__ = ["scale"]


def scale(out: Tensor, x: torch.Tensor, *, alpha: float) -> None:
    """Scales."""
    ops.scale(out, x, alpha, True, name="x")
    return None
'''


def test_a_wrapper_is_thin() -> None:
    """Imports, annotations, docstrings and calls of operators do no work."""
    assert python_facts({"a.py": THIN}).thin
    assert python_facts({}).thin


@pytest.mark.parametrize(
    "more",
    [
        "    out.copy_(x * alpha)",
        "    torch.mul(x, alpha, out=out)",
        "    ops.scale(out, x.contiguous(), alpha)",
        "    ops.scale(out, x * 2, alpha)",
        "    out[:] = x",
        "    if alpha: ops.scale(out, x, alpha)",
        "from torch import mul as scale",
        "from numpy import multiply as scale",
        "import numpy as np",
        "scale = torch.mul",
        "@torch.compile\ndef scale(out, x): ops.scale(out, x)",
        "for i in range(2): ops.scale(i)",
        "class A: pass",
    ],
)
def test_python_that_could_do_the_work_is_not_thin(more: str) -> None:
    """Whatever else stands there: a false alarm costs one traced call."""
    assert not python_facts({"a.py": THIN + more + "\n"}).thin


def test_imports_are_named() -> None:
    """Top-level modules of import statements, wherever they stand."""
    found = python_facts({"a.py": "def f():\n    import numpy.linalg\n", "b.py": "from os.path import join"})
    assert found.imports == ("numpy", "os")
