"""A tiny kernel-builder project: `fill(out, value)`, stable ABI, for cpu and cuda."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.builder.build_toml import BuildToml, toml_fields
from harness.builder.check_project import Refused
from harness.builder.headers import MANIFEST, HeaderSet, Manifest, load_headers
from harness.builder.layout import Layout, plan_layout
from harness.builder.toolchain import CudaToolkit, Toolchain
from harness.records import Finding, Project, ProjectFile, Target

BUILD_TOML = """\
[general]
name = "fill-it"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch]
src = ["torch-ext/torch_binding.cpp", "kernels/fill.h"]
stable-abi = "2.10"

[kernel.fill_cpu]
backend = "cpu"
depends = ["torch"]
src = ["kernels/fill.cpp", "kernels/fill.h"]

[kernel.fill_cuda]
backend = "cuda"
depends = ["torch"]
src = ["kernels/fill.cu", "kernels/fill.h"]
"""

_BINDING = """\
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include "../kernels/fill.h"
#include "registration.h"

void fill(const torch::stable::Tensor& out, double value) {
  fill_floats(static_cast<float*>(out.data_ptr()), out.numel(), static_cast<float>(value));
}

STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("fill(Tensor! out, float value) -> ()");
}

#if defined(CPU_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CPU, ops) {
  ops.impl("fill", TORCH_BOX(&fill));
}
#elif defined(CUDA_KERNEL)
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) {
  ops.impl("fill", TORCH_BOX(&fill));
}
#endif

REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""

_CPU = """\
#include "fill.h"

void fill_floats(float* out, int64_t n, float value) {
  for (int64_t i = 0; i < n; ++i) out[i] = value;
}
"""

_CUDA = """\
#include "fill.h"

namespace {
__global__ void fill_kernel(float* out, int64_t n, float value) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < n) out[i] = value;
}
}  // namespace

void fill_floats(float* out, int64_t n, float value) {
  fill_kernel<<<static_cast<unsigned>((n + 255) / 256), 256>>>(out, n, value);
}
"""

_INIT = """\
import torch

from ._ops import ops


def fill(out: torch.Tensor, *, value: float) -> None:
    ops.fill(out, value)


__all__ = ["fill"]
"""

FILES = {
    "build.toml": BUILD_TOML,
    "kernels/fill.cpp": _CPU,
    "kernels/fill.cu": _CUDA,
    "kernels/fill.h": "#pragma once\n#include <cstdint>\nvoid fill_floats(float*, int64_t, float);\n",
    "torch-ext/fill_it/__init__.py": _INIT,
    "torch-ext/torch_binding.cpp": _BINDING,
}


def project(changes: dict[str, str | None] | None = None, *, toml: dict[str, str] | None = None) -> Project:
    """The tiny project; `changes` replace files (None removes), `toml` replaces text in build.toml."""
    files: dict[str, str | None] = {**FILES, **(changes or {})}
    text = files["build.toml"]
    for old, new in (toml or {}).items():
        assert text is not None and old in text, f"{old!r} is not in the tiny build.toml"
        text = text.replace(old, new)
    files["build.toml"] = text
    kept = {path: text for path, text in files.items() if text is not None}
    return Project(files=tuple(ProjectFile(path=p, text=kept[p]) for p in sorted(kept)))


def toml_of(given: Project) -> BuildToml:
    """The records of a project's build.toml."""
    return BuildToml.model_validate(toml_fields(next(f.text for f in given.files if f.path == "build.toml")))


def planned(given: Project, target: Target, toolchain: Toolchain) -> Layout:
    """The layout of a project that has one."""
    return plan_layout(given, toml_of(given), target, toolchain)


def refused(given: Project, target: Target, toolchain: Toolchain) -> Finding:
    """Why a project has none."""
    with pytest.raises(Refused) as refusal:
        plan_layout(given, toml_of(given), target, toolchain)
    return refusal.value.finding


def fetched_headers(root: Path, name: str, *headers: str) -> HeaderSet:
    """A set of empty headers, as `liftbench headers` leaves it."""
    for header in headers:
        (root / name / header).parent.mkdir(parents=True, exist_ok=True)
        (root / name / header).touch()
    manifest = Manifest(name=name, wheels=(), files=dict.fromkeys(headers, "0" * 64))
    (root / name / MANIFEST).write_text(manifest.model_dump_json())
    found = load_headers(root, name)
    assert found is not None
    return found


def fake_toolchain(root: Path, *, torch: str = "2.13.0+cpu", cuda: str = "13.0.88") -> Toolchain:
    """A toolchain under `root` in which only libcudart exists; good for planning, not for running."""
    library = root / "cuda/lib64"
    library.mkdir(parents=True, exist_ok=True)
    (library / "libcudart.so.13").touch()
    cpu_only = "+cu" not in torch
    return Toolchain(
        platform="x86_64-linux",
        libc="glibc 2.36",
        gxx=Path("/usr/bin/g++"),
        gxx_version="g++ 12.2.0",
        ninja=Path("/usr/bin/ninja"),
        ninja_version="1.13.0",
        python=Path("/usr/bin/python3"),
        python_include=root / "python",
        python_version="3.11.7",
        torch_root=root / "torch",
        torch_version=torch,
        torch_cuda=None if cpu_only else "13.0",
        torch_definitions=("USE_RPC",),
        cuda=CudaToolkit(
            nvcc=root / "cuda/bin/nvcc",
            version=cuda,
            root=root / "cuda",
            include=root / "cuda/include",
            library=library,
            cudart=library / "libcudart.so.13",
            math_include=None,
        ),
        stubs=("c10/cuda/impl/cuda_cmake_macros.h",) if cpu_only else (),
    )
