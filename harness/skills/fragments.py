"""Turns a piece of C++ or CUDA that a skill shows into projects that the builder can compile.

Every attempt keeps the piece's lines together, so that a line of a compiler error can be mapped to the skill.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from harness.builder.units import HEADER_SUFFIXES
from harness.records import Project, ProjectFile, Target
from harness.skills.blocks import CodeBlock

_DEVICE = re.compile(
    r"__global__|__device__|__shared__|<<<|threadIdx|blockIdx|__syncthreads|\basm\s+volatile"
)
_CUDA = re.compile(r"cuda|CUDA|__half|__nv_")
_STABLE = re.compile(r"torch/csrc/stable|torch/headeronly|torch::stable|STD_TORCH_CHECK|STABLE_TORCH")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.M)
_QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
# Definitions that cannot be inside a function body.
_DEFINES = re.compile(
    r"__global__|__device__|\btemplate\s*<|\bnamespace\b[^;={}]{0,200}\{|TORCH_LIBRARY"
    r"|^(?!else |return )\w[\w:<>*& ]{0,200} [*&]*\w+\([^;{]{0,400}\)\s*\{",
    re.M,
)
_HOST_CALL = re.compile(r"<<<|\bcuda[A-Z]\w+\(|\bcu[A-Z]\w+\(|std::(?:vector|cout|cerr)|\bmain\b")
_HEADERS: Final = (
    "algorithm", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring",
    "limits", "stdexcept", "string", "type_traits", "utility", "vector",
)  # fmt: skip
_CUDA_HEADERS: Final = ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h")
# Names that authors take for granted -> lines of the prelude.
_NAMED: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (r"\bcg::|cooperative_groups", ("#include <cooperative_groups.h>", "namespace cg = cooperative_groups;")),
    (r"\bcg::(?:reduce|plus)", ("#include <cooperative_groups/reduce.h>",)),
    (r"\bcg::memcpy_async", ("#include <cooperative_groups/memcpy_async.h>",)),
    (r"fp8", ("#include <cuda_fp8.h>",)),
    (r"\bwmma::|nvcuda", ("#include <mma.h>", "using namespace nvcuda;")),
    (r"__pipeline_", ("#include <cuda_pipeline.h>",)),
    (r"\bcuda::(?:barrier|device|aligned_size)", ("#include <cuda/barrier>",)),
    (r"\bcuda::(?:pipeline|make_pipeline|memcpy_async)", ("#include <cuda/pipeline>",)),
    (r"\bcuda::ptx|\bptx::", ("#include <cuda/ptx>", "namespace ptx = cuda::ptx;")),
    (r"\bcuda::(?:atomic|std)", ("#include <cuda/atomic>", "#include <cuda/std/utility>")),
    (r"\bcub::", ("#include <cub/cub.cuh>",)),
    (r"CUtensorMap|\bCUresult|\bcu[A-Z]\w+\(", ("#include <cuda.h>",)),
    (r"\bcurand_", ("#include <curand_kernel.h>",)),
    (r"\bstd::(?:accumulate|iota|reduce|inner_product)", ("#include <numeric>",)),
    (r"\bstd::array", ("#include <array>",)),
    (r"\bstd::(?:function|hash|less|greater|plus)", ("#include <functional>",)),
    (r"\bstd::c(?:out|err)", ("#include <iostream>",)),
    (r"\bstd::(?:unique_ptr|shared_ptr|make_unique|make_shared)", ("#include <memory>",)),
    (
        r"\bstd::(?:atomic|thread|mutex|lock_guard)",
        ("#include <atomic>", "#include <mutex>", "#include <thread>"),
    ),
    (r"\bstd::unordered_map", ("#include <unordered_map>",)),
    (r"\bstd::(?:optional|nullopt)", ("#include <optional>",)),
    (r"\bstd::tuple|\bstd::tie", ("#include <tuple>",)),
    (r"\bstd::complex", ("#include <complex>",)),
    (r"\b_mm\d*_|__m\d+", ("#include <immintrin.h>",)),
    (r"\bomp_", ("#include <omp.h>",)),
    (r"AT_DISPATCH", ("#include <ATen/Dispatch.h>",)),
    (r"\bat::cuda::", ("#include <ATen/cuda/CUDAContext.h>",)),
)
_TORCH: Final = (
    "#include <ATen/core/Tensor.h>",
    "#include <torch/library.h>",
    "namespace torch { using at::Tensor; }",
)
_TORCH_CUDA: Final = ("#include <c10/cuda/CUDAGuard.h>", "#include <c10/cuda/CUDAStream.h>")
_TORCH_STABLE: Final = (
    "#include <torch/csrc/inductor/aoti_torch/c/shim.h>",
    "#include <torch/csrc/stable/accelerator.h>",
    "#include <torch/csrc/stable/library.h>",
    "#include <torch/csrc/stable/tensor.h>",
    "#include <torch/headeronly/core/ScalarType.h>",
)
_FLAGS: Final = ((r"_mm256_|__m256", ("-mavx2", "-mfma")), (r"_mm512_|__m512", ("-mavx512f", "-mavx512bw")))
_BUILD_TOML: Final = """\
[general]
name = "fragment"
version = 1
edition = 5
license = "unknown"
backends = ["{target}"]

[torch]
src = []
{stable}
[kernel.fragment]
backend = "{target}"
depends = ["torch"]
src = [{sources}]
cxx-flags = [{flags}]
{capabilities}"""


@dataclass(frozen=True)
class Attempt:
    """One attempt to compile a piece."""

    project: Project
    target: Target
    path: str
    """Path of the file that holds it."""
    before: int
    """Lines of that file above the piece."""


def is_compiled(block: CodeBlock) -> bool:
    """Whether its language is compiled."""
    return block.language in ("cuda", "cpp")


def target_of(block: CodeBlock) -> Target:
    """The target whose compiler and headers it needs."""
    return "cuda" if block.language == "cuda" or _CUDA.search(block.text) or _device(block) else "cpu"


def attempts(block: CodeBlock, companions: Mapping[str, str]) -> Iterator[Attempt]:
    """The attempts to compile `block`, the most promising first; a complete file has only one.

    `companions`: path -> text of headers that it may include by a quoted path.
    """
    text = block.text
    whole = block.path is not None
    if whole or _INCLUDE.search(text):
        yield _attempt(block, companions, text, before=0)
    if whole:
        return  # a complete file has its own includes
    prelude = _prelude(block)
    if not _DEFINES.search(text):
        hoisted = [line.strip() for line in _INCLUDE.findall(text)]
        kernel = target_of(block) == "cuda" and not _HOST_CALL.search(text)
        head = f"{'__global__ ' if kernel else ''}void statements_of_the_skill() {{"
        above = [*prelude, *hoisted, head]
        function = "\n".join([*above, _INCLUDE.sub("", text).rstrip("\n"), "}", ""])
        yield _attempt(block, companions, function, before=len(above))
    yield _attempt(block, companions, "\n".join([*prelude, text]), before=len(prelude))


def _device(block: CodeBlock) -> bool:
    """Whether it is CUDA, whatever the info string says."""
    return _DEVICE.search(block.text) is not None


def _prelude(block: CodeBlock) -> list[str]:
    cuda = target_of(block) == "cuda"
    lines = [f"#include <{name}>" for name in (*(_CUDA_HEADERS if cuda else ()), *_HEADERS)]
    for pattern, named in _NAMED:
        if re.search(pattern, block.text):
            lines += named
    if _STABLE.search(block.text):
        lines += _TORCH_STABLE
    elif re.search(r"\b(?:at|c10|torch)::|TORCH_", block.text):
        lines += (*_TORCH, *(_TORCH_CUDA if cuda else ()))
    if "REGISTER_EXTENSION" in block.text or "_EXPAND(" in block.text:
        lines.append('#include "registration.h"')
    return lines


def _attempt(block: CodeBlock, companions: Mapping[str, str], text: str, *, before: int) -> Attempt:
    target = target_of(block)
    # The builder generates registration.h in the same folder.
    suffix = "cu" if block.language == "cuda" or _device(block) else "cpp"
    path = block.path or f"torch-ext/fragment.{suffix}"
    if PurePosixPath(path).suffix in HEADER_SUFFIXES | {".c"}:
        path = f"{path}.{suffix}"
    included = _included(path, text, companions)
    flags = [f'"{flag}"' for pattern, words in _FLAGS if re.search(pattern, text) for flag in words]
    toml = _BUILD_TOML.format(
        target=target,
        stable='stable-abi = "2.10"\n' if _STABLE.search(text) else "",
        sources=", ".join(f'"{name}"' for name in (path, *included)),
        flags=", ".join(flags),
        capabilities='cuda-capabilities = ["9.0a"]\n' if target == "cuda" else "",
    )
    files = {"build.toml": toml, "torch-ext/fragment/__init__.py": "", **included, path: text}
    project = Project(files=tuple(ProjectFile(path=name, text=files[name]) for name in sorted(files)))
    return Attempt(project, target, path, before)


def _included(path: str, text: str, companions: Mapping[str, str]) -> dict[str, str]:
    """The companions that `text` includes, directly or not, resolved as a compiler does."""
    found: dict[str, str] = {}
    waiting = [(path, text)]
    while waiting:
        place, source = waiting.pop()
        for name in _QUOTED.findall(source):
            target = _resolved(place, name)
            if target is not None and target in companions and target not in found and target != path:
                found[target] = companions[target]
                waiting.append((target, companions[target]))
    return found


def _resolved(place: str, name: str) -> str | None:
    """The project path of `#include "name"` in the file `place`; None if it leaves the project."""
    parts: list[str] = list(PurePosixPath(place).parent.parts)
    for part in PurePosixPath(name).parts:
        if part == ".." and not parts:
            return None
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
