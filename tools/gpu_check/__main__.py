"""`python -m tools.gpu_check`: ask a GPU what only a GPU can answer."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import platformdirs

import harness
from harness.builder.toolchain import find_cuda
from harness.errors import LiftbenchError
from sandboxes.gpu import slot_named
from sandboxes.nvml import Nvml, open_nvml
from sandboxes.orphans import owned_folder
from sandboxes.registry import open_sandbox
from tools.gpu_check.item import Bench, Item
from tools.gpu_check.items import all_items
from tools.gpu_check.ledger import Ledger
from tools.gpu_check.runner import Outcome, run_items


def main(arguments: Sequence[str] | None = None, zoo: Sequence[Item] = ()) -> int:
    """Run; returns the exit code. `zoo`: items of projects that only the tests have."""
    parser = argparse.ArgumentParser(prog="gpu-check", description="Measure on a GPU what is owed.")
    parser.add_argument(
        "--budget-s", type=float, default=480.0, help="stop before the item that would exceed it"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("results"), help="folder of the record and its table"
    )
    parser.add_argument("--device", default="0", help="UUID or index of the GPU")
    parser.add_argument("--again", action="append", default=[], metavar="ITEM", help="measure it anew")
    chosen = parser.parse_args(arguments)
    try:
        items = all_items(zoo)
        outcome = _run(chosen, items)
    except LiftbenchError as error:
        _say(f"gpu-check: {error}")
        return 2
    if outcome is None:
        names = ", ".join(item.name for item in items)
        _say(
            f"gpu-check: not measured: no NVIDIA driver on this machine (NVML is missing, or no driver "
            f"is loaded). Owed on a machine with a GPU: {names}"
        )
        return 0
    if outcome.owed:
        _say(f"owed, run it again: {', '.join(outcome.owed)}")
    if outcome.failed:
        _say(f"failed: {', '.join(outcome.failed)}")
        return 3
    return 0


def _run(chosen: argparse.Namespace, items: Sequence[Item]) -> Outcome | None:
    """What came of it; None without a driver."""
    nvml = open_nvml()
    if nvml is None:
        return None
    with nvml, owned_folder("gpu-check") as folder:
        slot = slot_named(chosen.device, nvml.gpus())
        day = datetime.now(UTC).strftime("%Y-%m-%d")
        software = _software(nvml)
        ledger = Ledger.open(chosen.out, slot.gpu.name, slot.uuid, day, harness.__version__, software)
        _say(f"gpu-check: {slot.gpu.name} ({slot.uuid}), into {ledger.path}")
        cache = Path(platformdirs.user_cache_dir("liftbench"))
        bench = Bench(nvml, slot, open_sandbox, Path(folder), cache)
        return run_items(items, bench, ledger, budget_s=chosen.budget_s, again=chosen.again, say=_say)


def _software(nvml: Nvml) -> dict[str, str]:
    """Versions that figures depend on."""
    cuda = find_cuda(os.environ)
    return {
        "driver": nvml.driver_version(),
        "torch": metadata.version("torch"),
        "nvcc": cuda.version if cuda else "absent",
        "python": platform.python_version(),
    }


def _say(line: str) -> None:
    # What a sandbox printed may be in a failure: nothing of it may steer the terminal.
    sys.stdout.write("".join(c if c.isprintable() else " " for c in line) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
