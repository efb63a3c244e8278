"""Compiles a layout: runs ninja in a sandbox and collects the shared library, or why there is none."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from harness.builder.blame import CONTROL_LIMITS, NinjaRun, control_layout
from harness.builder.commands import library_path, ninja_file
from harness.builder.compiler_output import TREE, clean, failed_steps, step_seconds
from harness.builder.compiler_slots import COMPILER_BYTES, CompilerSlots
from harness.builder.layout import Layout
from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug
from harness.files import write_files
from harness.outcome import Cause
from harness.records import Diagnostic, Finding
from sandboxes.job import ExitFacts, Job, Limits, Sandbox, killed_from_outside
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
    ptx: Mapping[str, bytes] = field(default_factory=dict)
    """Source path -> PTX of its kernels, for the emulated GPU."""


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
    library = files.get(library_path(layout))
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
        ptx={} if finding is not None else _ptx(files),
    )


def _ptx(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What nvcc's --keep left beside the objects."""
    found = {path: contents for path, contents in files.items() if path.endswith(".ptx")}
    return {PurePosixPath(path).parent.relative_to("obj").as_posix(): found[path] for path in found}


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
    """Run ninja once: exit facts, what it made by path in the build tree, and why that is missing."""
    with owned_folder("build") as name:
        tree = Path(name) / TREE
        write_files(layout.tree, tree)
        shutil.copyfile(Path(__file__).with_name(_NVCC_STEPS), tree / _NVCC_STEPS)
        # With a single slot, nothing may run in parallel to the host half of nvcc.
        driver = (str(toolchain.python), "-I", "-S", _NVCC_STEPS) if jobs > 1 else ()
        (tree / "build.ninja").write_text(ninja_file(layout, toolchain, driver=driver))
        wanted = [f"{TREE}/{library_path(layout)}", f"{TREE}/.ninja_log", f"{TREE}/obj/*.ptx"]
        job = _job(tree, layout, toolchain, jobs, limits)
        ran = run_job(sandbox, job, wanted, Path(name) / "out")
        made = Path(name) / "out" / TREE
        files = {path.relative_to(made).as_posix(): path.read_bytes() for path in ran.files}
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
