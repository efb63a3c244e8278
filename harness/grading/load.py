"""The load stage: the task's rules about a built library, and how far it gets where no GPU can run it."""

from __future__ import annotations

import re
from typing import Final

from harness.outcome import Cause
from harness.records import BuildResult, Finding, MachineFacts, Task

_SHOWN: Final = 4
UNREAD: Final = "calls unknown"
# Messages of torch, the CUDA runtime and Triton where there is no GPU.
_NO_GPU: Final = re.compile(
    r"no NVIDIA driver|No CUDA GPUs|no CUDA-capable device|driver version is insufficient|CUDA driver error"
    r"|cudaErrorNoDevice|cudaErrorInsufficientDriver|Torch not compiled with CUDA|active drivers?\b"
    r"|libcuda\.so"
)


def _listed(names: tuple[str, ...], more: str) -> list[str]:
    rest = len(names) - _SHOWN
    return [*names[:_SHOWN], *([f"and {rest} more{more}"] if rest > 0 else [])]


def call_flags(build: BuildResult, task: Task) -> tuple[str, ...]:
    """Flags of the library's calls; none where the task allows them or nothing was linked."""
    if task.library_calls == "allow" or build.jit or not build.ok:
        return ()
    return (UNREAD,) if build.calls is None else build.calls.flags


def load_refusal(build: BuildResult, task: Task) -> Finding | None:
    """Why a built package is not loaded: it has the wrong name, or calls what the task forbids.

    A library that cannot be read fails a task that forbids calls; a universal project (`build.jit`) has none.
    """
    if build.module != task.module:
        return Finding(
            cause=Cause.MISSING_FUNCTION,
            message=f"the project's package is {build.module!r}; the task asks for {task.module!r} "
            f"(general.name = {task.package!r})",
        )
    flags = call_flags(build, task)
    if task.library_calls != "forbid" or not flags:
        return None
    lines = [f"the task forbids what the built library does: {', '.join(flags)}"]
    if build.calls is not None:
        lines += [f"  {line}" for line in _listed(build.calls.borrowed, "")]
    return Finding(cause=Cause.LIBRARY_CALLS, message="\n".join(lines))


def unresolved_symbols(build: BuildResult) -> Finding | None:
    """The import error of a library with symbols that no loaded library defines."""
    names = () if build.calls is None else build.calls.unresolved
    if not names:
        return None
    lines = _listed(tuple(f"undefined symbol: {name}" for name in names), " undefined symbols")
    return Finding(cause=Cause.IMPORT_ERROR, message="\n".join(lines))


def with_symbol_names(finding: Finding, build: BuildResult) -> Finding:
    """An import error about a symbol, with the demangled name and similar names that are defined."""
    if finding.cause is not Cause.IMPORT_ERROR or "undefined symbol" not in finding.message:
        return finding
    better = unresolved_symbols(build)
    if better is None:
        return finding
    return Finding(cause=finding.cause, message=f"{better.message}\n{finding.message}")


def no_operators(namespace: str) -> Finding:
    """The finding for a library that registered nothing where its package looks."""
    return Finding(
        cause=Cause.IMPORT_ERROR,
        message=f"the library was imported but registered no operator in torch.ops.{namespace}: the binding "
        "needs TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ...), or STABLE_TORCH_LIBRARY_EXPAND",
    )


def wants_gpu(finding: Finding) -> bool:
    return finding.cause is Cause.IMPORT_ERROR and _NO_GPU.search(finding.message) is not None


def with_note(finding: Finding, note: str) -> Finding:
    """`finding` (why this machine goes no further) with what is known about the import."""
    return Finding(cause=finding.cause, message=f"{finding.message}; {note}")


def why_not_imported(build: BuildResult) -> str:
    """What remains unknown where only a CPU build of torch is installed."""
    if build.calls is None:
        return "not imported: its symbols could not be read"
    if build.calls.unproven == 0:
        return "not imported (this torch has no CUDA), though all its symbols are there"
    return f"not imported: symbols that only a CUDA build of torch can have: {build.calls.unproven}"


def cannot_run_cuda(machine: MachineFacts, build: BuildResult, why: str | None = None) -> Finding:
    """Why a CUDA project is not run on this machine; `why`: the reason that its GPU cannot be used."""
    built = "a universal project, which compiles when it runs" if build.jit else "built for sm_90"
    if machine.gpu is None:
        return Finding(cause=Cause.NO_CUDA_DEVICE, message=f"no CUDA device: {built}, not run")
    return Finding(
        cause=Cause.NO_CUDA_TRANSPORT,
        message=f"{machine.gpu} cannot be used: {why or 'it was not opened'}; {built}, not run",
    )
