"""Small shared libraries, made on the spot by the real gcc and g++: undefined symbols are allowed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


def shared_library(folder: Path, source: str, *, cxx: bool = False, flags: tuple[str, ...] = ()) -> bytes:
    """The bytes of a library of one file; skips where there is no compiler."""
    file = folder / ("a.cpp" if cxx else "a.c")
    file.write_text(source)
    compiler, library = "g++" if cxx else "gcc", folder / "a.so"
    command = [compiler, "-shared", "-fPIC", "-w", "-o", library, file, *flags]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip(f"{compiler} is not installed")
    return library.read_bytes()
