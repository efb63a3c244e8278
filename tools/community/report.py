"""Runs the pinned community projects on the emulated GPU and writes docs/generated/emulated_community.md.

LIFTBENCH_COMMUNITY=FOLDER python -m tools.community.report [PROJECT ...]
"""

from __future__ import annotations

import datetime
import os
import platform
import sys
from contextlib import closing
from pathlib import Path
from typing import Final

from harness.builder.toolchain import Toolchain
from harness.cli.options import make_build_setup
from harness.files import write_atomically
from tools.community.projects import COMMIT, PINNED, VARIABLE, Seen, absent, run

DOCUMENT: Final = Path(__file__).resolve().parents[2] / "docs/generated/emulated_community.md"
_HEAD: Final = """# Community projects on the emulated GPU

This page is written by `python -m tools.community.report`; do not edit it by hand. **Nothing here ran on a
GPU.** Each project is taken as published from huggingface/kernels-community at commit
`{commit}`, built for sm_90 without any change, and its functions are
called on the emulated GPU, over several shapes and dtypes, forward and backward where it has both. Results
are compared with plain PyTorch expressions in float64; integers must be equal. The largest error is relative
to the larger of 1 and the value, over all dtypes, float16 and bfloat16 included.

Seconds: of the compilers for the build, of translating and compiling the kernels for the emulated GPU
(little where they were cached), and of all calls with the start of the process. Only
kernels that a call launches are translated, and counted.

- Date: {date}
- Machine: {machine}, {g++}, nvcc {nvcc}, torch {torch}

| project | ABI | digest | kernels | calls | outcome (emulated) | error | build s | prepare s | run s |
|---|---|---|---|---|---|---|---|---|---|
"""
_FOUND: Final = """
## Found in the projects

The emulated GPU may run the lanes of a warp apart, as the CUDA programming model allows, and checks every
address. It showed these faults, which calls above avoid:

- yoso, `count_sort_step2_cuda_kernel`: with more than 32 buckets, the lanes of a warp add up partial sums in
  shared memory that another lane wrote in the step before, without `__syncwarp()`. Versions 2 to 4 of
  `lsh_weighted_cumulation` then give wrong sums; with `bar.warp.sync` added to the PTX they are right. A GPU
  that keeps the warp together hides it.
- yoso, `lsh_weighted_cumulation`: version 4 reads past its shared memory unless the number of hashes is a
  multiple of 8; version 2 reads past the weights unless their dimension is a multiple of 32.
- mra, `index_max_cuda_kernel`: it reads past its input unless the number of blocks is a multiple of 8.
"""


def _row(name: str, seen: Seen) -> str:
    error = "n/a" if seen.largest_error is None else f"{seen.largest_error:.1e}"
    seconds = " | ".join(f"{value:.0f}" for value in (seen.build_s, seen.prepare_s, seen.run_s))
    cells = (name, seen.abi, PINNED[name][:12], str(seen.kernels), str(seen.calls), seen.outcome, error)
    return f"| {' | '.join(cells)} | {seconds} |\n"


def _head(toolchain: Toolchain) -> str:
    facts = toolchain.facts("cuda")
    cores = f"{os.cpu_count()} cores, {platform.machine()}"
    return _HEAD.format(commit=COMMIT, date=datetime.date.today().isoformat(), machine=cores, **facts)


def main() -> int:
    """Exit code 3 if a project is absent or not correct; the page is written if all of them ran."""
    folder, names = os.environ.get(VARIABLE), sys.argv[1:] or list(PINNED)
    seen: dict[str, Seen] = {}
    with closing(make_build_setup("auto", None, "cuda")) as setup:
        for name in names:
            why = absent(name, folder)
            if folder is None or why is not None:
                print(f"{name}: skipped: {why}", file=sys.stderr)
                continue
            seen[name] = run(name, Path(folder), setup.sandbox, setup.toolchain, setup.cache)
            print(name, seen[name], file=sys.stderr, flush=True)
        page = _head(setup.toolchain) + "".join(_row(*one) for one in seen.items())
    for name, one in seen.items():
        page += f"\n{name}: {one.message}\n" if one.message else ""
    page += _FOUND
    if list(seen) == list(PINNED):
        write_atomically(DOCUMENT, page)
    print(page)
    return 0 if len(seen) == len(names) and all(one.outcome == "correct" for one in seen.values()) else 3


if __name__ == "__main__":
    sys.exit(main())
