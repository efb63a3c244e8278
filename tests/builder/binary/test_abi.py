"""What is said of a library's ABI, with real libraries made on the spot."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from harness.builder.binary import MANYLINUX, PYTHON_ABI, abi_verdict

pytest.importorskip("kernel_abi_check", reason="kernel-abi-check is not installed")


def library(tmp_path: Path, source: str) -> bytes:
    """A shared library of one C file."""
    (tmp_path / "a.c").write_text(source)
    out = tmp_path / "a.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", out, tmp_path / "a.c"], check=True)
    return out.read_bytes()


def test_a_plain_library_is_fine(tmp_path):
    """Neither Python nor a new libc is asked for."""
    verdict = abi_verdict(library(tmp_path, "int f(void) { return 1; }"))
    assert verdict == f"ok: Python >= {PYTHON_ABI}; ok: {MANYLINUX}"


def test_a_symbol_outside_the_limited_api_is_named(tmp_path):
    """PyUnicode_AsUTF8AndSize is in the limited API from 3.10 on only."""
    source = "extern char *PyUnicode_AsUTF8AndSize(void *, long *);\n"
    verdict = abi_verdict(
        library(tmp_path, source + "char *f(void *p) { return PyUnicode_AsUTF8AndSize(p, 0); }")
    )
    assert verdict is not None and verdict.startswith(f"not in Python's limited API of {PYTHON_ABI}: PyUni")


def test_a_symbol_of_a_newer_libc_is_named(tmp_path):
    """The version that a symbol asks for is past manylinux_2_28; where this libc is old, nothing can be."""
    source = "#include <stddef.h>\nextern int pthread_attr_setsigmask_np(void *, void *);\n"
    source += "int g(void) { return pthread_attr_setsigmask_np(NULL, NULL); }"
    verdict = abi_verdict(library(tmp_path, source))
    assert verdict is not None and f"newer than {MANYLINUX}" in verdict
    assert "pthread_attr_setsigmask_np GLIBC 2.32" in verdict


def test_rubbish_has_no_abi():
    """A file that is no library is reported, and nothing is claimed."""
    assert abi_verdict(b"\x7fELF rubbish") == "the check itself failed"
