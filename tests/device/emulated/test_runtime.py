"""What a library says about the CUDA runtime that it wants."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.device.emulated.engine import refusal

_SOURCE = """
__attribute__((section(".nv_fatbin"))) char code[8] = "x";
int __cudaRegisterFatBinary(void *p) %s;
int registered(void) { return __cudaRegisterFatBinary(code); }
"""


@pytest.mark.parametrize(("body", "refused"), [("", False), ("{ return p != 0; }", True)])
def test_a_static_cuda_runtime_is_refused_by_name(tmp_path: Path, body: str, refused: bool) -> None:
    """A library with device code that does not ask for the shared runtime brings its own."""
    library = tmp_path / "library.so"
    command = ["gcc", "-shared", "-fPIC", "-fvisibility=hidden", "-xc", "-", "-o", str(library)]
    subprocess.run(command, input=_SOURCE % body, text=True, check=True)
    why = refusal(library)
    assert (why is not None and "cudart_static" in why) == refused
