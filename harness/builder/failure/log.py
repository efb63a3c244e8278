"""Reads what ninja printed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from harness.builder.failure.tool_errors import tool_errors
from harness.builder.layout import SOURCE
from harness.builder.toolchain import Toolchain

TREE: Final = "liftbench-tree"
"""Name of the build tree in the sandbox's scratch directory."""
_CONTEXT_LINES: Final = 12
_MESSAGE_LIMIT: Final = 3_000

_FAILED = re.compile(r"^FAILED: (?:\[code=(\d+)\] )?(\S+)", re.M)
_STATUS = re.compile(r"^\[\d+/\d+\] ", re.M)
_MEMORY: Final = (
    r"Killed|signal 9\b|virtual memory exhausted|Cannot allocate memory|out of memory|std::bad_alloc"
)
OUT_OF_MEMORY: Final = re.compile(_MEMORY)
_LIMIT: Final = re.compile(
    rf"{_MEMORY}|File size limit exceeded|File too large|No space left on device|Disk quota exceeded"
    r"|Resource temporarily unavailable"
)
_KILLED: Final = re.compile(
    r"\bKilled signal terminated program\b|\bdied due to signal (?:9|15)\b|^Killed$", re.M
)
_KILLED_CODES: Final = frozenset({128 + 9, 128 + 15})
_NO_HEADER = re.compile(
    r"(?:[^\s:][^:\n]*:\d+(?::\d+)?: fatal error: )?([\w./+-]+): No such file or directory\s*$"
)
# What a whole CUDA toolkit and a CUDA build of torch have, and a bare compiler has not: exact names (of
# CUDA 13.0 and torch 2.13), since a project whose header does not exist anywhere fails by its own fault.
_TOOLKIT_HEADER = re.compile(
    r"""(?:cublas(?:Lt|Xt|_api|_v2)? | cudalibxt | nvblas | cufft(?:Xt|w)? | cusparse(?:_v2)?
        | curand(?:_(?:kernel|discrete2?|globals|lognormal|mrg32k3a|normal(?:_static)?|philox4x32_x|poisson
            |mtgp32(?:_host|_kernel|dc_p_11213)?|precalc|uniform))?
        | cusolver(?:Dn|Mg|Rf|Sp|Sp_LOWLEVEL_PREVIEW|_common) | nvJitLink | nvml | nvrtc
        | nvtx3/nvToolsExt(?:Cuda|CudaRt|Sync)? | cuda_profiler_api | cudaProfiler
        | ATen/cuda/CUDAConfig | c10/cuda/impl/cuda_cmake_macros)\.h
        | nvtx3/nvtx3\.hpp | THC/THC(?:Atomics|DeviceUtils)\.cuh""",
    re.X,
)
_STUBBED_NAME = re.compile(r"error: .*\b(cublas|cusparse|cusolver)\w+")


class Step(NamedTuple):
    """A step that failed."""

    output: str
    """What it was to make, such as obj/kernels/a.cu/unit.o."""
    code: int | None
    """The tool's exit code; None where this ninja does not say."""
    text: str
    """What its tools printed, cleaned, without the command."""

    @property
    def linking(self) -> bool:
        """Whether it is the link step."""
        return self.output.startswith("lib/")

    @property
    def killed(self) -> bool:
        """A tool seems to have been killed. It may say so without having been: good for a second try only."""
        return self.code in _KILLED_CODES or _KILLED.search(self.text) is not None


class Failure(NamedTuple):
    """The failed step that is named first."""

    linking: bool
    message: str
    """Cleaned; the first line is the error."""
    limit: bool
    """A tool was stopped by a limit of the sandbox."""


def failed_steps(output: str, toolchain: Toolchain, order: Sequence[str] = ()) -> list[Step]:
    """The failed steps of a ninja that keeps going, in the order of `order` (outputs), each once.

    Ninja prints them as they end, which is a race with several jobs. Steps that `order` does not name
    count only where it names none of them: a compiler's message may look like ninja's.
    """
    steps: dict[str, Step] = {}
    found = list(_FAILED.finditer(output))
    for index, failed in enumerate(found):
        block = output[failed.end() : found[index + 1].start() if index + 1 < len(found) else None]
        # The first line after FAILED is the command itself.
        block = block.partition("\n")[2].partition("\n")[2]
        status = _STATUS.search(block)
        block = block[: status.start()] if status else block
        code = int(failed[1][:9]) if failed[1] else None
        steps.setdefault(failed[2], Step(failed[2], code, clean(block, toolchain)))
    return [steps[name] for name in order if name in steps] or list(steps.values())


def first_failure(output: str, toolchain: Toolchain, order: Sequence[str] = ()) -> Failure | None:
    """What failed first in ninja's output; None when no step failed."""
    steps = failed_steps(output, toolchain, order)
    return failure_of(steps[0]) if steps else None


def failure_of(step: Step) -> Failure:
    """The error of one step, with the lines that follow it."""
    errors = tool_errors(step.text, frozenset())
    lines = step.text.split("\n")
    if errors:
        message = "\n".join(lines[errors[0].index : errors[0].index + _CONTEXT_LINES])
    else:
        message = f"the compiler failed without an error line\n{step.text}"
    return Failure(
        linking=step.linking,
        message=_shortened(message),
        limit=any(e.tool in {"driver", "crash", "linker"} and _LIMIT.search(e.text) for e in errors),
    )


def without_place(text: str, mark: str) -> str:
    """Every word that holds `mark` without its part up to there: the folder that something ran in."""
    # Not by a pattern: what stands before the mark may be a word of a million characters.
    parts = text.split(mark)
    kept = [part[: 1 + max(part.rfind(c) for c in " \t\r\n\"'=`")] for part in parts[:-1]]
    return "".join([*kept, parts[-1]])


def clean(text: str, toolchain: Toolchain) -> str:
    """Without the scratch directory, and with short names for torch, Python and CUDA."""
    text = re.sub(rf"^ninja: Entering directory [^\n]*{TREE}[^\n]*\n", "", text, flags=re.M)
    text = without_place(text, f"/{TREE}/")
    text = re.sub(rf"(?<![\w./-]){SOURCE}/", "", text)
    names = {"torch": toolchain.torch_root, "python": toolchain.python_include}
    if toolchain.cuda is not None:
        names |= {"cuda": toolchain.cuda.root, "cuda-math": toolchain.cuda.math_include}
    names |= {headers.name: headers.root for headers in toolchain.headers}
    names |= {cutlass.name or "cutlass": cutlass.root for cutlass in toolchain.cutlass}
    for name, path in names.items():
        if path is not None:
            text = text.replace(f"{path}/", f"{name}/")
    return text


def _shortened(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("ninja: ")]
    return "\n".join(lines[:_CONTEXT_LINES]).strip()[:_MESSAGE_LIMIT]


def missing_header(message: str) -> str | None:
    """The header that was not found, or None; `message` begins with the error."""
    found = _NO_HEADER.match(message.partition("\n")[0][:_MESSAGE_LIMIT])
    return found[1] if found else None


def toolkit_gap(message: str, toolchain: Toolchain) -> str | None:
    """What of a whole CUDA installation a CUDA project needs and this machine lacks, or None."""
    header = missing_header(message)
    if header is not None:
        gap = f"its CUDA has no {header}: run `liftbench headers cuda`"
        return gap if _TOOLKIT_HEADER.fullmatch(header) else None
    name = _STUBBED_NAME.search(message.partition("\n")[0])
    if name is not None and any(stub.startswith(name[1]) for stub in toolchain.stubs):
        return f"its CUDA has no declarations of {name[1]}: run `liftbench headers cuda`"
    return None


def compiler_seconds(ninja_log: str) -> float | None:
    """Sum of the wall times of all steps; None when the log names none."""
    steps: dict[str, float] = {}
    for line in ninja_log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[0].isdecimal() and fields[1].isdecimal():
            steps[fields[3]] = max(0, int(fields[1]) - int(fields[0])) / 1000
    return sum(steps.values()) if steps else None


def finished_outputs(ninja_log: str) -> frozenset[str]:
    """What was made, by ninja's own log (of failed and unfinished steps it holds nothing)."""
    lines = (line.split("\t") for line in ninja_log.splitlines())
    return frozenset(fields[3] for fields in lines if len(fields) == 5)
