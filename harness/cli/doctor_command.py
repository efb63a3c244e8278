"""`liftbench doctor`: what this machine has, and what that allows.

Owns: the findings and their layout. Does not own: looking (toolchain.py, machine.py).
Invariant: keys are said to be present or absent; their values are never read further.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
from typing import Literal

from rich.console import Console
from rich.table import Table

from harness.builder.toolchain import CUDA_EXTRA, Toolchain, find_toolchain
from harness.machine import machine_facts
from harness.records import MachineFacts, Record

_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LIFTBENCH_API_KEY")
_PACKAGES = {
    "torch": "pip install torch: needed to build, check and time",
    "kernels": "pip install kernels: without it our own rules judge build.toml",
    "ninja": "pip install ninja: not needed where ninja is on PATH",
    "openai": "pip install openai: needed for openai/ models and --base-url",
    "anthropic": "pip install anthropic: needed for anthropic/ models",
    "docker": "pip install docker: nothing uses it yet",
    "ray": "pip install ray: nothing uses it yet",
    "kernel_abi_check": "pip install kernel-abi-check: adds a note on the ABI to each build",
}
"""What is imported where it is needed, and what for."""
_DOCKER_S = 5.0


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


def _docker_state() -> str | None:
    if shutil.which("docker") is None:
        return None
    try:
        done = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            text=True,
            timeout=_DOCKER_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return f"engine {done.stdout.strip()}" if done.returncode == 0 and done.stdout.strip() else None


def _sandboxes() -> list[Item]:
    later = "found, but liftbench cannot use it yet"
    docker, bwrap = _docker_state(), shutil.which("bwrap")
    root = os.geteuid() == 0
    local = "an unprivileged user per process" if root else "your own user"
    return [
        Item(group="sandboxes", name="docker", found=docker and f"{docker}: {later}", advice="not built yet"),
        Item(group="sandboxes", name="bubblewrap", found=bwrap and later, advice="not built yet"),
        Item(group="sandboxes", name="local", found=f"runs as {local}; no isolation"),
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
    later = "not measured: no CUDA device" if machine.gpu is None else "not available yet"
    rest = "yes" if cpu == "yes" else "no"
    return [
        StageRow(target="cpu", build=cpu, check=rest, time=rest),
        StageRow(target="cuda", build=builds(toolchain.missing("cuda")), check=later, time=later),
    ]


def diagnose() -> Diagnosis:
    """Look around on this machine."""
    toolchain = find_toolchain()
    machine = machine_facts(toolchain)
    items = [*_tools(toolchain), *_packages(), *_machine(machine), *_sandboxes(), *_keys()]
    return Diagnosis(items=tuple(items), stages=tuple(_stages(toolchain, machine)))


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
    console.print("\nwhat this allows", style="dim")
    console.print(stages)
