"""`liftbench doctor`: what this machine has, and what that allows.

API keys are reported as present or absent; their values are never shown.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.builder.compiler_slots import counted_memory
from harness.builder.toolchain import CUDA_EXTRA, Toolchain, find_toolchain
from harness.cli.card import plain_table
from harness.cli.options import CacheOption, JsonOption, TargetOption, cache_folder, make_build_setup
from harness.device.emulated.engine import lacks
from harness.device.machine import QuietLock, judge_and_worker_cpus, machine_facts
from harness.device.telemetry import Conditions, Telemetry
from harness.errors import DeviceError, InfraError
from harness.grading.workers import GradeSettings, Workers
from harness.judge.calibration import TASK, calibrate, sizes_of
from harness.judge.measurement import Session
from harness.judge.usable_gpu import refused
from harness.records import MachineFacts, Record, Target
from harness.records.timing import Calibration, CalibrationPair
from harness.suite.catalogue import select_tasks
from harness.text import first_line
from sandboxes.registry import BACKENDS, PROMISES, open_sandbox, run_self_test

ALLOWED_ALARMS = 0.05
"""The share of false alarms that protocols allow."""


State = Literal["held", "held, not promised", "open", "broken"]
_CELLS: dict[State | None, Text] = {
    "held": Text("held", style="green"),
    "held, not promised": Text("(held)", style="dim"),
    "open": Text("open", style="yellow"),
    "broken": Text("BROKEN", style="bold red"),
    None: Text("-", style="dim"),
}


class PromiseState(Record):
    """One promise of one backend; `detail` says what got through, or what stopped it."""

    promise: str
    state: State
    detail: str


class SandboxState(Record):
    """One backend on this machine; `unavailable` says why it cannot be used, and what to do."""

    name: str
    unavailable: str | None
    promises: tuple[PromiseState, ...] = ()
    seconds: float | None = None

    @property
    def summary(self) -> str | None:
        """For a list of what was found; None where it cannot be used."""
        if self.unavailable is not None:
            return None
        states = [one.state for one in self.promises]
        broken = [one.promise for one in self.promises if one.state == "broken"]
        if broken:
            return f"refused: {', '.join(broken)} does not hold"
        promised = states.count("held")
        return f"keeps all {promised} promises it makes" + ("" if promised > 2 else ": no isolation")


class Item(Record):
    """One thing that was looked for."""

    group: Literal["tools", "machine", "sandboxes", "keys"]
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
    """Everything that `doctor` reports."""

    items: tuple[Item, ...]
    stages: tuple[StageRow, ...]
    sandboxes: tuple[SandboxState, ...]


def doctor(
    json_output: JsonOption = False,
    timing: Annotated[bool, typer.Option("--timing", help="Are speedups measured here reliable?")] = False,
    target: TargetOption = "cpu",
    sandbox: Annotated[str, typer.Option(help="With --timing: where our workers run.")] = "auto,local",
    cache: CacheOption = None,
) -> None:
    found = calibrate_here(target, sandbox, cache) if timing else diagnose()
    if found is None:
        why = "not measured: no CUDA device on this machine; `--target cpu` measures its cores"
        print(json.dumps({"not_measured": why}) if json_output else why)
    elif json_output:
        print(found.model_dump_json(indent=1))
    elif isinstance(found, Calibration):
        print(*timing_lines(found), sep="\n")
    else:
        _print_diagnosis(found)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    console = Console()
    table = plain_table("", "what", "found")
    group = ""
    for item in diagnosis.items:
        found = item.found or f"absent ({item.advice})"
        table.add_row(item.group if item.group != group else "", item.name, found)
        group = item.group
    console.print(table)
    console.print("\nwhich promises each sandbox keeps", style="dim")
    console.print(promise_table(diagnosis.sandboxes))
    console.print("\nwhat this allows", style="dim")
    stages = plain_table("target", "build", "check", "time")
    for row in diagnosis.stages:
        stages.add_row(row.target, row.build, row.check, row.time)
    console.print(stages)


def _probed(name: str) -> SandboxState:
    """One backend, tried if it can be used here; about half a second."""
    try:
        with closing(open_sandbox(name)) as sandbox:
            report = run_self_test(sandbox, str(sandbox.python))
    except InfraError as error:
        return SandboxState(name=name, unavailable=first_line(str(error)))
    promises = []
    for one in report.promises:
        state: State = "held" if one.promised else "held, not promised"
        if not one.held:
            state = "broken" if one.promised else "open"
        promises.append(PromiseState(promise=one.name, state=state, detail=first_line(one.detail)))
    seconds = round(report.seconds, 2)
    return SandboxState(name=name, unavailable=None, promises=tuple(promises), seconds=seconds)


def promise_table(sandboxes: tuple[SandboxState, ...]) -> Table:
    """Promise by backend."""
    table = plain_table("promise", *(sandbox.name for sandbox in sandboxes))
    found = [{one.promise: one.state for one in sandbox.promises} for sandbox in sandboxes]
    for name, text in PROMISES.items():
        table.add_row(text, *(_CELLS[states.get(name)] for states in found))
    return table


def _tools(toolchain: Toolchain) -> Iterator[tuple[str, str | None, str]]:
    """Name, what was found, and advice."""
    cuda, include = toolchain.cuda, toolchain.python_include
    disassembler = "present, with cuobjdump" if toolchain.disassembler else None
    headers = " ".join(one.name for one in toolchain.headers)
    if headers:
        headers = f"fetched: {headers}"
    elif cuda is not None and not toolchain.stubs:
        headers = "from the toolkit and torch"
    cutlass = ", ".join(f"{one.name}: {one.sources}" for one in toolchain.cutlass)
    kernels = "present" if importlib.util.find_spec("kernels") else None
    yield "g++", toolchain.gxx_version, "apt-get install g++"
    yield "ninja", toolchain.ninja_version, "pip install ninja"
    yield "nvcc", cuda.version if cuda else None, CUDA_EXTRA
    yield "nvdisasm", disassembler, f"{CUDA_EXTRA}: adds registers, spills and instructions to CUDA builds"
    yield "torch", toolchain.torch_version, "pip install torch"
    yield "kernels", kernels, "pip install kernels: needed to read build.toml"
    yield "Python.h", toolchain.python_version if include else None, "apt-get install python3-dev"
    yield "CUDA headers", headers or None, "liftbench headers cuda; until then CUDA builds use stand-ins"
    yield "CUTLASS", cutlass or None, "liftbench headers cutlass_3_8; only for projects that depend on it"


def _items(
    toolchain: Toolchain, machine: MachineFacts, sandboxes: tuple[SandboxState, ...]
) -> Iterator[Item]:
    """What was looked for, in the order of the table."""
    for name, found, advice in _tools(toolchain):
        yield Item(group="tools", name=name, found=found, advice=advice)
    gpu = None if machine.gpu is None else f"{machine.gpu}, driver {machine.driver}"
    advice = "sm_90 builds are graded and checked on the emulated GPU, never timed"
    yield Item(group="machine", name="CPU", found=f"{machine.cpu}, {machine.cpu_count} cores")
    yield Item(group="machine", name="memory", found=counted_memory())
    yield Item(group="machine", name="GPU", found=gpu, advice=advice)
    for one in sandboxes:
        yield Item(group="sandboxes", name=one.name, found=one.summary, advice=one.unavailable or "")
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LIFTBENCH_API_KEY"):
        present = "present" if os.environ.get(name) else None
        yield Item(group="keys", name=name, found=present, advice="only needed for that provider's models")


def _stages(toolchain: Toolchain, machine: MachineFacts) -> tuple[StageRow, ...]:
    cpu, cuda = (
        "yes" if (missing := toolchain.missing(target)) is None else f"no: {missing}"
        for target in ("cpu", "cuda")
    )
    # CUDA itself is not started.
    why = "no CUDA device" if machine.gpu_uuid is None else refused(machine.gpu_uuid)
    later = "yes" if why is None else f"not measured: {why}"
    check = later
    if machine.gpu_uuid is None and cuda == "yes":
        check = lacks(toolchain) or "emulated GPU: correctness under the schedules tried"
    rest = "yes" if cpu == "yes" else "no"
    return (
        StageRow(target="cpu", build=cpu, check=rest, time=rest),
        StageRow(target="cuda", build=cuda, check=check, time=later),
    )


def diagnose() -> Diagnosis:
    """Look around on this machine."""
    toolchain = find_toolchain()
    machine = machine_facts(toolchain)
    sandboxes = tuple(_probed(name) for name in BACKENDS)
    items = tuple(_items(toolchain, machine, sandboxes))
    return Diagnosis(items=items, stages=_stages(toolchain, machine), sandboxes=sandboxes)


def calibrate_here(target: Target, sandbox: str, cache: Path | None) -> Calibration | None:
    """A calibration of this machine's clock; None where it has no device of that target."""
    device = machine_facts(find_toolchain()).gpu_uuid if target == "cuda" else None
    if target == "cuda" and device is None:
        return None
    why = None if device is None else refused(device)
    if why is not None:
        raise DeviceError(f"the GPU of this machine cannot be calibrated: {why}")
    started, folder = time.monotonic(), cache_folder(cache)
    setup = make_build_setup(sandbox, cache)
    judge_cpus, worker_cpus = judge_and_worker_cpus()
    settings = GradeSettings(target=target, protocol="quick", cache=folder, device=device)
    workers = Workers(settings, setup.sandbox, setup.toolchain, worker_cpus)
    (loaded,) = select_tasks([TASK])
    try:
        with QuietLock(folder / "locks", device or "cpu").exclusive():
            numbers, conditions = workers.numbers, Conditions(Telemetry(device))
            gap_cpus = frozenset(os.sched_getaffinity(0)) if device is None else frozenset[int]()
            session = Session(numbers, workers.transport, conditions, judge_cpus, gap_cpus)
            # On a GPU, a process for every turn takes seconds each.
            counts = {} if device is None else {"equal": 2, "known": 2}
            timed = sizes_of(loaded, target, workers.transport, numbers)
            print(f"timing {TASK} in pairs of a known ratio: about five minutes ...", file=sys.stderr)
            found = calibrate(workers.start, loaded, timed, session, **counts)
    finally:
        workers.close()
        setup.close()
    return found.model_copy(
        update={"sandbox": setup.sandbox.name, "wall_s": round(time.monotonic() - started, 1)}
    )


def timing_lines(calibration: Calibration) -> Iterator[str]:
    """What pairs of a known ratio were found to be, and what that means for this host."""
    every = calibration.pairs
    yield (
        f"{calibration.task}: {len(every)} pairs of a known ratio, each in processes of its own; sandbox "
        f"{calibration.sandbox}, transport {calibration.transport}, {calibration.wall_s} s"
    )
    for shake in calibration.hand_shake:
        yield (
            f"{shake.bytes_moved / 2**20:.3g} MiB moved, {shake.lane}: empty reveal {shake.median_us:.1f} us "
            f"(95 %: {shake.p95_us:.1f}), {shake.per_set_us:.2f} us for each input set"
        )
    for truth in sorted({one.truth for one in every}):
        yield _pairs_line(truth, [one for one in every if one.truth == truth])
    yield f"{calibration.timed_share:.1%} of the time was in timed calls"
    disturbed = f"{calibration.disturbed_blocks} of {calibration.blocks} blocks were disturbed"
    if not calibration.noisy:
        yield f"quiet host: {disturbed}"
        if sum(one.missed for one in every) > ALLOWED_ALARMS * len(every):
            yield "more than 5 % of the pairs missed: equal processes differ, rank by `full` only"
        return
    why = f" ({'; '.join(calibration.disturbances[:3])})" if calibration.disturbances else ""
    yield f"noisy host: {disturbed}{why}, or half of the intervals are wider than 5 %"
    yield (
        "Speedups measured now are shown and never ranked. End other programs, give liftbench two cores "
        "that nothing else uses (taskset, isolcpus, cpusets), avoid shared virtual machines, and repeat."
    )


def _pairs_line(truth: float, pairs: list[CalibrationPair]) -> str:
    errors = [abs(one.ratio.value / truth - 1) for one in pairs]
    widths = [one.half_width for one in pairs if one.half_width is not None]
    width = f"{statistics.median(widths):.1%}" if widths else "n/a"
    what = "false alarms" if truth == 1 else "wrong by more than the interval and 2 %"
    outside = sum(one.clock == "outside" for one in pairs)
    return (
        f"true ratio {truth:.2f}: {len(pairs)} pairs, median error {statistics.median(errors):.1%}, worst "
        f"{max(errors):.1%}, half-width of the interval {width}; {what}: {sum(one.missed for one in pairs)}"
        f"; {outside} by the outside clock alone"
    )
