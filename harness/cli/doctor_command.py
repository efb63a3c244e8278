"""`liftbench doctor`: what this machine has, and what that allows.

Keys are said to be present or absent; their values are never read further.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table

from harness.builder.toolchain import CUDA_EXTRA, Toolchain, find_toolchain
from harness.cli.promise_table import SandboxState, probe_all, promise_table
from harness.device.machine import machine_facts
from harness.records import MachineFacts, Record
from harness.records.timing import Calibration

_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LIFTBENCH_API_KEY")
_PACKAGES = {
    "torch": "pip install torch: needed to build, check and time",
    "kernels": "pip install kernels: without it our own rules judge build.toml",
    "ninja": "pip install ninja: not needed where ninja is on PATH",
    "openai": "pip install openai: needed for openai/ models and --base-url",
    "anthropic": "pip install anthropic: needed for anthropic/ models",
    "docker": "pip install docker: needed for --sandbox docker",
    "ray": "pip install ray: nothing uses it yet",
    "kernel_abi_check": "pip install kernel-abi-check: adds a note on the ABI to each build",
}
"""What is imported where it is needed, and what for."""


class Item(Record):
    """One thing that was looked for."""

    group: Literal["tools", "packages", "machine", "sandboxes", "keys"]
    name: str
    found: str | None
    """Version or state; None when absent."""
    advice: str = ""


class StageRow(Record):
    """What can be done for a target."""

    target: str
    build: str
    check: str
    time: str


class Diagnosis(Record):
    """Everything that doctor says."""

    items: tuple[Item, ...]
    stages: tuple[StageRow, ...]
    sandboxes: tuple[SandboxState, ...]


def _tools(toolchain: Toolchain) -> list[Item]:
    cuda = toolchain.cuda
    include = toolchain.python_include
    return [
        Item(group="tools", name="g++", found=toolchain.gxx_version, advice="apt-get install g++"),
        Item(group="tools", name="ninja", found=toolchain.ninja_version, advice="pip install ninja"),
        Item(group="tools", name="nvcc", found=cuda.version if cuda else None, advice=CUDA_EXTRA),
        Item(
            group="tools",
            name="nvdisasm",
            found="present, with cuobjdump" if toolchain.disassembler else None,
            advice=f"{CUDA_EXTRA}: adds registers, spills and instructions to CUDA builds",
        ),
        Item(group="tools", name="torch", found=toolchain.torch_version, advice="pip install torch"),
        Item(
            group="tools",
            name="Python.h",
            found=None if include is None else toolchain.python_version,
            advice="apt-get install python3-dev",
        ),
        *_headers(toolchain),
    ]


def _headers(toolchain: Toolchain) -> list[Item]:
    """CUDA's library headers and CUTLASS: fetched, or from elsewhere."""
    fetched = " ".join(headers.name for headers in toolchain.headers)
    known = None if toolchain.cuda is None or toolchain.stubs else "from the toolkit and torch"
    versions = (f"{c.version} for {c.name or 'all'} ({c.origin})" for c in toolchain.cutlass)
    return [
        Item(
            group="tools",
            name="CUDA headers",
            found=f"fetched: {fetched}" if fetched else known,
            advice="liftbench headers cuda; until then CUDA builds use stand-ins",
        ),
        Item(
            group="tools",
            name="CUTLASS",
            found=", ".join(versions) or None,
            advice="liftbench headers cutlass_3_8; only for projects that depend on it",
        ),
    ]


def _packages() -> list[Item]:
    return [
        Item(
            group="packages",
            name=name,
            found="present" if importlib.util.find_spec(name) else None,
            advice=advice,
        )
        for name, advice in _PACKAGES.items()
    ]


def _sandboxes(states: tuple[SandboxState, ...]) -> list[Item]:
    return [
        Item(group="sandboxes", name=one.name, found=one.summary, advice=one.unavailable or "")
        for one in states
    ]


def _machine(machine: MachineFacts) -> list[Item]:
    gpu = None if machine.gpu is None else f"{machine.gpu}, driver {machine.driver}"
    return [
        Item(group="machine", name="CPU", found=f"{machine.cpu}, {machine.cpu_count} cores"),
        Item(
            group="machine", name="GPU", found=gpu, advice="builds are graded for sm_90, later stages are not"
        ),
    ]


def _keys() -> list[Item]:
    return [
        Item(
            group="keys",
            name=name,
            found="present" if os.environ.get(name) else None,
            advice="only needed for that provider's models",
        )
        for name in _KEYS
    ]


def _stages(toolchain: Toolchain, machine: MachineFacts) -> list[StageRow]:
    def builds(missing: str | None) -> str:
        return "yes" if missing is None else f"no: {missing}"

    cpu = builds(toolchain.missing("cpu"))
    later = _on_gpu(machine)
    rest = "yes" if cpu == "yes" else "no"
    return [
        StageRow(target="cpu", build=cpu, check=rest, time=rest),
        StageRow(target="cuda", build=builds(toolchain.missing("cuda")), check=later, time=later),
    ]


def _on_gpu(machine: MachineFacts) -> str:
    """Whether CUDA projects are run here; CUDA itself is not started."""
    from harness.judge.gpu import refused

    if machine.gpu_uuid is None:
        return "not measured: no CUDA device"
    why = refused(machine.gpu_uuid)
    return "yes" if why is None else f"not measured: {why}"


def diagnose() -> Diagnosis:
    """Look around on this machine."""
    toolchain = find_toolchain()
    machine = machine_facts(toolchain)
    sandboxes = probe_all()
    items = [*_tools(toolchain), *_packages(), *_machine(machine), *_sandboxes(sandboxes), *_keys()]
    return Diagnosis(items=tuple(items), stages=tuple(_stages(toolchain, machine)), sandboxes=sandboxes)


def run_timing(target: str, sandbox: str, cache: Path | None, json_output: bool) -> None:
    """Make an A/A calibration and print what it means. Raises UsageError, InfraError."""
    from harness.cli.timing_view import timing_view

    calibration = calibrate_here(target, sandbox, cache)
    if calibration is None:
        why = "not measured: no CUDA device on this machine; `--target cpu` measures its cores"
        print(f'{{"not_measured": "{why}"}}' if json_output else why)
    elif json_output:
        print(calibration.model_dump_json(indent=1))
    else:
        Console().print(timing_view(calibration))


def calibrate_here(target: str, sandbox: str, cache: Path | None) -> Calibration | None:
    """An A/A calibration of this machine; None where it has no device of that target."""
    from harness.cli.setup import cache_folder, make_workshop, parse_target
    from harness.device.machine import QuietLock, judge_and_worker_cpus
    from harness.device.telemetry import make_telemetry
    from harness.errors import DeviceError
    from harness.grading.workers import GradeSettings, Workers
    from harness.judge.calibration import TASK, Setting, calibrate, sizes_of
    from harness.judge.gpu import refused
    from harness.suite.catalogue import select_tasks

    wanted, folder = parse_target(target), cache_folder(cache)
    device = machine_facts(find_toolchain()).gpu_uuid if wanted == "cuda" else None
    if wanted == "cuda" and device is None:
        return None
    why = None if device is None else refused(device)
    if why is not None:
        raise DeviceError(f"the GPU of this machine cannot be calibrated: {why}")
    began = time.monotonic()
    workshop = make_workshop(sandbox, cache)
    judge_cpus, worker_cpus = judge_and_worker_cpus()
    settings = GradeSettings(target=wanted, protocol="quick", cache=folder, device=device)
    workers = Workers(settings, workshop.sandbox, workshop.toolchain, worker_cpus)
    (loaded,) = select_tasks([TASK])
    try:
        with QuietLock(folder / "locks", device or "cpu").exclusive():
            setting = Setting(workers.transport, make_telemetry(device), workers.numbers, judge_cpus)
            if device is not None:  # a process for every turn takes seconds each
                setting = replace(setting, processes=2, blocks=setting.numbers.clean_blocks)
            timed = sizes_of(loaded, wanted, workers.transport, setting.numbers)
            print(f"timing {TASK} against itself: about half a minute ...", file=sys.stderr)
            found = calibrate(workers.start, loaded, timed, setting)
    finally:
        workers.close()
        workshop.sandbox.stop()
    return found.model_copy(
        update={"sandbox": workshop.sandbox.name, "wall_s": round(time.monotonic() - began, 1)}
    )


def run_doctor(json_output: bool) -> None:
    """Print the findings."""
    diagnosis = diagnose()
    if json_output:
        print(diagnosis.model_dump_json(indent=1))
        return
    console = Console()
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "what", "found"):
        table.add_column(name)
    group = ""
    for item in diagnosis.items:
        found = item.found or f"absent ({item.advice})"
        table.add_row(item.group if item.group != group else "", item.name, found)
        group = item.group
    console.print(table)
    stages = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("target", "build", "check", "time"):
        stages.add_column(name)
    for row in diagnosis.stages:
        stages.add_row(row.target, row.build, row.check, row.time)
    console.print("\nwhat sandboxes keep of their promises", style="dim")
    console.print(promise_table(diagnosis.sandboxes))
    console.print("\nwhat this allows", style="dim")
    console.print(stages)
