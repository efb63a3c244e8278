"""Compiles the code that a skill shows, pieces and whole projects, in the sandbox's build role.

A piece of code may rely on names and headers that its author does not show. It is tried as it stands, as
statements of a function, and below the usual headers; one way is enough. Every attempt keeps the piece's
lines together, so that a line of a compiler error can be mapped to the skill.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final, Literal, NamedTuple, get_args

from harness.builder.translation_units import HEADER_SUFFIXES
from harness.outcome import Cause
from harness.records import BuildResult, Diagnostic, Project, ProjectFile, Record, Target
from harness.skills.code_blocks import CodeBlock, ShownProject, is_compiled, is_elided, whole_build_toml
from harness.skills.fact_check import fact_findings
from harness.skills.spec import Severity, SkillFinding, error, warning

Build = Callable[[Project, Target], BuildResult]

_CERTAIN: Final = frozenset({Cause.COMPILE_ERROR, Cause.LINK_ERROR})
"""Other causes are limits of liftbench, or a layout that the skill does not show completely."""
_ELSEWHERE: Final = frozenset({"missing_header", "wrong_arch"})
_CONTEXT = re.compile(
    r"is undefined|not (?:been )?declared|undeclared|is not a member|has no member|does not name a type"
    r"|No such file|cannot open source file|not a (?:template|type|class|namespace)"
    r"|must be a class or namespace"
    r"|unknown type|incomplete type|already (?:been )?(?:declared|defined)|redeclar|redefin|conflicting"
    r"|previous|no instance of|no matching|no operator|target specific option|<error-type>",
    re.IGNORECASE,
)
_SURE = re.compile(
    r"too (?:few|many) (?:arguments|initializer)|a value of type .* cannot be (?:used|assigned)|zero-sized"
    r"|argument of type .* is incompatible|invalid conversion from|cannot convert|must be a modifiable lvalue"
    r"|lvalue required|assignment of read-only|static assertion failed|return value type",
    re.IGNORECASE,
)
_MACRO = re.compile(r"['\"‘]_*[A-Z][A-Z0-9_]*['\"’]")

_DEVICE = re.compile(
    r"__global__|__device__|__shared__|<<<|threadIdx|blockIdx|__syncthreads|\basm\s+volatile"
)
_CUDA = re.compile(r"cuda|CUDA|__half|__nv_")
_STABLE = re.compile(r"torch/csrc/stable|torch/headeronly|torch::stable|STD_TORCH_CHECK|STABLE_TORCH")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include\b.*$", re.M)
# Definitions that cannot be inside a function body.
_DEFINES = re.compile(
    r"__global__|__device__|\btemplate\s*<|\bnamespace\b[^;={}]{0,200}\{|TORCH_LIBRARY"
    r"|^(?!else |return )\w[\w:<>*& ]{0,200} [*&]*\w+\([^;{]{0,400}\)\s*\{",
    re.M,
)
_HOST_CALL = re.compile(r"<<<|\bcuda[A-Z]\w+\(|\bcu[A-Z]\w+\(|std::(?:vector|cout|cerr)|\bmain\b")
_HEADERS: Final = (
    "algorithm", "cfloat", "climits", "cmath", "cstddef", "cstdint", "cstdio", "cstdlib", "cstring",
    "limits", "numeric", "optional", "stdexcept", "string", "tuple", "type_traits", "utility", "vector",
)  # fmt: skip
_CUDA_HEADERS: Final = ("cuda_runtime.h", "cuda_fp16.h", "cuda_bf16.h")
# Names that authors take for granted -> lines of the prelude.
_NAMED: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    (
        r"\bcg::|cooperative_groups",
        (
            "#include <cooperative_groups.h>",
            "#include <cooperative_groups/reduce.h>",
            "namespace cg = cooperative_groups;",
        ),
    ),
    (r"fp8", ("#include <cuda_fp8.h>",)),
    (r"\bwmma::|nvcuda", ("#include <mma.h>", "using namespace nvcuda;")),
    (r"__pipeline_", ("#include <cuda_pipeline.h>",)),
    (r"\bcuda::(?:barrier|device|aligned_size)", ("#include <cuda/barrier>",)),
    (r"\bcuda::(?:pipeline|make_pipeline|memcpy_async)", ("#include <cuda/pipeline>",)),
    (r"\bcuda::ptx|\bptx::", ("#include <cuda/ptx>", "namespace ptx = cuda::ptx;")),
    (r"\bcuda::(?:atomic|std)", ("#include <cuda/atomic>", "#include <cuda/std/utility>")),
    (r"\bcub::", ("#include <cub/cub.cuh>",)),
    (r"CUtensorMap|\bCUresult|\bcu[A-Z]\w+\(", ("#include <cuda.h>",)),
    (r"\b_mm\d*_|__m\d+", ("#include <immintrin.h>",)),
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
_SIMD_FLAGS: Final = (
    (r"_mm256_|__m256", ("-mavx2", "-mfma")),
    (r"_mm512_|__m512", ("-mavx512f", "-mavx512bw")),
)
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
src = ["{source}"]
cxx-flags = [{flags}]
{capabilities}"""


@dataclass(frozen=True)
class Attempt:
    project: Project
    target: Target
    path: str
    before: int


def target_of(block: CodeBlock) -> Target:
    """The target whose compiler and headers it needs."""
    named = block.language == "cuda"
    return "cuda" if named or _CUDA.search(block.text) or _DEVICE.search(block.text) else "cpu"


def attempts(block: CodeBlock) -> Iterator[Attempt]:
    """The attempts to compile `block`, the most promising first; a complete file has only one."""
    text = block.text
    whole = block.path is not None
    if whole or _INCLUDE.search(text):
        yield _attempt(block, text, before=0)
    if whole:
        return
    prelude = _prelude(block)
    if not _DEFINES.search(text):
        hoisted = [line.strip() for line in _INCLUDE.findall(text)]
        kernel = target_of(block) == "cuda" and not _HOST_CALL.search(text)
        head = f"{'__global__ ' if kernel else ''}void statements_of_the_skill() {{"
        above = [*prelude, *hoisted, head]
        function = "\n".join([*above, _INCLUDE.sub("", text).rstrip("\n"), "}", ""])
        yield _attempt(block, function, before=len(above))
    yield _attempt(block, "\n".join([*prelude, text]), before=len(prelude))


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


def _attempt(block: CodeBlock, text: str, *, before: int) -> Attempt:
    target = target_of(block)
    # The builder generates registration.h in the same folder.
    suffix = "cu" if block.language == "cuda" or _DEVICE.search(block.text) else "cpp"
    path = block.path or f"torch-ext/fragment.{suffix}"
    if PurePosixPath(path).suffix in HEADER_SUFFIXES | {".c"}:
        path = f"{path}.{suffix}"
    flags = [f'"{flag}"' for pattern, words in _SIMD_FLAGS if re.search(pattern, text) for flag in words]
    toml = _BUILD_TOML.format(
        target=target,
        stable='stable-abi = "2.10"\n' if _STABLE.search(text) else "",
        source=path,
        flags=", ".join(flags),
        capabilities='cuda-capabilities = ["9.0a"]\n' if target == "cuda" else "",
    )
    files = {"build.toml": toml, "torch-ext/fragment/__init__.py": "", path: text}
    project = Project(files=tuple(ProjectFile(path=name, text=files[name]) for name in sorted(files)))
    return Attempt(project, target, path, before)


Outcome = Literal["built", "parsed", "not_built", "failed", "unread"]


class ShownProjectReport(Record):
    """A project that the skill shows, and its builds."""

    file: str
    line: int
    name: str | None
    paths: tuple[str, ...]
    targets: tuple[Target, ...]
    builds: tuple[BuildResult, ...] = ()
    """One per target; empty without `--build`."""


class Judged(NamedTuple):
    """The result of compiling a piece or a project."""

    outcomes: Mapping[CodeBlock, Outcome]
    findings: Sequence[SkillFinding]
    lacking: tuple[str, ...] = ()
    """Why this machine could not compile it."""
    project: ShownProjectReport | None = None


class _Failure(NamedTuple):
    """A failed attempt. The one with the furthest line is reported: unsuitable ones fail at the start."""

    line: int
    helped: bool
    """Whether the usual headers were added; without them mostly a header is missing."""
    severity: Severity
    message: str


def compile_block(block: CodeBlock, build: Build, *, kernel_builder: bool = True) -> Judged:
    """Try all ways to compile `block` until one succeeds. Raises SandboxError and HarnessBug.

    Code that is known not to build is not tried: torch/extension.h alone takes minutes.
    """
    known = fact_findings(block.file, block.text, kernel_builder=kernel_builder, only_builds=True)
    if known:
        line = block.line + (known[0].line or 1)
        return Judged({block: "failed"}, [known[0].model_copy(update={"line": line})])
    failures: list[_Failure] = []
    for attempt in attempts(block):
        result = build(attempt.project, attempt.target)
        # After a link error the object was compiled; a piece need not define all that it calls.
        if result.finding is None or result.finding.cause is Cause.LINK_ERROR:
            return Judged({block: "built"}, [])
        if result.finding.cause is Cause.NO_TOOLCHAIN:
            return Judged({block: "not_built"}, [], (result.finding.message,))
        failures.append(_failure(block, attempt, result))
    worst = max(failures, key=lambda failure: (failure.line, failure.helped))
    what = "does not compile for sm_90" if attempt.target == "cuda" else "does not compile as C++"
    told = f"this code {what}: {worst.message}"
    if worst.severity == "note":
        told = f"not judged, as it needs what is not shown: {worst.message}"
    elif worst.severity == "warning":
        told = f"{told} (mark a piece that is not whole with the word `fragment`)"
    finding = SkillFinding(file=block.file, line=worst.line, severity=worst.severity, message=told)
    return Judged({block: "not_built" if worst.severity == "note" else "failed"}, [finding])


def _failure(block: CodeBlock, attempt: Attempt, result: BuildResult) -> _Failure:
    """The first error, at its line of the skill."""
    assert result.finding is not None
    helped = attempt.before > 0
    own = [d for d in result.diagnostics if d.file == attempt.path and d.line is not None]
    first = next(iter(own or result.diagnostics), None)
    if first is None:
        return _Failure(block.text_line, helped, "warning", result.finding.message.partition("\n")[0])
    severity = compiler_severity(block, first)
    advised = first.advice is not None and severity != "note"
    message = f"{first.message}: {first.advice}" if advised else first.message
    if first.file != attempt.path or first.line is None:
        where = "" if first.file is None else f"{first.file}:{first.line or 1}: "
        return _Failure(block.text_line, helped, severity, where + message)
    inside = first.line - attempt.before
    last = block.text.rstrip("\n").count("\n") + 1
    return _Failure(block.text_line - 1 + min(max(inside, 1), last), helped, severity, message)


def compiler_severity(block: CodeBlock, told: Diagnostic) -> Severity:
    """The severity of a compiler error in code that was compiled without the rest of its project."""
    if told.kind in _ELSEWHERE:
        return "note"
    if told.kind in ("timeout", "out_of_memory", "other"):
        return "warning"
    # A header may rely on the file that includes it.
    header = block.path is None or PurePosixPath(block.path).suffix in HEADER_SUFFIXES
    whole = not header and not is_elided(block.text)
    if _CONTEXT.search(told.message):
        return "error" if whole and not _MACRO.search(told.message) else "note"
    if is_elided(block.text):
        return "note"
    return "error" if whole or _SURE.search(told.message) else "warning"


def build_shown(shown: ShownProject, build: Build | None) -> Judged:
    """Build the project for each of its targets, or only say for which without `build`.

    A project whose build.toml is not valid or whose sources are not all shown is not built.
    """
    block = shown.build_toml
    parsed = whole_build_toml(block)
    findings: list[SkillFinding] = []
    outcomes: dict[CodeBlock, Outcome] = {}
    targets: tuple[Target, ...] = ()
    named: list[str] = []
    if isinstance(parsed, SkillFinding):
        findings.append(parsed)
        outcomes[block] = "failed"
    else:
        targets = tuple(t for t in get_args(Target) if t in parsed.general.backends)
        named += parsed.torch.src if parsed.torch is not None else ()
        named += [name for k in parsed.kernel.values() if k.backend in targets for name in k.src]
    paths = tuple(f.path for f in shown.project.files)
    # Glob patterns are left to the builder.
    hidden = [name for name in named if name not in paths and not set(name) & set("*?[")]
    if hidden:
        message = f"this build.toml names what is not shown ({', '.join(hidden)}): the project is not built"
        findings.append(warning(block.file, block.line or 1, message))
    results = tuple(build(shown.project, one) for one in targets) if build is not None and not hidden else ()
    sources = [b for b in shown.blocks if is_compiled(b)]
    lacking = tuple(r.finding.message for r in results if r.finding and r.finding.cause is Cause.NO_TOOLCHAIN)
    if all(result.finding is None for result in results) and results:
        outcomes |= dict.fromkeys(sources, "built")
    for result in results:
        for where, finding in _faults(shown, result):
            findings.append(finding)
            outcomes |= dict.fromkeys((b for b in sources if where in (b, None)), "failed")
    findings += dict.fromkeys(one for result in results for one in _binding(shown, result))
    report = ShownProjectReport(
        file=block.file,
        line=block.line or 1,
        name=None if isinstance(parsed, SkillFinding) else parsed.general.name,
        paths=paths,
        targets=targets,
        builds=results,
    )
    return Judged(outcomes, findings, lacking, report)


def _binding(shown: ShownProject, result: BuildResult) -> Iterator[SkillFinding]:
    """Warnings on the operator binding, at their lines of the skill."""
    for one in result.binding_warnings:
        for block in shown.blocks:
            line, _, message = one.removeprefix(f"{block.path}:").partition(": ")
            if block.path is not None and one.startswith(f"{block.path}:") and line.isdecimal():
                yield warning(block.file, block.line + int(line), message)


def _faults(shown: ShownProject, result: BuildResult) -> Iterator[tuple[CodeBlock | None, SkillFinding]]:
    """The first error of each file at its line of the skill, or else the failure at build.toml."""
    if result.finding is None or result.finding.cause is Cause.NO_TOOLCHAIN:
        return
    what = f"the project shown here does not build for {result.backend}"
    placed = False
    for one in result.diagnostics:
        block = next((b for b in reversed(shown.blocks) if b.path == one.file), None)
        if block is not None and one.line is not None:
            advice = "" if one.advice is None else f": {one.advice}"
            certain = (
                result.finding.cause in _CERTAIN and one.kind not in _ELSEWHERE and not is_elided(block.text)
            )
            report = error if certain else warning
            yield block, report(block.file, block.line + one.line, f"{what}: {one.message}{advice}")
            placed = True
    if not placed:
        toml = shown.build_toml
        report = error if result.finding.cause in _CERTAIN else warning
        yield None, report(toml.file, toml.line or 1, f"{what}: {result.finding.message}")
