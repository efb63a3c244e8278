"""A compiled stand-in for NVIDIA's management library (nvml.c), and the files that say how its GPUs are."""

from __future__ import annotations

import subprocess
from pathlib import Path

WHOLE = "GPU-00000000-aaaa-0000-0000-000000000000"
SLICED = "GPU-11111111-bbbb-1111-1111-111111111111"
OLD = "GPU-22222222-cccc-2222-2222-222222222222"
SLICES = ("MIG-33333333-dddd-3333-3333-333333333333", "MIG-44444444-eeee-4444-4444-444444444444")


def compile_nvml(folder: Path) -> Path:
    """Build the library in `folder`."""
    library = folder / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("nvml.c")
    command = ["gcc", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o", library, source]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library
