"""The translation units of a project for one target: files to compile, their flags and CUDA architectures."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final, Literal

from harness.builder.allowed_flags import screen
from harness.builder.build_toml import BuildToml, CpuKernel, CudaKernel, version_parts
from harness.builder.check_project import Refused
from harness.builder.headers import HeaderSet, choose_cutlass
from harness.outcome import Cause
from harness.records import Record, Target

Language = Literal["cxx", "cuda"]
# As in CMake, listed files with other suffixes are part of the project but are not compiled.
_CXX_SUFFIXES: Final = frozenset({".cpp", ".cc", ".cxx", ".c++", ".C", ".CPP"})
HEADER_SUFFIXES: Final = frozenset({".h", ".hpp", ".hxx", ".hh", ".cuh", ".inl", ".inc", ".ipp", ".tpp"})
_CUDA_WITHOUT_TOOLKIT: Final = (13, 0)
H100: Final = "9.0"
"""Compute capability of H100 and H200."""
_CAPABILITY = re.compile(r"(\d{1,3})\.(\d)([af]?)(\+PTX)?")


class Unit(Record):
    """One file to compile."""

    source: str
    language: Language
    include: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    """CUDA only; if empty, nvcc chooses, as it does in kernel-builder for a .cu file in [torch]."""


class Units(Record):
    """All units of one target, in link order."""

    units: tuple[Unit, ...]
    cutlass: HeaderSet | None = None
    warnings: tuple[str, ...] = ()

    @property
    def capabilities(self) -> tuple[str, ...]:
        """Union over the units, in the order of metadata.json."""
        return tuple(sorted({c for unit in self.units for c in unit.capabilities}))

    @property
    def architectures(self) -> tuple[str, ...]:
        """Names of the generated code, such as sm_90a, from capabilities and from the project's flags."""
        words = gencode(self.capabilities)[1::2]
        found = [word.rpartition("code=")[2] for word in words]
        named: set[str] = set()
        for unit in self.units:
            for flag in unit.flags if unit.language == "cuda" else ():
                if re.match(r"-{1,2}(gencode|generate-code|arch|gpu-architecture|code|gpu-code)=", flag):
                    named |= set(re.findall(r"(?:sm|compute)_\d+[af]?", flag.rpartition("=")[2]))
        return tuple(dict.fromkeys([*found, *sorted(named)]))


def plan_units(
    toml: BuildToml, target: Target, cuda: tuple[int, int] | None, cutlass: Sequence[HeaderSet] = ()
) -> Units:
    """The units of `target`, with screened flags. Raises Refused.

    `cuda` is nvcc's release, None without nvcc; `cutlass` lists this machine's copies, first choice first.
    """
    return _Planner(toml, target, cuda or _CUDA_WITHOUT_TOOLKIT, cutlass).plan()


@dataclass
class _Planner:
    _toml: BuildToml
    _target: Target
    _cuda: tuple[int, int]
    _found_cutlass: Sequence[HeaderSet]
    _units: dict[str, Unit] = field(default_factory=dict)
    _warnings: list[str] = field(default_factory=list)

    def plan(self) -> Units:
        kernels = self._kernels()
        self._binding()
        needed = self._all_capabilities(kernels)
        cutlass = self._cutlass(kernels)
        for name, kernel in kernels.items():
            where = f"[kernel.{name}]"
            cuda_flags = kernel.cuda_flags if isinstance(kernel, CudaKernel) else ()
            cxx = self._screened(kernel.cxx_flags, f"cxx-flags of {where}")
            cuda = self._screened(cuda_flags, f"cuda-flags of {where}", nvcc=True)
            self._add(where, kernel.src, kernel.include, cxx, cuda, needed[name])
        if not self._units:
            raise Refused(f"no file to compile is listed for {self._target}")
        warnings = tuple(dict.fromkeys(self._warnings))
        return Units(units=tuple(self._units.values()), cutlass=cutlass, warnings=warnings)

    def _kernels(self) -> dict[str, CpuKernel | CudaKernel]:
        """The target's kernels by name, sorted (kernel-builder's order is that of a hash map)."""
        backends = self._toml.general.backends
        kernels = sorted(self._toml.kernel.items())
        for name, kernel in kernels:
            if kernel.backend in backends:
                continue
            message = f'[kernel.{name}] has backend "{kernel.backend}", which general.backends lacks'
            if kernel.backend == self._target:
                raise Refused(f"{message}: kernel-builder would never build it", Cause.NO_BACKEND)
            self._warnings.append(message)
        mine = {n: k for n, k in kernels if isinstance(k, (CpuKernel, CudaKernel))}
        mine = {n: k for n, k in mine.items() if k.backend == self._target and self._wanted(n, k)}
        if not mine:
            has = ", ".join(sorted({k.backend for _, k in kernels})) or "none"
            message = f"this project has no `{self._target}` kernel (kernels in build.toml: {has})"
            raise Refused(message, Cause.NO_BACKEND)
        return mine

    def _wanted(self, name: str, kernel: CpuKernel | CudaKernel) -> bool:
        """Whether this CUDA release builds it; kernel-builder leaves out others without a word."""
        minver = kernel.cuda_minver if isinstance(kernel, CudaKernel) else None
        if minver is None or self._cuda >= version_parts(minver):
            return True
        self._warnings.append(f"[kernel.{name}] is left out: it needs CUDA {minver}")
        return False

    def _cutlass(self, kernels: Mapping[str, CpuKernel | CudaKernel]) -> HeaderSet | None:
        """CUTLASS for the whole project, as in kernel-builder, which has one per CUDA build."""
        wanted = [(d, n) for n, k in kernels.items() for d in k.depends if d.startswith("cutlass_")]
        if self._target != "cuda" or not wanted:
            return None
        name, kernel = wanted[0]
        if len({dependency for dependency, _ in wanted}) > 1:
            self._warnings.append(f"kernels depend on several CUTLASS versions: {name} is used for all")
        found, note = choose_cutlass(name, self._found_cutlass)
        if found is None:
            raise Refused(f"[kernel.{kernel}] depends on {name}: {note}", Cause.NO_TOOLCHAIN)
        self._warnings += [note] if note else []
        return found

    def _all_capabilities(self, kernels: dict[str, CpuKernel | CudaKernel]) -> dict[str, tuple[str, ...]]:
        """Capabilities by kernel. At least one kernel must run on the H100; the others keep their own."""
        chosen: dict[str, tuple[str, ...]] = {}
        others: dict[str, tuple[str, ...]] = {}
        for name, kernel in kernels.items():
            wanted = kernel.cuda_capabilities if isinstance(kernel, CudaKernel) else ()
            for capability in wanted:
                if not _CAPABILITY.fullmatch(capability):
                    raise Refused(
                        f'cuda-capabilities of [kernel.{name}]: "{capability}" is no capability: write it as '
                        '"9.0", "9.0a" or "9.0+PTX"',
                        Cause.BAD_BUILD_TOML,
                    )
            if self._target == "cpu" or not wanted:
                chosen[name] = (H100,) if self._target == "cuda" else ()
            elif not (known := loose_intersection(wanted, supported(self._cuda))):
                message = f"[kernel.{name}]: this CUDA release knows none of {', '.join(wanted)}"
                raise Refused(message, Cause.BAD_BUILD_TOML)
            elif serving := loose_intersection(wanted, (H100,)):
                chosen[name] = serving
            else:
                # Compiled all the same: the binding may refer to its symbols.
                others[name] = known
                self._warnings.append(f"[kernel.{name}] is for {', '.join(wanted)}, not for sm_90")
        if not chosen:
            listed = ", ".join(sorted({c for capabilities in others.values() for c in capabilities}))
            raise Refused(
                f"no kernel of this project runs on sm_90: cuda-capabilities give {listed}; "
                f'add "{H100}" (or "{H100}a" for wgmma and setmaxnreg)',
                Cause.NO_BACKEND,
            )
        return chosen | others

    def _binding(self) -> None:
        torch = self._toml.torch
        assert torch is not None, "only [torch] projects are compiled"
        flags = self._screened(torch.cxx_flags, "cxx-flags of [torch]")
        self._add("[torch]", torch.src, torch.include, flags, (), ())
        if self._target == "cuda" and any(u.language == "cuda" for u in self._units.values()):
            self._warnings.append("a .cu file in [torch] src gets nvcc's default architecture: move it")

    def _screened(self, flags: Sequence[str], where: str, *, nvcc: bool = False) -> tuple[str, ...]:
        allowed = screen(flags, nvcc=nvcc)
        if allowed.refused is not None:
            raise Refused(f"{where}: {allowed.refused}", Cause.REFUSED_FLAG)
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
        for path in dict.fromkeys(sources):
            language = self._language(path, where)
            if language is None:
                continue
            # A file in two components: CMake appends options and keeps the last include list.
            before = self._units.get(path, Unit(source=path, language=language))
            cuda = language == "cuda"
            self._units[path] = Unit(
                source=path,
                language=language,
                include=tuple(include),
                flags=before.flags + (cuda_flags if cuda else cxx_flags),
                capabilities=tuple(dict.fromkeys(before.capabilities + capabilities)) if cuda else (),
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


def _version(capability: str) -> tuple[int, int]:
    major, minor = capability.rstrip("af").split(".")
    return int(major), int(minor)


def supported(cuda: tuple[int, int]) -> tuple[str, ...]:
    """The capabilities that kernel-builder builds for with this CUDA release."""
    if cuda >= (13, 0):
        return ("7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "11.0", "12.0", "12.1")
    if cuda >= (12, 8):
        return ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0", "10.0", "10.1", "12.0")
    return ("7.0", "7.2", "7.5", "8.0", "8.6", "8.7", "8.9", "9.0")


def loose_intersection(kernel: Sequence[str], targets: Sequence[str]) -> tuple[str, ...]:
    """The kernel's capabilities that serve one of `targets`, as kernel-builder's CMake computes them.

    "9.0a" takes the place of target 9.0; each other target gets the highest capability at or below it of
    the same major version, or of any version with +PTX (the driver compiles PTX further).
    """
    with_ptx = {c.removesuffix("+PTX") for c in kernel if c.endswith("+PTX")}
    bases = {c.removesuffix("+PTX") for c in kernel}
    chosen = {c for c in bases if c[-1] in "af" and c[:-1] in targets}
    plain = sorted((c for c in bases if c[-1] not in "af"), key=_version)
    for target in map(_version, set(targets) - {c[:-1] for c in chosen}):
        fits = [c for c in plain if _version(c) <= target and (c in with_ptx or _version(c)[0] == target[0])]
        chosen |= set(fits[-1:])
    ordered = sorted(chosen, key=lambda c: (_version(c), c))
    return tuple(f"{c}+PTX" if c in with_ptx else c for c in ordered)


def gencode(capabilities: Sequence[str]) -> tuple[str, ...]:
    """nvcc's flags: `9.0a` -> -gencode arch=compute_90a,code=sm_90a."""
    words: list[str] = []
    for capability in capabilities:
        number = capability.removesuffix("+PTX").replace(".", "")
        words += ["-gencode", f"arch=compute_{number},code=sm_{number}"]
        if capability.endswith("+PTX"):
            words += ["-gencode", f"arch=compute_{number},code=compute_{number}"]
    return tuple(words)
