"""Decides whose fault a failed build is: the project's (a Finding) or this machine's (a SandboxError).

Only the sandbox's exit facts and a control build can make a failure ours. The tools' output may be written by
the project, so it chooses only among the student's causes and provides the words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final

from harness.builder.check_project import GENERATED_HEADER
from harness.builder.commands import library_path, object_path, system_directories
from harness.builder.compiler_output import NO_ERROR_LINE, Step, failed_steps, missing_header, step_seconds
from harness.builder.diagnostics import diagnose, one_line
from harness.builder.layout import SOURCE, Layout
from harness.builder.toolchain import Toolchain
from harness.builder.translation_units import H100, Unit
from harness.errors import SandboxError
from harness.outcome import Cause
from harness.records import Diagnostic, DiagnosticKind, Finding
from sandboxes.job import ExitFacts, Limits, raise_if_infra

_NAMES_SHOWN: Final = 6
_LIMITS: Final[dict[str, tuple[Cause, DiagnosticKind, str]]] = {
    "wall_timeout": (Cause.BUILD_TIMEOUT, "timeout", "the build was stopped after {wall:.0f} s"),
    "cpu_timeout": (Cause.BUILD_TIMEOUT, "timeout", "the build used up its CPU time in {wall:.0f} s"),
    "oom": (Cause.BUILD_LIMIT, "out_of_memory", "the build went over its memory limit"),
    "disk_limit": (Cause.BUILD_LIMIT, "other", "the build went over its disk limit"),
    "output_limit": (Cause.BUILD_LIMIT, "other", "the build went over its output limit"),
    "signal": (Cause.BUILD_LIMIT, "other", "the build was killed by signal {signal}"),
}


def limit_finding(facts: ExitFacts) -> Finding | None:
    """The limit that stopped a build, if one did."""
    if facts.status not in _LIMITS:
        return None
    cause, _, text = _LIMITS[facts.status]
    return Finding(cause=cause, message=text.format(wall=facts.wall_s, signal=facts.signal))


@dataclass(frozen=True)
class NinjaRun:
    """One run of ninja that has ended."""

    facts: ExitFacts
    ninja_log: str
    """Untrusted, as is the output in `facts`."""
    layout: Layout
    toolchain: Toolchain
    control_error: Callable[[], str | None]
    """Runs the control build in the same sandbox; why it failed, or None."""

    def finding(self) -> Finding | None:
        """Why the build failed by the project's fault; None if it succeeded. Raises SandboxError for ours."""
        facts, limit = self.facts, limit_finding(self.facts)
        if facts.status == "ok":
            return None
        raise_if_infra(facts, "building")
        # A file that does not compile is the project's fault, whatever happened to the others.
        real = [s for s in self._failed if not s.hit_limit and not s.message.startswith(NO_ERROR_LINE)]
        if limit is not None and not real:
            return Finding(cause=limit.cause, message=self._limit_message)
        refuse_broken_machine(self.control_error())
        if not self._failed:
            # Warnings of other files can fill all of the output that is kept.
            output = f"{NO_ERROR_LINE}\n{facts.output[-500:].strip()}"
            return Finding(cause=Cause.COMPILE_ERROR, message=output)
        gaps = [self._gap(step.message) for step in self._failed]
        if all(gaps):
            message = f"this machine cannot build it: {gaps[0]}\n{self._failed[0].message}"
            return Finding(cause=Cause.NO_TOOLCHAIN, message=message)
        first = (real or self._failed)[0]
        cause = Cause.LINK_ERROR if first.linking else Cause.COMPILE_ERROR
        return Finding(cause=Cause.BUILD_LIMIT if first.hit_limit else cause, message=first.message)

    def diagnostics(self, finding: Finding | None) -> tuple[Diagnostic, ...]:
        """The first error of each file, and the limit that was reached; `finding` is this run's."""
        if finding is None:
            return ()
        mark = f"{SOURCE}/"
        files = {p.removeprefix(mark): t for p, t in self.layout.tree.items() if p.startswith(mark)}
        files.pop(GENERATED_HEADER, None)  # errors in its macros belong to the code that uses them
        found = diagnose(self._failed, files, self._sources)
        if self.facts.status in _LIMITS:
            kind = _LIMITS[self.facts.status][1]
            file = self._unfinished[0] if len(self._unfinished) == 1 else None
            found = (*found, Diagnostic(kind=kind, message=one_line(self._limit_message), file=file))
        if not found:
            kind = "linker" if finding.cause is Cause.LINK_ERROR else "other"
            found = (Diagnostic(kind=kind, message=one_line(finding.message)),)
        return found

    @cached_property
    def _sources(self) -> Mapping[str, str]:
        return {object_path(unit): unit.source for unit in self.layout.units.units}

    @cached_property
    def _failed(self) -> list[Step]:
        """In link order, so that the first does not depend on which compiler was faster."""
        order = [*self._sources, library_path(self.layout)]
        return failed_steps(self.facts.output, self.toolchain, order)

    @cached_property
    def _unfinished(self) -> tuple[str, ...]:
        """Files whose step neither succeeded nor failed for a reason of its own."""
        failed = {step.output for step in self._failed if not step.hit_limit}
        ended = failed | step_seconds(self.ninja_log).keys()
        return tuple(source for output, source in self._sources.items() if output not in ended)

    @cached_property
    def _limit_message(self) -> str:
        limit = limit_finding(self.facts)
        assert limit is not None
        text = limit.message
        if not self._unfinished:
            return f"{text}; every file had been compiled"
        more = len(self._unfinished) - _NAMES_SHOWN
        names = ", ".join(self._unfinished[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
        return f"{text}; not finished: {names}"

    def _gap(self, message: str) -> str | None:
        """What the failed step needs and this machine's CUDA installation lacks."""
        gap = toolkit_gap(message, self.toolchain) if self.layout.target == "cuda" else None
        header = missing_header(message)
        if gap is None or header is None:
            return gap
        # Looked up on the machine, because the project can imitate any message.
        places = header_folders(self.layout, self.toolchain)
        return None if any((place / header).is_file() for place in places) else gap


def header_folders(layout: Layout, toolchain: Toolchain) -> list[Path]:
    """The toolchain's folders of headers, as paths outside of the sandbox."""
    found = (Path(place) for place in system_directories(layout, toolchain))
    return [toolchain.local(place) for place in found if place.is_absolute()]  # the others are the tree's


def refuse_broken_machine(control_error: str | None) -> None:
    if control_error is not None:
        raise SandboxError(f"this machine does not build a project of our own either: {control_error}")


# Headers of a CUDA toolkit and of torch's CUDA build that a bare compiler lacks, by exact name (CUDA 13.0,
# torch 2.13): a header that does not exist anywhere is the project's fault.
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


def toolkit_gap(message: str, toolchain: Toolchain) -> str | None:
    """What this machine's CUDA installation lacks for the project, if `message` is about that."""
    header = missing_header(message)
    if header is not None:
        gap = f"its CUDA has no {header}: run `liftbench headers cuda`"
        return gap if _TOOLKIT_HEADER.fullmatch(header) else None
    name = _STUBBED_NAME.search(message.partition("\n")[0])
    if name is not None and any(stub.startswith(name[1]) for stub in toolchain.stubs):
        return f"its CUDA has no declarations of {name[1]}: run `liftbench headers cuda`"
    return None


CONTROL_LIMITS: Final = Limits(wall_s=300.0, cpu_s=60.0, memory_bytes=4 << 30)
_NAME: Final = "liftbench_control"
_PLAIN: Final = re.compile(r"[\w.+/-]+")


def control_layout(layout: Layout, toolchain: Toolchain) -> Layout:
    """Our own project to build in place of `layout`: a file for g++, and one for nvcc if `layout` has any.

    It contains nothing of the project: no sources, names, flags or architectures. It includes a header
    of every folder of the toolchain, so that a folder that the sandbox hides is noticed.
    """
    headers = "".join(
        f'#if !__has_include(<{header}>)\n#error "{header} is there but not seen"\n#endif\n'
        for place in header_folders(layout, toolchain)
        for header in _first_headers(place)
    )
    units = [Unit(source=f"{_NAME}.cpp", language="cxx")]
    files = {f"{_NAME}.cpp": headers + 'extern "C" int liftbench_control() { return 0; }\n'}
    if any(unit.language == "cuda" for unit in layout.units.units):
        units.append(Unit(source=f"{_NAME}.cu", language="cuda", capabilities=(H100,)))
        files[f"{_NAME}.cu"] = "__global__ void liftbench_control_kernel() {}\n"
    return layout.model_copy(
        update={
            "module": _NAME,
            "ops_name": _NAME,
            "stable_abi": None,
            "units": layout.units.model_copy(update={"units": tuple(units)}),
            "tree": {f"{SOURCE}/{path}": text for path, text in files.items()},
            "package": {},
        }
    )


def _first_headers(root: Path) -> Iterator[str]:
    """The first header of a folder and of each folder in it."""
    for folder in (root, *sorted(path for path in root.glob("*/"))):
        headers = (path.relative_to(root).as_posix() for path in sorted(folder.glob("*.h")))
        yield from islice(filter(_PLAIN.fullmatch, headers), 1)
