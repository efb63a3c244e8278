"""Runs ninja on a layout inside a sandbox and says what happened.

Owns: the build tree on disk and the sandbox job. Does not own: whose fault a failed run is (blame.py),
caches (objects.py, precompiled.py), records (build.py).
Invariant: an object is kept only when ninja saw its compiler succeed and no limit stopped the run.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.builder.failure.blame import Run
from harness.builder.failure.log import TREE, clean, compiler_seconds, finished_outputs
from harness.builder.flags import library_path, object_path, system_directories
from harness.builder.layout import Layout
from harness.builder.ninja_file import ninja_file
from harness.builder.reuse.objects import Object, ObjectStore, object_keys
from harness.builder.reuse.precompiled import PrecompiledHeaders
from harness.builder.slots import COMPILER_BYTES, CompileSlots
from harness.builder.toolchain import Toolchain
from harness.errors import HarnessBug
from harness.outcome import Cause
from harness.records import Diagnostic, Finding
from sandboxes.job import ExitFacts, Job, Limits, Process, Sandbox
from sandboxes.owners import owned_folder
from sandboxes.scratch import CollectError

_LOG_LIMIT: Final = 1 << 20
# nixpkgs' value: __DATE__ and __TIME__ must not change the bytes.
_EPOCH: Final = "315532800"
_PROBE_WALL_S: Final = 30.0
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
    """Compile and link `layout`, with the objects that `cache` has; those made now are kept there.

    Waits for others who make one of these objects, and for a free compile slot of this machine. `limits`
    are those of one compiler at a time: memory grows with their number. Raises SandboxError and
    HarnessBug for what is not the project's.
    """
    store = ObjectStore(cache)
    keys = object_keys(layout, toolchain)
    with ExitStack() as held:
        ready = held.enter_context(store.claimed(keys))
        missing = [unit for unit in layout.units.units if object_path(unit) not in ready]
        # nvcc's two halves run side by side.
        useful = len(missing) + any(unit.language == "cuda" for unit in missing)
        jobs = held.enter_context(CompileSlots(cache / "locks").taken(useful))
        headers = PrecompiledHeaders(cache, toolchain, sandbox)
        found = ((object_path(unit), headers.directory(unit, layout)) for unit in missing)
        precompiled = {path: place for path, place in found if place is not None}
        plan = _Plan(layout, toolchain, ready, precompiled, jobs)
        with owned_folder("build") as name:
            ran = _run(plan, sandbox, limits, Path(name))
        for path, (compiled, log) in ran.objects.items():
            store.store(keys[path], compiled, log)
    return _judged(plan, ran, sandbox)


@dataclass(frozen=True)
class _Plan:
    """What one run of ninja is to do."""

    layout: Layout
    toolchain: Toolchain
    ready: Mapping[str, Object]
    precompiled: Mapping[str, Path]
    jobs: int

    @property
    def ninja(self) -> str:
        # With one slot there is nothing to run beside the host's half of nvcc.
        driver = (str(self.toolchain.python), "-I", "-S", _NVCC_STEPS) if self.jobs > 1 else ()
        return ninja_file(
            self.layout, self.toolchain, ready=self.ready, precompiled=self.precompiled, driver=driver
        )


@dataclass(frozen=True)
class _Ran:
    """What one run of ninja left; everything but `facts` is untrusted."""

    facts: ExitFacts
    files: Mapping[str, bytes]
    """The library and ninja's log, by name."""
    problem: Finding | None
    objects: Mapping[str, tuple[bytes, bytes]]
    """Made now: path -> object, what its compiler printed."""


def _run(plan: _Plan, sandbox: Sandbox, limits: Limits, folder: Path) -> _Ran:
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
        finished = finished_outputs(_text(files.get(".ninja_log", b"")))
        # What a limit stopped may be half an object.
        whole = finished if facts.status in {"ok", "nonzero"} else frozenset()
        objects = _objects(process, plan, whole, folder)
    finally:
        process.close()
    return _Ran(facts, files, problem, objects)


def _objects(
    process: Process, plan: _Plan, finished: frozenset[str], folder: Path
) -> dict[str, tuple[bytes, bytes]]:
    """The new objects; one that is too large to be handed out is not shared, which is all."""
    made = [object_path(unit) for unit in plan.layout.units.units]
    found: dict[str, tuple[bytes, bytes]] = {}
    for path in made:
        if path in plan.ready or path not in finished:
            continue
        with suppress(CollectError):
            process.collect([f"{TREE}/{path}", f"{TREE}/{path}.log"], folder / "objects")
        place = folder / "objects" / TREE / path
        log = place.with_name(f"{place.name}.log")
        if place.is_file() and log.is_file():
            found[path] = place.read_bytes(), log.read_bytes()
    return found


def _judged(plan: _Plan, ran: _Ran, sandbox: Sandbox) -> Compiled:
    """What became of the build."""
    layout, toolchain = plan.layout, plan.toolchain
    library = ran.files.get(Path(library_path(layout)).name)
    log = _text(ran.files.get(".ninja_log", b""))
    output = ran.facts.output
    for place in plan.precompiled.values():
        output = output.replace(f"{place}/", "")
    run = Run(
        replace(ran.facts, output=output),
        log,
        layout,
        toolchain,
        lambda header: _sees(header, layout, toolchain, sandbox),
        frozenset(plan.ready),
    )
    finding = ran.problem or run.finding()
    if finding is None and library is None:
        finding = Finding(cause=Cause.LINK_ERROR, message="the build left no shared library")
    earlier = "".join(f"[ready] {path}\n{found.log}" for path, found in plan.ready.items())
    return Compiled(
        finding=finding,
        diagnostics=run.diagnostics(finding),
        library=None if finding is not None else library,
        output=clean(earlier + output, toolchain),
        compiler_s=compiler_seconds(log),
        ninja=plan.ninja,
    )


def _text(log: bytes) -> str:
    return log[:_LOG_LIMIT].decode(errors="replace")


def _write_tree(tree: Path, plan: _Plan) -> None:
    for file in plan.layout.tree:
        target = tree / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(file.text)
    for path, found in plan.ready.items():
        (tree / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found.path, tree / path)
    shutil.copyfile(Path(__file__).with_name(_NVCC_STEPS), tree / _NVCC_STEPS)
    (tree / "build.ninja").write_text(plan.ninja)


def _job(tree: Path, plan: _Plan, limits: Limits) -> Job:
    layout, toolchain, jobs = plan.layout, plan.toolchain, plan.jobs
    assert toolchain.ninja is not None and toolchain.gxx is not None
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
        readable=[*toolchain.readable(layout.target), *plan.precompiled.values()],
        environment={
            "PATH": ":".join(search),
            "LC_ALL": "C",
            "NINJA_STATUS": "[%f/%t] ",
            "SOURCE_DATE_EPOCH": _EPOCH,
        },
    )


# --- asked when a header was not found --------------------------------------------------------


def _sees(header: str, layout: Layout, toolchain: Toolchain, sandbox: Sandbox) -> bool:
    """Whether g++ in `sandbox` finds a header of the toolchain's."""
    with owned_folder("build") as name:
        probe = Path(name) / "probe.cpp"
        probe.write_text(f"#if !__has_include(<{header}>)\n#error hidden\n#endif\n")
        words = [word for place in system_directories(layout, toolchain) for word in ("-isystem", place)]
        process = sandbox.start(
            Job(
                role="build",
                argv=[str(toolchain.gxx), "-E", *words, "{scratch}/probe.cpp", "-o", "/dev/null"],
                limits=Limits(wall_s=_PROBE_WALL_S, memory_bytes=1 << 30),
                inputs={"probe.cpp": probe},
                readable=toolchain.readable(layout.target),
                environment={"LC_ALL": "C"},
            )
        )
        try:
            facts = process.wait()
        finally:
            process.close()
    return facts is not None and facts.status == "ok"
