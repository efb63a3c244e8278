"""Records of a build: its diagnostics, compiled kernels and calls into other libraries."""

from __future__ import annotations

from typing import Final, Literal, Self

from pydantic import Field, model_validator

from harness.records.base import Record, Target
from harness.records.project import Finding

DiagnosticKind = Literal[
    "build_toml",
    "layout",
    "flag_refused",
    "missing_header",
    "syntax",
    "wrong_arch",
    "binding_mismatch",
    "linker",
    "timeout",
    "out_of_memory",
    "other",
]
BINDING_WARNING: Final = "binding: "
"""Prefix of warnings about arguments that a binding passes on wrongly; `file:line: ` follows."""
PARSER_SAYS: Final = "kernel-builder says: "
"""In the message of a bad build.toml: liftbench's advice stands before, the parser's words after it."""


class Diagnostic(Record):
    """The first error in one file of a build."""

    kind: DiagnosticKind
    """`syntax` covers every error of a compiler's front end, types included."""
    message: str
    """The tool's message on one line, without paths of this machine."""
    file: str | None = None
    """Relative to the project, or `torch/...`, `cuda/...`; None where no file is known."""
    line: int | None = None
    """1-based."""
    column: int | None = None
    source: str | None = None
    advice: str | None = None
    """How to fix it, written by liftbench."""


class DeviceKernel(Record):
    """Resource usage and instruction mix of one compiled CUDA kernel."""

    name: str
    """Demangled."""
    architecture: str
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static shared memory per block; dynamic shared memory is not known."""
    stack_bytes: int
    """Local memory per thread, callees included where the compiler knows them."""
    spill_store_bytes: int | None = None
    """Per thread, as `ptxas -v` counts spill stores; None where instructions were not read or not marked."""
    spill_load_bytes: int | None = None
    instructions: dict[str, int] | None = None
    """Static SASS instruction counts by class (absent means 0); `all` is the total without NOPs. None where
    they were not read."""


class BinaryCalls(Record):
    """What a shared library calls: qualified names, sorted, at most 100 each."""

    compute: tuple[str, ...] = ()
    """PyTorch operators that compute, such as `at::_ops::matmul::call` or `aten::mm (by name)`."""
    library: tuple[str, ...] = ()
    dispatcher: tuple[str, ...] = ()
    """Functions that call operators by name; names that were found are in `compute`."""
    tensor: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    unresolved: tuple[str, ...] = ()
    """Symbols that no loaded library defines, so the import fails; with similar names that are defined."""
    unproven: int = 0
    """Symbols that only a CUDA build of torch could define; a CPU-only build cannot check them."""

    @property
    def borrowed(self) -> tuple[str, ...]:
        """Names that may do the project's work for it: the evidence behind `flags`."""
        return (*self.compute, *self.library, *self.dispatcher, *self._loaders)

    @property
    def _loaders(self) -> tuple[str, ...]:
        return tuple(n for n in self.system if n in ("dlopen", "dlmopen", "dlsym", "dlvsym"))

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags for work that is not, or may not be, the project's own."""
        python = any(name.lstrip("_").startswith("Py") for name in self.dispatcher)
        named = any(name.endswith(" (by name)") for name in (*self.compute, *self.tensor))
        found = {
            "calls PyTorch operators": bool(self.compute),
            "calls a library": bool(self.library),
            "may call any operator": bool(self.dispatcher) and (python or not named),
            "loads code at run time": bool(self._loaders),
        }
        return tuple(name for name, true in found.items() if true)


class BuildResult(Record):
    ok: bool
    finding: Finding | None
    backend: Target
    key: str
    cache_hit: bool
    wall_s: float
    compiler_s: float | None
    units: int | None = None
    variant: str | None = None
    """kernel-builder's variant name, such as torch-stable-abi210-cu130-x86_64-linux."""
    module: str | None = None
    architectures: tuple[str, ...] = ()
    jit: bool = False
    """A universal project: it compiles at run time, in a worker with the role run_jit."""
    abi: str | None = None
    warnings: tuple[str, ...] = ()
    toolchain: dict[str, str] = Field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    """First error of each file that has one; empty when ok, unless the library could not be loaded."""
    kernels: tuple[DeviceKernel, ...] | None = None
    """Longest first; None on cpu, and where `warnings` says why they were not read."""
    calls: BinaryCalls | None = None

    @property
    def binding_warnings(self) -> tuple[str, ...]:
        found = (w for w in self.warnings if w.startswith(BINDING_WARNING))
        return tuple(w.removeprefix(BINDING_WARNING) for w in found)

    @model_validator(mode="after")
    def _finding_iff_failed(self) -> Self:
        if self.ok == (self.finding is not None):
            raise ValueError("a build has a finding exactly when it failed")
        return self
