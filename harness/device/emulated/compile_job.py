"""Runs INSIDE the sandbox, with the standard library and this package alone: compiles the emulated GPU, or
the kernels of a project for it.

    python -I -S compile_job.py runtime OUT JOBS COMPILER CUDA_INCLUDE CUDART TORCH_ROOT
    python -I -S compile_job.py headers OUT JOBS COMPILER
    python -I -S compile_job.py kernels OUT JOBS COMPILER PTX HEADERS NAMES   (a file: one kernel per line)
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from harness.device.emulated.kernels import build_kernels, precompile
from harness.device.emulated.runtime import build_cuda, build_torch_side


def main() -> None:
    """Fills the folder OUT. The exit code is 1, and stderr says why, where the compiler fails."""
    what, out, jobs, compiler, *words = sys.argv[1:]
    (folder := Path(out)).mkdir(parents=True, exist_ok=True)
    if what == "runtime":
        include, cudart, torch_root = map(Path, words)
        build_cuda(folder, include, cudart, compiler, int(jobs))
        build_torch_side(folder, include, torch_root, compiler, int(jobs))
    elif what == "headers":
        precompile(folder, compiler)
    else:
        ptx, headers, names = map(Path, words)
        modules = [path.read_text() for path in sorted(ptx.rglob("*.ptx"))]
        build_kernels(modules, folder, compiler, int(jobs), names.read_text().split(), headers)


if __name__ == "__main__":
    main()
