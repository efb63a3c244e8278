"""Checks without a compiler: Python files and bindings."""

from __future__ import annotations

import pytest

from harness.builder.check_project import binding_warnings, python_facts
from tests.fakes.projects import FILES

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
        "    if alpha: ops.scale(out, x, alpha)",
        "from torch import mul as scale",
        "import numpy as np",
        "@torch.compile\ndef scale(out, x): ops.scale(out, x)",
        "for i in range(2): ops.scale(i)",
    ],
)
def test_python_that_could_do_the_work_is_not_thin(more: str) -> None:
    """Any other statement; a false alarm costs one traced call."""
    assert not python_facts({"a.py": THIN + more + "\n"}).thin


def test_imports_are_named() -> None:
    """Top-level modules of import statements, at any depth."""
    found = python_facts({"a.py": "def f():\n    import numpy.linalg\n", "b.py": "from os.path import join"})
    assert found.imports == ("numpy", "os")


BINDING = "torch-ext/torch_binding.cpp"


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        ("double value", False),
        ("\n    float value", True),
        ("const std::optional<float>& value", True),
        ("float* value", False),
        ("/* float */ double value // float\n", False),
    ],
)
def test_floats_in_boxed_functions_are_warned_of(change: str, wrong: bool) -> None:
    """The stable ABI passes 8 bytes: a C++ float receives garbage. The warning has its line."""
    text = FILES[BINDING].replace("double value", change)
    line = text[: text.find("float", text.index("void fill("))].count("\n") + 1
    warning = (
        f"binding: {BINDING}:{line}: a parameter of `fill` is a C++ `float`, which receives the low half of "
        "a double's bits. TORCH_BOX converts nothing: write double in every declaration, and convert inside"
    )
    assert binding_warnings(FILES | {BINDING: text}) == ((warning,) if wrong else ())


def test_a_declaration_with_double_is_not_warned_of() -> None:
    """A function is wrong only if every declaration is; results are read too."""
    boxed = "TORCH_BOX(&f) TORCH_BOX(&ns::g)"
    text = f"void f(Tensor x, float y);\nfloat g(Tensor x);\n{boxed}"
    files = {"a.cpp": text, "a.h": "void f(Tensor x, double y);"}
    assert [w.partition(" is a")[0] for w in binding_warnings(files)] == [
        "binding: a.cpp:2: the result of `g`"
    ]
