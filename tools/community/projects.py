"""Published projects, pinned: each is built for sm_90, and its functions run on the emulated GPU."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from harness.builder.build import Built, build
from harness.builder.run_ninja import run_job
from harness.builder.toolchain import Toolchain
from harness.device.emulated.engine import REPORT, Engine, Prepared, Refused
from harness.device.emulated.kernels import read_index
from harness.grading.emulation import Report, outcome_of, parse_report
from harness.records.grade import EmulatedOutcome
from harness.suite.catalogue import read_project
from sandboxes.job import ExitFacts, Job, Limits, Sandbox, raise_if_infra
from sandboxes.orphans import owned_folder

VARIABLE: Final = "LIFTBENCH_COMMUNITY"
"""Names a folder with the projects: github.com/huggingface/kernels-community at COMMIT."""
COMMIT: Final = "40d4194f48b6775c4be4776ed08035fabb0e758f"
PINNED: Final = {
    "activation": "2998475a065ebb126234dca3733cc98adc40d61b8866ce34d3fc794a88182e90",
    "causal-conv1d": "38066dd69bc3dae7f5bd26875da7082e884b1bcdfdf96f0ae0eeb458dff33e11",
    "cv-utils": "387d7cd9297130ae67257e4a61b8fa66ecf6a2ef2891fe9740acf28d3b96d413",
    "deformable-detr": "9d9ff918a8777767f2a6eb153d136f1497c641beed78542031713e5f0206d62e",
    "mra": "c5864c67b6a3dd7b51b75a1e8369b28734cc9dbb469630b7f5b22c26f01bced3",
    "relu": "4db07939f59fb47f787990ddfd4377ed520a7d39e0f38f898d9035962bc5f29d",
    "rotary": "83cf9a6b2fb07da27a67724cde55bc37e5458525040f83bf7a494a7a8374212e",
    "rwkv": "efc3f10c88314d06709b25605f13691fd3999067801372042d856a156068da75",
    "yoso": "fd65ff75f5eacb55b806e95c6590041a9cd873f6334f06caac842f9e87d3e2cd",
}
"""Digests of the projects' files, as records have them."""
_PACKAGE: Final = "tools/community"
_HERE: Final = Path(__file__).parent
_BUILD_S: Final = 1800.0
_ROUNDS: Final = 5
_LIMITS: Final = Limits(wall_s=900.0, memory_bytes=4 << 30)
Outcome = Literal["raised", "build_failed"] | EmulatedOutcome
"""`raised`: Python did, in a call."""


@dataclass(frozen=True)
class Seen:
    """What became of a project."""

    outcome: Outcome
    message: str = ""
    """Why not `correct`."""
    abi: str = ""
    kernels: int = 0
    """That the calls launch."""
    calls: int = 0
    largest_error: float | None = None
    """Relative to the larger of 1 and the value."""
    build_s: float = 0.0
    """Of the compilers; also where the build came from the cache."""
    prepare_s: float = 0.0
    """Translating and compiling its kernels; little where they came from the cache."""
    run_s: float = 0.0


def absent(name: str, folder: str | None) -> str | None:
    """Why project `name` cannot be taken from `folder`; None if it is there as pinned. Raises UsageError."""
    if not folder:
        return f"{VARIABLE} does not name a folder with {name}"
    place = Path(folder) / name
    if not (place / "build.toml").is_file():
        return f"{place} is no project"
    digest = read_project(place).digest
    return (
        None if digest == PINNED[name] else f"{place} is not {name} at {COMMIT[:12]}: its digest is {digest}"
    )


def run(name: str, folder: Path, sandbox: Sandbox, toolchain: Toolchain, cache: Path) -> Seen:
    """Builds project `name` of `folder` and calls it on the emulated GPU. Raises InfraError.

    `cache`: liftbench's, with builds and compiled kernels.
    """
    project = read_project(folder / name)
    built = build(
        project, "cuda", sandbox=sandbox, toolchain=toolchain, cache=cache / "builds", wall_s=_BUILD_S
    )
    if built.package is None or built.ptx is None:
        finding = built.result.finding
        return Seen("build_failed", "no PTX" if finding is None else f"{finding.cause}: {finding.message}")
    try:
        return _emulated(name, built, built.ptx, Engine(cache / "emulated", sandbox, toolchain))
    except Refused as error:
        return Seen("cannot_emulate", str(error))


def _emulated(name: str, built: Built, ptx: Path, engine: Engine) -> Seen:
    """Its calls, repeated until every kernel that they launch is compiled. Raises Refused, InfraError."""
    assert built.package is not None
    (library,) = built.package.glob("*.abi3.so")
    launched, prepare_s = frozenset[str](), 0.0
    abi = "stable" if "stable-abi" in built.package.name else "ordinary"
    for _ in range(_ROUNDS):
        start = time.monotonic()
        prepared = engine.prepare(library, ptx, built.result.key, launched)
        ready = time.monotonic()
        facts, report = _run(name, built.package, prepared, engine)
        prepare_s += ready - start
        launched = report.launched & prepared.missing
        if not launched:
            index = read_index(prepared.inputs["kernels"])
            kernels = sum(one.startswith("kernel ") for module in index.values() for one in module.values())
            build_s, run_s = built.result.compiler_s or 0.0, time.monotonic() - ready
            seen = Seen("correct", "", abi, kernels, build_s=build_s, prepare_s=prepare_s, run_s=run_s)
            return _judged(seen, facts, report)
    raise Refused("it launches other kernels in every run")


def _run(name: str, package: Path, prepared: Prepared, engine: Engine) -> tuple[ExitFacts, Report]:
    chain = engine.toolchain
    assert chain.torch_root is not None
    site = chain.torch_root.parent
    words = (name, "{scratch}/package", str(site))
    job = Job(
        role="run",
        argv=[str(chain.python), "-I", "-S", f"{{scratch}}/{_PACKAGE}/call.py", *words],
        limits=_LIMITS,
        inputs={_PACKAGE: _HERE, "package": package, **prepared.inputs},
        readable=[site],
        environment=prepared.environment,
    )
    with owned_folder("community") as scratch:
        ran = run_job(engine.sandbox, job, [REPORT], Path(scratch))
        raise_if_infra(ran.facts, f"running {name} on the emulated GPU")
        return ran.facts, parse_report(b"".join(path.read_bytes() for path in ran.files))


def _judged(seen: Seen, facts: ExitFacts, report: Report) -> Seen:
    """The first finding of the emulated GPU, else what the process printed, else how it ended."""
    told = facts.output.strip().splitlines()[-1:] if facts.status == "ok" else []
    found = json.loads(told[0]) if told else {}
    seen = replace(seen, calls=found.get("calls", 0), largest_error=found.get("largest_error"))
    if report.first is not None:
        outcome, message = outcome_of(None, report.first)
        return replace(seen, outcome=outcome, message=message)
    if not found:
        return replace(seen, outcome="crashed", message=f"{facts.status}: {facts.output.strip()[-600:]}")
    if found["raised"]:
        return replace(seen, outcome="raised", message=found["raised"])
    if found["wrong"]:
        return replace(seen, outcome="wrong_result", message="; ".join(found["wrong"]))
    return seen
