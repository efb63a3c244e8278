"""Reads what ninja and the compilers printed.

Owns: finding the first error, cleaning paths, and the sum of compiler times.
Does not own: verdicts (build.py). The text comes out of a sandbox and is untrusted: nothing here
believes more of it than which error to show. Pure.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from harness.builder.layout import SOURCE
from harness.builder.toolchain import Toolchain

TREE: Final = "liftbench-tree"
"""Name of the build tree in the sandbox's scratch directory."""
_CONTEXT_LINES: Final = 12
_MESSAGE_LIMIT: Final = 3_000

_FAILED = re.compile(r"^FAILED: (?:\[code=(\d+)\] )?(\S+)", re.M)
_TOOL = r"(?:\S*/)?(?:[\w-]*(?:g\+\+|gcc|c\+\+)[\w.-]*|cc1plus|collect2|ld|as|nvcc|ptxas|cudafe\+\+|cicc|sh)"
_ERROR = re.compile(
    rf"""^(?: [^\s:][^:\n]*:\d+(?::\d+)?:\ (?:fatal\ )?error:          # g++
    | \S[^(\n]*\(\d+\):\ (?:catastrophic\ |internal\ )?error\b          # nvcc's front end
    | ptxas\ .*(?:error|fatal)\s*: | nvcc\ (?:fatal|error)\s*:
    | {_TOOL}:\ (?:fatal\ )?error: | .*(?:undefined\ reference\ to|multiple\ definition\ of)
    | {_TOOL}:\ .*(?:cannot\ find|relocation|undefined|No\ such) ).*$""",
    re.X | re.M,
)
_LIMIT = re.compile(
    rf"^(?:{_TOOL}|nvcc error\s*): .*(Killed|terminated with signal 9|virtual memory exhausted"
    r"|Cannot allocate memory|File size limit exceeded|No space left on device|Disk quota exceeded"
    r"|Resource temporarily unavailable|out of memory)",
    re.M,
)
_NO_HEADER = re.compile(r"fatal error: ([\w./+-]+): No such file or directory")
# What a whole CUDA toolkit and a CUDA build of torch have, and a bare compiler has not.
_TOOLKIT_HEADER = re.compile(
    r"(cublas|cusparse|cusolver|curand|cufft|nvrtc|nvml|nvJitLink|nvtx3/)[\w./]*\.h|ATen/cuda/CUDAConfig\.h"
)
_GXX_TOO_NEW = re.compile(r"^\S*host_config\.h:.*unsupported GNU version", re.M)
_STUBBED_NAME = re.compile(r"error: .*\b(cublas|cusparse|cusolver)\w+")


class Failure(NamedTuple):
    """The first failed step."""

    linking: bool
    message: str
    """Cleaned; the first line is the error."""
    limit: bool
    """A tool was stopped by a limit of the sandbox."""
    not_started: bool
    """The shell could not run the tool: no fault of the project."""


def first_failure(output: str, toolchain: Toolchain) -> Failure | None:
    """What failed first in ninja's output; None when no step failed."""
    failed = _FAILED.search(output)
    if failed is None:
        return None
    block = output[failed.end() :]
    following = _FAILED.search(block)
    block = block[: following.start()] if following else block
    # The first line after FAILED is the command itself.
    block = block.partition("\n")[2].partition("\n")[2]
    error = _ERROR.search(block)
    message = block[error.start() :] if error else f"the compiler failed without an error line\n{block}"
    return Failure(
        linking=failed[2].startswith("lib/"),
        message=_shortened(clean(message, toolchain)),
        limit=_LIMIT.search(block) is not None,
        not_started=failed[1] in {"126", "127"},
    )


def clean(text: str, toolchain: Toolchain) -> str:
    """Without the scratch directory, and with short names for torch, Python and CUDA."""
    text = re.sub(rf"^ninja: Entering directory .*{TREE}.*\n", "", text, flags=re.M)
    text = re.sub(rf"[^\s\"'=]*/{TREE}/", "", text)
    text = re.sub(rf"(?<![\w./-]){SOURCE}/", "", text)
    names = {"torch": toolchain.torch_root, "python": toolchain.python_include}
    if toolchain.cuda is not None:
        names |= {"cuda": toolchain.cuda.root, "cuda-math": toolchain.cuda.math_include}
    for name, path in names.items():
        if path is not None:
            text = text.replace(f"{path}/", f"{name}/")
    return text


def _shortened(text: str) -> str:
    lines = [line for line in text.splitlines() if not line.startswith("ninja: ")]
    return "\n".join(lines[:_CONTEXT_LINES]).strip()[:_MESSAGE_LIMIT]


def missing_header(message: str) -> str | None:
    """The header that was not found, or None."""
    found = _NO_HEADER.search(message)
    return found[1] if found else None


def toolkit_gap(message: str, toolchain: Toolchain) -> str | None:
    """What of a whole CUDA installation a CUDA project needs and this machine lacks, or None."""
    if _GXX_TOO_NEW.search(message):
        return f"nvcc does not know {toolchain.gxx_version}"
    header = missing_header(message)
    if header is not None:
        return f"its CUDA has no {header}" if _TOOLKIT_HEADER.fullmatch(header) else None
    name = _STUBBED_NAME.search(message.partition("\n")[0])
    if name is not None and any(stub.startswith(name[1]) for stub in toolchain.stubs):
        return f"its CUDA has no declarations of {name[1]}"
    return None


def compiler_seconds(ninja_log: str) -> float | None:
    """Sum of the wall times of all steps; None when the log names none."""
    steps: dict[str, float] = {}
    for line in ninja_log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[0].isdecimal() and fields[1].isdecimal():
            steps[fields[3]] = max(0, int(fields[1]) - int(fields[0])) / 1000
    return sum(steps.values()) if steps else None
