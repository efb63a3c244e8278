"""A compute-sanitizer for machines without one."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from harness.judge.sanitizer import Sanitizer


def fake_sanitizer(folder: Path) -> Sanitizer:
    """In `folder`; its tools write what REPORT there says."""
    shutil.copy(Path(__file__).with_name("compute_sanitizer.py"), folder)
    (folder / "REPORT").write_text("{}")
    shim = folder / "compute-sanitizer"
    shim.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "${{0%/*}}/compute_sanitizer.py" "$@"\n')
    shim.chmod(0o755)
    return Sanitizer(shim, folder)
