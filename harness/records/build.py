"""Records of a build: what failed, or what was made."""

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
"""So begin warnings of a function that receives other numbers than were passed; `file:line: ` follows."""


class Diagnostic(Record):
    """The first error of one file of a build."""

    kind: DiagnosticKind
    """`syntax` is whatever a compiler's front end refuses, types included."""
    message: str
    """The tool's own words, one line, without this machine's paths."""
    file: str | None = None
    """Relative to the project, or `torch/...`, `cuda/...`; None where no file is to blame."""
    line: int | None = None
    """1-based."""
    column: int | None = None
    source: str | None = None
    """The text of that line."""
    advice: str | None = None
    """What to do about it, in liftbench's words."""


class DeviceKernel(Record):
    """One CUDA kernel as it was compiled: evidence of what was really written."""

    name: str
    """Demangled."""
    architecture: str
    """Such as sm_90a."""
    registers: int
    """Per thread."""
    shared_bytes: int
    """Static shared memory per block; what a launch adds is not known here."""
    stack_bytes: int
    """Local memory per thread, callees included where the compiler knows them."""
    spill_store_bytes: int | None = None
    """Per thread, of the store instructions that the compiler marked as spills, as `ptxas -v` counts
    them; None where it marks none or the instructions were not read."""
    spill_load_bytes: int | None = None
    instructions: dict[str, int] | None = None
    """SASS instructions in the code, not executions, by class (harness.builder.binary.cubins.CLASSES; a class
    that is not there is 0), `all` for their number without NOPs; None where they were not read."""


class BinaryCalls(Record):
    """What a shared library calls, by its undefined symbols and the operator names in it; qualified
    names, sorted, at most 100 each."""

    compute: tuple[str, ...] = ()
    """PyTorch operators that compute, such as `at::_ops::matmul::call` or `aten::mm (by name)`."""
    library: tuple[str, ...] = ()
    """cuBLAS, cuDNN, MKL and their kin."""
    dispatcher: tuple[str, ...] = ()
    """Ways to call any operator by name; `compute` has the names that were found."""
    tensor: tuple[str, ...] = ()
    """Allocation, views, properties and registration."""
    runtime: tuple[str, ...] = ()
    """CUDA runtime and driver."""
    system: tuple[str, ...] = ()
    """Loading, processes, files, network."""
    unresolved: tuple[str, ...] = ()
    """No library that is loaded beside torch has them: the import fails. As they read, with what the
    library defines instead."""
    unproven: int = 0
    """Symbols that only a CUDA build of torch could have; not checked with a CPU-only one."""

    @property
    def borrowed(self) -> tuple[str, ...]:
        """The names behind the flags: what may do the project's work for it."""
        return (*self.compute, *self.library, *self.dispatcher, *self._loaders)

    @property
    def _loaders(self) -> tuple[str, ...]:
        return tuple(n for n in self.system if n in ("dlopen", "dlmopen", "dlsym", "dlvsym"))

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of a speedup should know: work that is not the project's own, or may not be."""
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
    """What the build stage found."""

    ok: bool
    finding: Finding | None
    """None exactly when ok."""
    backend: Target
    key: str
    """Content key of the build: project, target, toolchain, flags."""
    cache_hit: bool
    wall_s: float
    """Of this request; near 0 on a cache hit."""
    compiler_s: float | None
    """Sum of the wall time of compile and link commands when it was built; None if none ran."""
    units: int | None = None
    """Number of translation units; None when planning failed."""
    variant: str | None = None
    """kernel-builder's variant name, such as torch-stable-abi210-cu130-x86_64-linux."""
    module: str | None = None
    """The Python package in the variant."""
    architectures: tuple[str, ...] = ()
    """Such as sm_90; empty on cpu."""
    jit: bool = False
    """A universal project: nothing was compiled here, and its worker runs in role run_jit."""
    abi: str | None = None
    """What the ABI check said; None when it did not run."""
    warnings: tuple[str, ...] = ()
    toolchain: dict[str, str] = Field(default_factory=dict)
    diagnostics: tuple[Diagnostic, ...] = ()
    """First error of each file that has one; empty when ok, unless the library could not be loaded."""
    kernels: tuple[DeviceKernel, ...] | None = None
    """The longest programs first; None on cpu, and where `warnings` says why they were not measured."""
    calls: BinaryCalls | None = None
    """None when nothing was linked."""

    @property
    def binding_warnings(self) -> tuple[str, ...]:
        """Of `warnings`, what compiles but gives an operator other numbers: `file:line: ...`."""
        found = (w for w in self.warnings if w.startswith(BINDING_WARNING))
        return tuple(w.removeprefix(BINDING_WARNING) for w in found)

    @model_validator(mode="after")
    def _finding_iff_failed(self) -> Self:
        if self.ok == (self.finding is not None):
            raise ValueError("a build has a finding exactly when it failed")
        return self
