"""The demo: recorded replies of a real model, graded for real on this machine.

First a few replies on the CPU target (build, check, time), then the sm_90 builds of a recorded study: does a
skill make the model's CUDA projects build? What was not reached is owed: running it again completes it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(os.path.relpath(Path(__file__).resolve().parent))
STUDY = HERE.parent / "studies" / "cuda-kernel-builder"
RUNS = Path("runs") / "demo"
CPU_TASK = "l1/softmax"


def evaluate(folder: Path, recording: str, *more: str) -> int:
    """One `liftbench eval` of repeat 0 over a recording; its exit code."""
    command = [sys.executable, "-m", "harness.cli.main", "eval", str(folder / "skills/cuda-kernel-builder")]
    command += ["-m", f"replay/{folder / recording}", "--tasks-root", str(folder / "tasks"), "--runs", "1"]
    command += ["--sandbox", "auto,local", "--runs-dir", str(RUNS), *more]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """Both parts, within one budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--max-wall", type=float, default=280.0, help="seconds for both parts")
    budget = parser.parse_args().max_wall
    start = time.monotonic()
    print("== 1/2  CPU target: build, check and time recorded replies", flush=True)
    code = evaluate(
        HERE, "recordings/cpu", "--target", "cpu", "--tasks", CPU_TASK, "--max-wall", f"{budget:.0f}"
    )
    left = budget - (time.monotonic() - start)
    if code == 0:
        print("\n== 2/2  CUDA target: does a skill make a model's projects build for sm_90?", flush=True)
        more = ("--metric", "compiles", "--no-emulate", "--max-connections", "8")
        wall = f"{max(left, 1):.0f}"
        code = evaluate(STUDY, "recording-contract", "--target", "cuda", "--max-wall", wall, *more)
    print(f"\n{time.monotonic() - start:.0f} s. Whose replies these are: demo/README.md, {STUDY}/README.md")
    return code


if __name__ == "__main__":
    sys.exit(main())
