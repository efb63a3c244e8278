"""Setting up without network: the script that makes a venv from wheels beside the torch of another Python."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def set_up(python: Path | str, folder: Path) -> subprocess.CompletedProcess[str]:
    wheels = folder / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "carried-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("carried.py", "ANSWER = 42\n")
        head = "carried-1.0.dist-info"
        wheel.writestr(f"{head}/METADATA", "Metadata-Version: 2.1\nName: carried\nVersion: 1.0\n")
        wheel.writestr(f"{head}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{head}/RECORD", "")
    command = [ROOT / ".ci" / "gpu-setup", folder / "venv", wheels]
    environment = {**os.environ, "PYTHON": str(python), "PIP_NO_CACHE_DIR": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_python_without_torch_is_refused(tmp_path: Path) -> None:
    """Before anything is made; the message says how to name another."""
    bare = tmp_path / "bare"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    done = set_up(bare, tmp_path)
    assert done.returncode != 0
    assert "has no torch: name the Python that has one, make PYTHON=" in done.stderr
    assert not (tmp_path / "venv").exists()


@pytest.mark.slow
def test_wheels_and_torch_are_there_without_network(tmp_path: Path) -> None:
    """What was carried comes from the wheels, torch from the Python that has it, though that is a venv's."""
    pytest.importorskip("torch", reason="needs torch (pip install torch)")
    done = set_up(sys.executable, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "build for sm_90" in done.stdout
    code = "import carried, torch; print(carried.__file__, torch.__file__)"
    python = tmp_path / "venv" / "bin" / "python"
    seen = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert seen[0].startswith(str(tmp_path))
    assert not seen[1].startswith(str(tmp_path))
