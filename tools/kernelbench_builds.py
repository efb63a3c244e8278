"""Builds the same ModelNew files with KernelBench's `batch_compile` and with liftbench, and compares.

    python -m tools.kernelbench_builds CHECKOUT --python VENV/bin/python --files 40 --rounds 2

CHECKOUT is a KernelBench checkout, VENV an environment in which `kernelbench.compile` can be imported. Only
the build stage: KernelBench's own evaluation needs CUDA. The files are C++ (`load_inline`): good ones, ones
that do not compile, and duplicates. Each round builds all of them with either system, first with empty caches
(cold), then again (warm); the order of the systems alternates.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from harness.grading.setup import open_build_setup
from harness.kernelbench.conversion import convert_pattern, wrapped

WORKERS: Final = 2
_BROKEN, _DUPLICATE = 5, 5
"""Every fifth file fails to compile, every fifth repeats the one before it."""
_PROBLEM: Final = """\
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.rand(64, 64) - 0.5]


def get_init_inputs():
    return []
"""
_FILE: Final = """\
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

SOURCE = '''
#include <torch/extension.h>
torch::Tensor relu_{number}(torch::Tensor x) {{
  auto out = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] > 0 ? from[i] : {zero};
  return out;
}}
'''
library = load_inline(name="relu_{number}", cpp_sources=[SOURCE], functions=["relu_{number}"])


class ModelNew(nn.Module):
    def forward(self, x):
        return library.relu_{number}(x)
"""
_THEIRS: Final = """\
import json, sys
from kernelbench.compile import batch_compile

if __name__ == "__main__":
    count, folder, workers = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    config = dict(verbose=False, gpu_arch=["Hopper"], kernel_eval_build_dir=folder + "/cache", run_name="run",
                  runs_dir=folder, level=1, num_cpu_workers=workers, timeout=1e9)
    found = batch_compile([(number, 0) for number in range(count)], config)
    print("RESULTS " + json.dumps(found))
"""


def files(count: int) -> Iterator[tuple[str, bool]]:
    """Texts, and whether they compile."""
    last = _FILE.format(number=0, zero="0.0f"), True
    for number in range(count):
        if number % _BROKEN == 3:
            yield _FILE.format(number=number, zero="undeclared"), False
        elif number % _DUPLICATE == 4 and last is not None:
            yield last
        else:
            last = _FILE.format(number=number, zero="0.0f"), True
            yield last


def theirs(python: str, checkout: Path, folder: Path, count: int) -> list[bool | None]:
    """What `batch_compile` says of each file below folder/run."""
    script = folder / "theirs.py"
    script.write_text(_THEIRS)
    done = subprocess.run(
        [python, str(script), str(count), str(folder), str(WORKERS)],
        env={
            "PATH": f"{Path(python).parent}:/usr/bin:/bin",  # ninja
            "PYTHONPATH": str(checkout.resolve() / "src"),
            "HOME": str(folder),
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # it would ask the network
        },
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("RESULTS ")]
    if not lines:
        raise SystemExit(f"KernelBench did not finish:\n{done.stderr[-2000:]}")
    return list(json.loads(lines[-1].removeprefix("RESULTS ")))


def ours(folder: Path, texts: list[str], sandbox: str) -> list[bool | None]:
    """Whether each file's project builds."""
    problem = folder / "problem" / "level1" / "1_Relu.py"
    problem.parent.mkdir(parents=True, exist_ok=True)
    problem.write_text(_PROBLEM)
    (converted,) = convert_pattern(f"kernelbench:{problem}", folder / "converted")
    setup = open_build_setup(sandbox, folder / "builds", lambda line: None, "cpu")
    try:
        with ThreadPoolExecutor(WORKERS) as pool:
            return list(pool.map(lambda text: setup.result(wrapped(text, converted), "cpu").ok, texts))
    finally:
        setup.close()


def _busy_s() -> float:
    """CPU time of the whole machine: sandboxed compilers are not waited for by this process."""
    fields = Path("/proc/stat").read_text().partition("\n")[0].split()[1:]
    user, nice, system, _, _, irq, softirq = map(int, fields[:7])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def measured(build: Callable[[], list[bool | None]], expected: list[bool]) -> dict[str, object]:
    """Wall and CPU time of one pass on an idle machine, and how many results are wrong."""
    before_s, start = _busy_s(), time.monotonic()
    found = build()
    wall_s, cpu_s = time.monotonic() - start, _busy_s() - before_s
    wrong = sum(got is not wanted for got, wanted in zip(found, expected, strict=True))
    return {
        "wall_s": wall_s,
        "samples_per_hour": len(found) / wall_s * 3600,
        "cpu_s_per_sample": cpu_s / len(found),
        "wrong": wrong,
    }


def compare(checkout: Path, python: str, count: int, rounds: int, sandbox: str) -> list[dict[str, object]]:
    """One row for each pass."""
    texts, expected = map(list, zip(*files(count), strict=True))
    rows: list[dict[str, object]] = []
    for number in range(rounds):
        systems = ["KernelBench", "liftbench"][:: 1 if number % 2 == 0 else -1]
        for system in systems:
            folder = Path(tempfile.mkdtemp(prefix="liftbench-builds-"))
            for index, text in enumerate(texts):
                path = folder / "run" / f"level_1_problem_{index}_sample_0_kernel.py"
                path.parent.mkdir(exist_ok=True)
                path.write_text(str(text))
            build = {
                "KernelBench": lambda folder=folder: theirs(python, checkout, folder, count),
                "liftbench": lambda folder=folder: ours(folder, texts, sandbox),
            }[system]
            for cache in ("cold", "warm"):
                row = {"round": number, "system": system, "cache": cache, **measured(build, expected)}
                rows.append(row)
                print(json.dumps(row), flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    return rows


def main() -> int:
    """Print a row of JSON for each pass."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--sandbox", default="auto")
    given = parser.parse_args()
    compare(given.checkout, given.python, given.files, given.rounds, given.sandbox)
    return 0


if __name__ == "__main__":
    sys.exit(main())
