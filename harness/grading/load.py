"""What a built library says before anything calls it: will it import, may it, what stands beside its grade.

What could not be checked is said; it is neither a pass nor a failure.
"""

from __future__ import annotations

import re
from typing import Final

from harness.outcome import Cause
from harness.records import BuildResult, Finding, MachineFacts, Task

_SHOWN: Final = 4
UNREAD: Final = "calls unknown"
# How torch, the CUDA runtime and Triton say that there is no GPU: no fault of a project's.
_NO_GPU: Final = re.compile(
    r"no NVIDIA driver|No CUDA GPUs|no CUDA-capable device|driver version is insufficient|CUDA driver error"
    r"|cudaErrorNoDevice|cudaErrorInsufficientDriver|Torch not compiled with CUDA|active drivers?\b"
    r"|libcuda\.so"
)


def call_flags(build: BuildResult, task: Task) -> tuple[str, ...]:
    """What stands beside the grade: nothing where the task allows such calls or nothing was linked."""
    if task.library_calls == "allow" or build.jit or not build.ok:
        return ()
    return (UNREAD,) if build.calls is None else build.calls.flags


def forbidden_calls(build: BuildResult, task: Task) -> Finding | None:
    """The failure of a project that calls what its task forbids; a library that cannot be read has failed.

    A universal project (`build.jit`) has no library: nothing is known of it, and nothing is held against it.
    """
    flags = call_flags(build, task)
    if task.library_calls != "forbid" or not flags:
        return None
    lines = [f"the task forbids what the built library does: {', '.join(flags)}"]
    if build.calls is not None:
        named = build.calls.borrowed
        lines += [f"  {name}" for name in named[:_SHOWN]]
        lines += [f"  and {len(named) - _SHOWN} more"] if len(named) > _SHOWN else []
    return Finding(cause=Cause.LIBRARY_CALLS, message="\n".join(lines))


def unresolved_symbols(build: BuildResult) -> Finding | None:
    """The import error that is certain before an import: no library has the symbol."""
    names = () if build.calls is None else build.calls.unresolved
    if not names:
        return None
    lines = [f"undefined symbol: {name}" for name in names[:_SHOWN]]
    lines += [f"and {len(names) - _SHOWN} more undefined symbols"] if len(names) > _SHOWN else []
    return Finding(cause=Cause.IMPORT_ERROR, message="\n".join(lines))


def explained(finding: Finding, build: BuildResult | None) -> Finding:
    """An import error with the symbol as it reads, and what the library defines instead."""
    if finding.cause is not Cause.IMPORT_ERROR or "undefined symbol" not in finding.message or build is None:
        return finding
    better = unresolved_symbols(build)
    if better is None:
        return finding
    return Finding(cause=finding.cause, message=f"{better.message}\n{finding.message}")


def no_operators(namespace: str) -> Finding:
    """The library was imported and registered nothing where its package looks."""
    return Finding(
        cause=Cause.IMPORT_ERROR,
        message=f"the library was imported but registered no operator in torch.ops.{namespace}: the binding "
        "needs TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...), or STABLE_TORCH_LIBRARY_EXPAND",
    )


def wants_gpu(finding: Finding) -> bool:
    """Whether an import, in a worker that was given no GPU, failed for want of one."""
    return finding.cause is Cause.IMPORT_ERROR and _NO_GPU.search(finding.message) is not None


def unmeasured(finding: Finding, said: str) -> Finding:
    """`finding` (why this machine goes no further) with what is known of the import."""
    return Finding(cause=finding.cause, message=f"{finding.message}; {said}")


def not_imported(build: BuildResult) -> str:
    """What a CPU-only torch leaves open."""
    if build.calls is None:
        return "not imported: its symbols could not be read"
    if build.calls.unproven == 0:
        return "not imported (this torch has no CUDA), though all its symbols are there"
    count = build.calls.unproven
    noun = "symbol is" if count == 1 else "symbols are"
    return f"not imported: {count} {noun} unproven, which only a CUDA build of torch could have"


def cannot_run_cuda(machine: MachineFacts, build: BuildResult, why: str | None = None) -> Finding:
    """Why a CUDA project goes no further on this machine; `why`: its GPU cannot be used."""
    built = "a universal project, which compiles when it runs" if build.jit else "built for sm_90"
    if machine.gpu is None:
        return Finding(cause=Cause.NO_CUDA_DEVICE, message=f"no CUDA device: {built}, not run")
    return Finding(
        cause=Cause.NO_CUDA_TRANSPORT,
        message=f"{machine.gpu} cannot be used: {why or 'it was not opened'}; {built}, not run",
    )


def wrong_package(result: BuildResult, task: Task) -> Finding | None:
    """The package that was built is not the one that the task asks for."""
    if result.module == task.module:
        return None
    return Finding(
        cause=Cause.MISSING_FUNCTION,
        message=f"the project's package is {result.module!r}; the task asks for {task.module!r} "
        f"(general.name = {task.package!r})",
    )
