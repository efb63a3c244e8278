"""Libraries that a universal package compiles when it is imported, with torch's load_inline and load.

The package is imported once in the sandbox. A package that does not name cpp_extension is not imported, and
the libraries are loaded only by a worker.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from harness.builder.blame import CONTROL_LIMITS, limit_finding, refuse_broken_machine
from harness.builder.compiler_output import without_folder
from harness.builder.layout import Layout
from harness.builder.run_ninja import Compiled, control_error, run_job
from harness.builder.toolchain import Toolchain
from harness.files import write_files
from harness.outcome import Cause
from harness.records import Finding
from sandboxes.job import ExitFacts, Job, Limits, Sandbox, killed_from_outside, raise_if_infra
from sandboxes.orphans import owned_folder

FOLDER = "_inline"
"""Folder of the libraries in the package."""
_ASKS = re.compile(r"\bload_inline\b|\bcpp_extension\b")
_SCRIPT = Path(__file__).with_name("load_inline_job.py")
_OUT = "libraries"
_SAID_CHARS = 2000
_SCRATCH = "/scratch/extensions/"
_CONTROL = "liftbench_control"
_JOBS: Final = 2
_ERROR = re.compile(r"\berror\b", re.IGNORECASE)
_ARCHITECTURES = "9.0 9.0a"


def compiles_inline(layout: Layout) -> bool:
    """Whether a Python file of the package names load_inline or cpp_extension."""
    return any(path.endswith(".py") and _ASKS.search(text) for path, text in layout.package.items())


def inline_libraries(layout: Layout, toolchain: Toolchain, *, sandbox: Sandbox, limits: Limits) -> Compiled:
    """Import the package once and collect the libraries. Raises SandboxError and HarnessBug.

    CUDA sources need a CUDA build of torch to link with.
    """
    missing = toolchain.missing(layout.target)
    if layout.target == "cuda" and toolchain.torch_cuda is None:
        missing = (
            f"load_inline builds against torch {toolchain.torch_version}, which is CPU-only: install a CUDA "
            "build of torch to compile CUDA sources inline"
        )
    if missing is not None:
        return Compiled({}, Finding(cause=Cause.NO_TOOLCHAIN, message=missing))
    package = {f"{layout.module}/{path}": text for path, text in layout.package.items()}
    facts, inlined = _imported(package, layout, toolchain, sandbox, limits)
    if killed_from_outside(facts):
        facts, inlined = _imported(package, layout, toolchain, sandbox, limits)
    raise_if_infra(facts, "importing a package that compiles inline")
    if facts.status == "nonzero":
        refuse_broken_machine(control_error(layout, toolchain, sandbox))
        ours = layout.model_copy(update={"module": _CONTROL})
        facts, _ = _imported({f"{_CONTROL}/__init__.py": ""}, ours, toolchain, sandbox, CONTROL_LIMITS)
        if facts.status != "ok":
            refuse_broken_machine(f"an empty package cannot be imported: {facts.output[-500:]}")
    return inlined


def _imported(
    package: Mapping[str, str], layout: Layout, toolchain: Toolchain, sandbox: Sandbox, limits: Limits
) -> tuple[ExitFacts, Compiled]:
    """Import once: exit facts and result."""
    with owned_folder("inline") as name:
        folder = Path(name)
        write_files(package, folder / "package")
        job = _job(folder / "package", layout, toolchain, limits)
        ran = run_job(sandbox, job, [f"{_OUT}/*.so"], folder / "out")
        facts = ran.facts
        if facts.status != "ok":
            return facts, Compiled({}, _finding(facts), output=facts.output)
        if ran.problem is not None:
            finding = Finding(cause=Cause.BUILD_LIMIT, message=ran.problem)
            return facts, Compiled({}, finding, output=facts.output)
        files = {f"{FOLDER}/{path.name}": path.read_bytes() for path in ran.files}
        return facts, Compiled(files, output=facts.output)


def _finding(facts: ExitFacts) -> Finding:
    limit = limit_finding(facts)
    if limit is not None:
        late = ", took too long" if limit.cause is Cause.BUILD_TIMEOUT else ""
        what = f"importing it, which compiles inline{late}: {limit.message}"
        return Finding(cause=limit.cause, message=what)
    said = _errors(facts.output)[:_SAID_CHARS]
    return Finding(cause=Cause.COMPILE_ERROR, message=f"compiled inline: {said}")


def _errors(output: str) -> str:
    """The compilers' output from the first error on, without the folder that they ran in."""
    lines = without_folder(output, _SCRATCH).splitlines()
    first = next((i for i, line in enumerate(lines) if _ERROR.search(line)), None)
    if first is None:
        return lines[-1] if lines else "it failed and printed nothing"
    last = next((i for i, line in enumerate(lines[first:], first) if line.startswith("ninja:")), len(lines))
    return "\n".join(lines[first:last])


def _job(package: Path, layout: Layout, toolchain: Toolchain, limits: Limits) -> Job:
    assert toolchain.torch_root is not None and toolchain.ninja is not None and toolchain.gxx is not None
    site = toolchain.torch_root.parent
    search = [str(toolchain.ninja.parent), str(toolchain.gxx.parent), "/usr/bin", "/bin"]
    environment = {
        "LC_ALL": "C",
        "CXX": str(toolchain.gxx),
        "TORCH_EXTENSIONS_DIR": "{scratch}/extensions",
        "TORCH_CUDA_ARCH_LIST": _ARCHITECTURES,
        "MAX_JOBS": str(_JOBS),
        "OMP_NUM_THREADS": "1",
    }
    if layout.target == "cuda" and toolchain.cuda is not None:
        environment["CUDA_HOME"] = str(toolchain.cuda.root)
        search.insert(0, str(toolchain.cuda.nvcc.parent))
    words = ["{scratch}/package", layout.module, f"{{scratch}}/{_OUT}", str(site)]
    if limits.cpu_s is None:
        limits = replace(limits, cpu_s=_JOBS * limits.wall_s)
    return Job(
        role="build",
        argv=[str(toolchain.python), "-I", "-S", "{scratch}/import.py", *words],
        limits=limits,
        inputs={"package": package, "import.py": _SCRIPT},
        readable=[*toolchain.readable(layout.target), *([] if toolchain.in_image else [site])],
        environment={**environment, "PATH": ":".join(dict.fromkeys(search))},
    )
