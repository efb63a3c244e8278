"""`python -m tools.gpu_check`: run the checks that this machine's GPU has not answered yet.

Exit codes: 0 done, or there is no GPU (which is said); 2 usage; 3 a check failed, now or in an earlier
session.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.errors import LiftbenchError
from sandboxes.gpu import slot_named
from sandboxes.nvml import open_nvml
from tools.gpu_check.plugin import GpuCheck, say

HERE = Path(__file__).parent
# Not collected by default, never an error by a warning of PyTorch or CUDA, nothing written beside the record.
OPTIONS = [
    *("-o", "python_files=check_*.py", "-o", "filterwarnings=default", "-o", "addopts="),
    *("--import-mode=importlib", "-p", "no:cacheprovider", "-q", "--no-header", "--no-summary"),
]


def main(arguments: Sequence[str] | None = None, checks: Path = HERE) -> int:
    """Run `checks`; returns the exit code."""
    parser = argparse.ArgumentParser(prog="gpu-check", description="Run the checks that need a GPU.")
    parser.add_argument("--budget-s", type=float, default=480.0, help="stop before the check that exceeds it")
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder of the record")
    parser.add_argument("--device", default="0", help="UUID or index of the GPU")
    parser.add_argument("--again", action="append", default=[], metavar="CHECK", help="measure it anew")
    chosen = parser.parse_args(arguments)
    plugin = GpuCheck(chosen.out, chosen.budget_s, chosen.again)
    try:
        nvml = open_nvml()
        if nvml is None:
            plugin.list_only = True
            pytest.main([*OPTIONS, str(checks)], plugins=[plugin])
            say(
                "gpu-check: not measured: no NVIDIA driver on this machine (NVML is missing, or no driver is "
                f"loaded). Owed on a machine with a GPU: {', '.join(plugin.names)}"
            )
            return 0
        with nvml:
            plugin.open(nvml, slot_named(chosen.device, nvml.gpus()))
            code = pytest.main([*OPTIONS, str(checks)], plugins=[plugin])
    except LiftbenchError as error:
        say(f"gpu-check: {error}")
        return 2
    return plugin.exit_code(int(code))


if __name__ == "__main__":
    sys.exit(main())
