"""Runs ninja on a layout inside a sandbox and says what happened.

Every object is compiled from its own project: nothing of another build is in the tree.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.builder.control import CONTROL_LIMITS, control_layout
from harness.builder.failure.blame import Run
from harness.builder.failure.log import TREE, clean, compiler_seconds, failed_steps
from harness.builder.flags import library_path
from harness.builder.layout import Layout
from harness.builder.ninja_file import ninja_file
from harness.builder.slots import COMPILER_BYTES, CompileSlots
from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug
from harness.outcome import Cause
from harness.records import Diagnostic, Finding
from sandboxes.job import ExitFacts, Job, Limits, Sandbox, killed_from_outside
from sandboxes.orphans import owned_folder
from sandboxes.scratch import CollectError

_LOG_LIMIT: Final = 1 << 20
# nixpkgs' value: __DATE__ and __TIME__ must not change the bytes.
_EPOCH: Final = "315532800"
_TROUBLE_SHOWN: Final = 600
_NVCC_STEPS: Final = "nvcc_steps.py"
"""Name of that module, beside this one and in the build tree."""


@dataclass(frozen=True)
class Compiled:
    """What came out of one run of ninja."""

    finding: Finding | None
    diagnostics: tuple[Diagnostic, ...]
    """First error of each file; empty exactly when there is no finding."""
    library: bytes | None
    """The shared library; None exactly when there is a finding."""
    output: str
    """What ninja and the compilers printed, cleaned."""
    compiler_s: float | None
    ninja: str
    """The build.ninja that ran."""


def compile_layout(
    layout: Layout, toolchain: Toolchain, *, sandbox: Sandbox, limits: Limits, cache: Path
) -> Compiled:
    """Compile and link `layout`.

    Waits for a free compile slot of this machine, counted in `cache`. `limits` are those of one compiler at
    a time: memory grows with their number. Raises SandboxError and HarnessBug for what is not the project's.
    """
    units = layout.units.units
    # nvcc's two halves run side by side.
    useful = len(units) + any(unit.language == "cuda" for unit in units)
    with CompileSlots(cache / "locks").taken(useful) as jobs:
        plan = _Plan(layout, toolchain, jobs)
        ran = _run(plan, sandbox, limits)
        if _perhaps_killed(ran.facts, toolchain):
            ran = _run(plan, sandbox, limits)
    return _judged(plan, ran, sandbox)


@dataclass(frozen=True)
class _Plan:
    """What one run of ninja is to do."""

    layout: Layout
    toolchain: Toolchain
    jobs: int

    @property
    def ninja(self) -> str:
        # With one slot there is nothing to run beside the host's half of nvcc.
        driver = (str(self.toolchain.python), "-I", "-S", _NVCC_STEPS) if self.jobs > 1 else ()
        return ninja_file(self.layout, self.toolchain, driver=driver)


@dataclass(frozen=True)
class _Ran:
    """What one run of ninja left; everything but `facts` is untrusted."""

    facts: ExitFacts
    files: Mapping[str, bytes]
    """The library and ninja's log, by name."""
    problem: Finding | None


def _perhaps_killed(facts: ExitFacts, toolchain: Toolchain) -> bool:
    """Whether ninja or a compiler may have been killed from outside: then it is run once more."""
    if facts.status == "nonzero":
        return any(step.killed for step in failed_steps(facts.output, toolchain))
    return killed_from_outside(facts)


def _run(plan: _Plan, sandbox: Sandbox, limits: Limits) -> _Ran:
    with owned_folder("build") as name:
        return _run_in(Path(name), plan, sandbox, limits)


def _run_in(folder: Path, plan: _Plan, sandbox: Sandbox, limits: Limits) -> _Ran:
    tree = folder / TREE
    _write_tree(tree, plan)
    process = sandbox.start(_job(tree, plan, limits))
    try:
        facts = process.wait()
        if facts is None:
            raise HarnessBug("a sandbox's wait() without timeout returned before the end")
        files, problem = {}, None
        try:
            wanted = [f"{TREE}/{library_path(plan.layout)}", f"{TREE}/.ninja_log"]
            for path in process.collect(wanted, folder / "out"):
                files[path.name] = path.read_bytes()
        except CollectError as error:
            problem = Finding(cause=Cause.BUILD_LIMIT, message=str(error))
    finally:
        process.close()
    return _Ran(facts, files, problem)


def _judged(plan: _Plan, ran: _Ran, sandbox: Sandbox) -> Compiled:
    """What became of the build."""
    layout, toolchain = plan.layout, plan.toolchain
    library = ran.files.get(Path(library_path(layout)).name)
    log = _text(ran.files.get(".ninja_log", b""))
    run = Run(ran.facts, log, layout, toolchain, lambda: machine_trouble(layout, toolchain, sandbox))
    finding = run.finding() or ran.problem
    if finding is None and library is None:
        finding = Finding(cause=Cause.LINK_ERROR, message="the build left no shared library")
    return Compiled(
        finding=finding,
        diagnostics=run.diagnostics(finding),
        library=None if finding is not None else library,
        output=clean(ran.facts.output, toolchain),
        compiler_s=compiler_seconds(log),
        ninja=plan.ninja,
    )


def machine_trouble(layout: Layout, toolchain: Toolchain, sandbox: Sandbox) -> str | None:
    """Why the control fails, which holds nothing of the project; None where it is built."""
    facts = _run(_Plan(control_layout(layout, toolchain), toolchain, 1), sandbox, CONTROL_LIMITS).facts
    if facts.status == "ok":
        return None
    return f"it ended with {facts.status}: {clean(facts.output, toolchain).strip()[-_TROUBLE_SHOWN:]}"


def _text(log: bytes) -> str:
    return log[:_LOG_LIMIT].decode(errors="replace")


def _write_tree(tree: Path, plan: _Plan) -> None:
    for file in plan.layout.tree:
        target = tree / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text)
    shutil.copyfile(Path(__file__).with_name(_NVCC_STEPS), tree / _NVCC_STEPS)
    (tree / "build.ninja").write_text(plan.ninja)


def _job(tree: Path, plan: _Plan, limits: Limits) -> Job:
    layout, toolchain, jobs = plan.layout, plan.toolchain, plan.jobs
    assert toolchain.ninja is not None and toolchain.gxx is not None
    if limits.cpu_s is None:  # what runs beside that many compilers is the project's own doing
        limits = replace(limits, cpu_s=jobs * limits.wall_s)
    if limits.memory_bytes is not None:
        limits = replace(limits, memory_bytes=limits.memory_bytes + (jobs - 1) * COMPILER_BYTES)
    # It keeps going: the first error of every file is wanted.
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
