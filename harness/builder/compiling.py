"""Compiles a layout: runs ninja in a sandbox and collects the shared library, or why there is none.

Only the sandbox's exit facts and a control build can make a failure ours. The tools' output may be written by
the project, so it chooses only among the student's causes and provides the words.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from harness.builder.cache import COMPILER_BYTES, CompilerSlots
from harness.builder.commands import library_path, ninja_file, object_path, system_directories
from harness.builder.diagnostics import diagnose, one_line
from harness.builder.layout import SOURCE, Layout
from harness.builder.tool_output import (
    NO_ERROR_LINE,
    TREE,
    Step,
    clean,
    failed_steps,
    missing_header,
    step_seconds,
    toolkit_gap,
)
from harness.builder.toolchain import Toolchain
from harness.builder.units import H100, Unit
from harness.builder.validate import GENERATED_HEADER
from harness.errors import HarnessBug, SandboxError
from harness.files import write_files
from harness.outcome import Cause
from harness.records import Diagnostic, DiagnosticKind, Finding
from sandboxes.job import ExitFacts, Job, Limits, Sandbox, killed_from_outside, raise_if_infra
from sandboxes.orphans import owned_folder
from sandboxes.scratch import CollectError

_LOG_LIMIT: Final = 1 << 20
# nixpkgs' value; __DATE__ and __TIME__ must not change the bytes.
_EPOCH: Final = "315532800"
_CONTROL_OUTPUT_SHOWN: Final = 600
_NVCC_STEPS: Final = "nvcc_steps.py"


@dataclass(frozen=True)
class Compiled:
    """What the compilers made, or why they made nothing."""

    libraries: Mapping[str, bytes]
    """Path in the variant -> contents."""
    finding: Finding | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    """First error of each file; empty if there is no finding."""
    output: str = ""
    compiler_s: float | None = None


def compile_layout(
    layout: Layout, toolchain: Toolchain, *, sandbox: Sandbox, limits: Limits, cache: Path
) -> Compiled:
    """Compile and link `layout`. Raises SandboxError and HarnessBug for failures that are ours.

    Waits for a compiler slot of this machine, kept in `cache`. `limits` are those of one compiler: memory
    and CPU time grow with the number of compilers.
    """
    units = layout.units.units
    # The host and device halves of nvcc run in parallel.
    useful = len(units) + any(unit.language == "cuda" for unit in units)
    with CompilerSlots(cache / "locks").taken(useful) as jobs:
        facts, files, problem = _run(layout, toolchain, jobs, sandbox, limits)
        # Ninja or a compiler may have been killed from outside.
        steps = failed_steps(facts.output, toolchain) if facts.status == "nonzero" else []
        if killed_from_outside(facts) or any(step.killed for step in steps):
            facts, files, problem = _run(layout, toolchain, jobs, sandbox, limits)
    library = files.get(Path(library_path(layout)).name)
    log = files.get(".ninja_log", b"")[:_LOG_LIMIT].decode(errors="replace")
    run = NinjaRun(facts, log, layout, toolchain, lambda: control_error(layout, toolchain, sandbox))
    finding = run.finding() or problem
    if finding is None and library is None:
        finding = Finding(cause=Cause.LINK_ERROR, message="the build left no shared library")
    made = {} if library is None or finding is not None else {f"{layout.ops_name}.abi3.so": library}
    return Compiled(
        made,
        finding,
        run.diagnostics(finding),
        output=clean(facts.output, toolchain),
        compiler_s=sum(step_seconds(log).values()) or None,
    )


def control_error(layout: Layout, toolchain: Toolchain, sandbox: Sandbox) -> str | None:
    """Build the control project in place of `layout`; why it failed, or None."""
    facts, _, _ = _run(control_layout(layout, toolchain), toolchain, 1, sandbox, CONTROL_LIMITS)
    if facts.status == "ok":
        return None
    output = clean(facts.output, toolchain).strip()[-_CONTROL_OUTPUT_SHOWN:]
    return f"it ended with {facts.status}: {output}"


class Ran(NamedTuple):
    facts: ExitFacts
    files: tuple[Path, ...]
    problem: str | None


def run_job(sandbox: Sandbox, job: Job, wanted: Sequence[str], folder: Path) -> Ran:
    """Run a job to its end and collect the `wanted` files into `folder`."""
    process = sandbox.start(job)
    try:
        facts = process.wait()
        if facts is None:
            raise HarnessBug("a sandbox's wait() without timeout returned before the end")
        try:
            files = tuple(process.collect(list(wanted), folder))
        except CollectError as error:
            return Ran(facts, (), str(error))
        return Ran(facts, files, None)
    finally:
        process.close()


def _run(
    layout: Layout, toolchain: Toolchain, jobs: int, sandbox: Sandbox, limits: Limits
) -> tuple[ExitFacts, Mapping[str, bytes], Finding | None]:
    """Run ninja once: exit facts, the library and ninja's log by name, and why they are missing."""
    with owned_folder("build") as name:
        tree = Path(name) / TREE
        write_files(layout.tree, tree)
        shutil.copyfile(Path(__file__).with_name(_NVCC_STEPS), tree / _NVCC_STEPS)
        # With a single slot, nothing may run in parallel to the host half of nvcc.
        driver = (str(toolchain.python), "-I", "-S", _NVCC_STEPS) if jobs > 1 else ()
        (tree / "build.ninja").write_text(ninja_file(layout, toolchain, driver=driver))
        wanted = [f"{TREE}/{library_path(layout)}", f"{TREE}/.ninja_log"]
        job = _job(tree, layout, toolchain, jobs, limits)
        ran = run_job(sandbox, job, wanted, Path(name) / "out")
        files = {path.name: path.read_bytes() for path in ran.files}
    problem = None if ran.problem is None else Finding(cause=Cause.BUILD_LIMIT, message=ran.problem)
    return ran.facts, files, problem


def _job(tree: Path, layout: Layout, toolchain: Toolchain, jobs: int, limits: Limits) -> Job:
    assert toolchain.ninja is not None and toolchain.gxx is not None
    if limits.cpu_s is None:
        limits = replace(limits, cpu_s=jobs * limits.wall_s)
    if limits.memory_bytes is not None:
        limits = replace(limits, memory_bytes=limits.memory_bytes + (jobs - 1) * COMPILER_BYTES)
    # -k 0: ninja continues after an error, because the first error of every file is wanted.
    argv = [str(toolchain.ninja), "-C", f"{{scratch}}/{TREE}", "-j", str(jobs), "-k", "0"]
    search = dict.fromkeys([str(toolchain.gxx.parent), "/usr/bin", "/bin"])
    return Job(
        role="build",
        argv=argv,
        limits=limits,
        inputs={TREE: tree},
        readable=toolchain.readable(layout.target),
        environment={
            "PATH": ":".join(search),
            "LC_ALL": "C",
            "NINJA_STATUS": "[%f/%t] ",
            "SOURCE_DATE_EPOCH": _EPOCH,
        },
    )


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
