"""The translation units of a project for one target: which files compile, with which options.

A returned unit's flags are all allowed; a Finding means that nothing may be compiled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, Literal

from harness.builder.allowed_flags import Allowed, allow_cuda, allow_cxx
from harness.builder.architectures import TARGET, loose_intersection, misspelt, supported
from harness.builder.config.schema import BuildToml, CpuKernel, CudaKernel, version_parts
from harness.builder.headers.cutlass import Cutlass, choose_cutlass, cutlass_missing, cutlass_warning
from harness.outcome import Cause
from harness.records import Finding, Record, Target

Language = Literal["cxx", "cuda"]
# As CMake: what it has no language for is part of the project but is not compiled.
_CXX_SUFFIXES: Final = frozenset({".cpp", ".cc", ".cxx", ".c++", ".C", ".CPP"})
HEADER_SUFFIXES: Final = frozenset({".h", ".hpp", ".hxx", ".hh", ".cuh", ".inl", ".inc", ".ipp", ".tpp"})
_CUDA_WITHOUT_TOOLKIT: Final = (13, 0)


class Unit(Record):
    """One file to compile."""

    source: str
    """Relative to the project, normalised."""
    language: Language
    include: tuple[str, ...] = ()
    """Directories of the component, relative to the project."""
    flags: tuple[str, ...] = ()
    """The student's, screened and complete with their values."""
    capabilities: tuple[str, ...] = ()
    """CUDA only; empty leaves the choice to nvcc, as upstream does for a .cu in [torch]."""


class Units(Record):
    """All units of one target, in the order in which they are linked."""

    units: tuple[Unit, ...]
    cutlass: Cutlass | None = None
    """Headers for all units, where a kernel depends on CUTLASS."""
    warnings: tuple[str, ...] = ()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Union over the units, sorted as upstream writes them to metadata.json."""
        return tuple(sorted({c for unit in self.units for c in unit.capabilities}))


class _Refused(Exception):
    def __init__(self, cause: Cause, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(cause=cause, message=message)


def normalised(path: str) -> str:
    """`./a//b.cu` -> `a/b.cu`."""
    return PurePosixPath(path).as_posix()


def plan_units(
    toml: BuildToml, target: Target, cuda: tuple[int, int] | None, cutlass: Sequence[Cutlass] = ()
) -> Units | Finding:
    """The units of `target`; `cuda` is nvcc's release, None where there is no nvcc.

    `cutlass`: what this machine has of it, first choice first.
    """
    try:
        return _Planner(toml, target, cuda or _CUDA_WITHOUT_TOOLKIT, cutlass).plan()
    except _Refused as refusal:
        return refusal.finding


class _Planner:
    def __init__(
        self, toml: BuildToml, target: Target, cuda: tuple[int, int], cutlass: Sequence[Cutlass]
    ) -> None:
        self._toml = toml
        self._target = target
        self._cuda = cuda
        self._found_cutlass = cutlass
        self._units: dict[str, Unit] = {}
        self._warnings: list[str] = []

    def plan(self) -> Units:
        kernels = self._kernels()
        self._binding()
        needed = self._all_capabilities(kernels)
        cutlass = self._cutlass(kernels)
        for name, kernel in kernels.items():
            where = f"[kernel.{name}]"
            cuda_flags = kernel.cuda_flags if isinstance(kernel, CudaKernel) else ()
            self._add(
                where,
                kernel.src,
                kernel.include,
                self._screened(allow_cxx(kernel.cxx_flags), f"cxx-flags of {where}"),
                self._screened(allow_cuda(cuda_flags), f"cuda-flags of {where}"),
                needed[name],
            )
        if not self._units:
            raise _Refused(Cause.BAD_LAYOUT, f"no file to compile is listed for {self._target}")
        return Units(
            units=tuple(self._units.values()),
            cutlass=cutlass,
            warnings=tuple(dict.fromkeys(self._warnings)),
        )

    # --- which kernels -------------------------------------------------------------------------

    def _kernels(self) -> dict[str, CpuKernel | CudaKernel]:
        """The target's kernels by name, sorted (upstream's order is that of a hash map)."""
        backends = self._toml.general.backends
        kernels = sorted(self._toml.kernel.items())
        for name, kernel in kernels:
            if kernel.backend in backends:
                continue
            message = f'[kernel.{name}] has backend "{kernel.backend}", which general.backends lacks'
            if kernel.backend == self._target:
                raise _Refused(Cause.NO_BACKEND, f"{message}: kernel-builder would never build it")
            self._warnings.append(message)
        mine = {n: k for n, k in kernels if isinstance(k, (CpuKernel, CudaKernel))}
        mine = {n: k for n, k in mine.items() if k.backend == self._target and self._wanted(n, k)}
        if not mine:
            has = ", ".join(sorted({k.backend for _, k in kernels})) or "none"
            raise _Refused(
                Cause.NO_BACKEND,
                f"this project has no `{self._target}` kernel (kernels in build.toml: {has})",
            )
        return mine

    def _wanted(self, name: str, kernel: CpuKernel | CudaKernel) -> bool:
        if isinstance(kernel, CudaKernel) and kernel.cuda_minver is not None:
            if self._cuda >= version_parts(kernel.cuda_minver):
                return True
            # As upstream: the component is silently absent below its CUDA version.
            self._warnings.append(f"[kernel.{name}] is left out: it needs CUDA {kernel.cuda_minver}")
            return False
        return True

    def _cutlass(self, kernels: Mapping[str, CpuKernel | CudaKernel]) -> Cutlass | None:
        """CUTLASS for the whole project: upstream's CMake has one, and only where GPU_LANG is CUDA."""
        if self._target != "cuda":
            return None
        wanted = [(d, n) for n, k in kernels.items() for d in k.depends if d.startswith("cutlass_")]
        if not wanted:
            return None
        name, kernel = wanted[0]
        if len({dependency for dependency, _ in wanted}) > 1:
            self._warnings.append(f"kernels depend on several CUTLASS versions: {name} is used for all")
        found = choose_cutlass(name, self._found_cutlass)
        if found is None:
            message = f"[kernel.{kernel}] depends on {name}: {cutlass_missing(name)}"
            raise _Refused(Cause.NO_TOOLCHAIN, message)
        warning = cutlass_warning(name, found)
        self._warnings += [warning] if warning else []
        return found

    # --- capabilities --------------------------------------------------------------------------

    def _all_capabilities(self, kernels: dict[str, CpuKernel | CudaKernel]) -> dict[str, tuple[str, ...]]:
        """Per kernel. One kernel at least must serve the target GPU; the others keep their own."""
        chosen: dict[str, tuple[str, ...]] = {}
        others: dict[str, tuple[str, ...]] = {}
        for name, kernel in kernels.items():
            wanted = kernel.cuda_capabilities if isinstance(kernel, CudaKernel) else ()
            self._check_spelling(name, wanted)
            if self._target == "cpu" or not wanted:
                chosen[name] = (TARGET,) if self._target == "cuda" else ()
                continue
            serving = loose_intersection(wanted, (TARGET,))
            full = loose_intersection(wanted, supported(self._cuda))
            if not full:
                listed, known = ", ".join(wanted), ", ".join(supported(self._cuda))
                raise _Refused(
                    Cause.BAD_BUILD_TOML,
                    f"[kernel.{name}]: empty set of capabilities after intersection "
                    f"(kernel: {listed}; supported: {known})",
                )
            (chosen if serving else others)[name] = serving or full
        if not chosen:
            listed = ", ".join(sorted({c for caps in others.values() for c in caps}))
            raise _Refused(
                Cause.NO_BACKEND,
                f"no kernel of this project runs on sm_90: cuda-capabilities give {listed}; "
                f'add "{TARGET}" (or "{TARGET}a" for wgmma and setmaxnreg)',
            )
        for name, capabilities in others.items():
            # Compiled all the same: the binding may refer to its symbols.
            self._warnings.append(f"[kernel.{name}] is for {', '.join(capabilities)}, not for sm_90")
        return chosen | others

    @staticmethod
    def _check_spelling(name: str, capabilities: Iterable[str]) -> None:
        for capability in capabilities:
            better = misspelt(capability)
            if better is not None:
                hint = f'write "{better}"' if better else 'write it as "9.0", "9.0a" or "9.0+PTX"'
                raise _Refused(
                    Cause.BAD_BUILD_TOML,
                    f'cuda-capabilities of [kernel.{name}]: "{capability}" is no capability: {hint}',
                )

    # --- files and flags -----------------------------------------------------------------------

    def _binding(self) -> None:
        torch = self._toml.torch
        assert torch is not None, "layout.py refuses other frameworks first"
        flags = self._screened(allow_cxx(torch.cxx_flags), "cxx-flags of [torch]")
        self._add("[torch]", torch.src, torch.include, flags, (), ())
        if self._target == "cuda" and any(u.language == "cuda" for u in self._units.values()):
            self._warnings.append("a .cu file in [torch] src gets nvcc's default architecture: move it")

    def _screened(self, allowed: Allowed, where: str) -> tuple[str, ...]:
        if allowed.refused is not None:
            raise _Refused(Cause.REFUSED_FLAG, f"{where}: {allowed.refused}")
        self._warnings += [f"{where}: {warning}" for warning in allowed.warnings]
        return allowed.words

    def _add(
        self,
        where: str,
        sources: Sequence[str],
        include: Sequence[str],
        cxx_flags: tuple[str, ...],
        cuda_flags: tuple[str, ...],
        capabilities: tuple[str, ...],
    ) -> None:
        for path in dict.fromkeys(normalised(s) for s in sources):
            language = self._language(path, where)
            if language is None:
                continue
            before = self._units.get(path)
            # A file in two components: CMake appends options and keeps the last include list.
            self._units[path] = Unit(
                source=path,
                language=language,
                include=tuple(normalised(i) for i in include),
                flags=(before.flags if before else ()) + (cuda_flags if language == "cuda" else cxx_flags),
                capabilities=tuple(
                    dict.fromkeys((before.capabilities if before else ()) + capabilities)
                    if language == "cuda"
                    else ()
                ),
            )

    def _language(self, path: str, where: str) -> Language | None:
        suffix = PurePosixPath(path).suffix
        if suffix in _CXX_SUFFIXES:
            return "cxx"
        if suffix == ".cu" and self._target == "cuda":
            return "cuda"
        if suffix not in HEADER_SUFFIXES:
            self._warnings.append(f"{path} in src of {where} is not compiled for {self._target}")
        return None


def named_architectures(units: Units) -> tuple[str, ...]:
    """Architectures that the student's own nvcc flags add, such as sm_90a."""
    found: set[str] = set()
    for unit in units.units:
        for flag in unit.flags if unit.language == "cuda" else ():
            if re.match(r"-{1,2}(gencode|generate-code|arch|gpu-architecture|code|gpu-code)=", flag):
                found |= set(re.findall(r"(?:sm|compute)_\d+[af]?", flag.rpartition("=")[2]))
    return tuple(sorted(found))
