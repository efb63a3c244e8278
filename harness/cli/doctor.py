"""`liftbench doctor`: what this machine has, and what that allows.

API keys are reported as present or absent; their values are never shown.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from harness.builder.toolchain import CUDA_EXTRA, Toolchain, find_toolchain
from harness.cli.options import CacheOption, JsonOption, TargetOption, cache_folder
from harness.cli.setup import make_workshop
from harness.device.machine import QuietLock, judge_and_worker_cpus, machine_facts
from harness.device.telemetry import make_telemetry
from harness.errors import DeviceError, InfraError
from harness.grading.workers import GradeSettings, Workers
from harness.judge.calibration import TASK, Setting, calibrate, sizes_of
from harness.judge.clock import MOST_DOUBT
from harness.judge.gpu import refused
from harness.records import MachineFacts, Ratio, Record, Target
from harness.records.timing import Calibration, FalseAlarms, SizeFigures
from harness.suite.catalogue import select_tasks
from harness.text import first_line
from sandboxes.registry import BACKENDS, PROMISES, Attempt, open_sandbox, run_self_test

_KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "LIFTBENCH_API_KEY")
_PACKAGES = {
    "torch": "pip install torch: needed to build, check and time",
    "kernels": "pip install kernels: needed to read build.toml",
    "ray": "pip install ray: nothing uses it yet",
}
"""Packages, and what they are needed for."""


State = Literal["held", "held, not promised", "open", "broken"]
_STYLES: dict[State, str] = {
    "held": "green",
    "held, not promised": "dim",
    "open": "yellow",
    "broken": "bold red",
}
_SHORT: dict[State, str] = {
    "held": "held",
    "held, not promised": "(held)",
    "open": "open",
    "broken": "BROKEN",
}


class PromiseState(Record):
    """One promise of one backend."""

    promise: str
    state: State
    detail: str
    """What got through, or what stopped it."""


class SandboxState(Record):
    """One backend on this machine."""

    name: str
    unavailable: str | None
    """Why it cannot be used, and what to do; None where it was probed."""
    promises: tuple[PromiseState, ...] = ()
    seconds: float | None = None
    """How long the probe took, the start included."""

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
    """Everything that `doctor` reports."""

    items: tuple[Item, ...]
    stages: tuple[StageRow, ...]
    sandboxes: tuple[SandboxState, ...]


def doctor(
    json_output: JsonOption = False,
    timing: Annotated[
        bool,
        typer.Option("--timing", help="Time a reference against itself: are speedups reliable here?"),
    ] = False,
    target: TargetOption = "cpu",
    sandbox: Annotated[str, typer.Option(help="With --timing: where workers run (only our own code).")] = (
        "auto,local"
    ),
    cache: CacheOption = None,
) -> None:
    """Say what was found on this machine, and what that allows."""
    if timing:
        _print_timing(target, sandbox, cache, json_output)
        return
    diagnosis = diagnose()
    if json_output:
        print(diagnosis.model_dump_json(indent=1))
    else:
        _print_diagnosis(diagnosis)


def _print_diagnosis(diagnosis: Diagnosis) -> None:
    console = Console()
    table = _plain_table("", "what", "found")
    group = ""
    for item in diagnosis.items:
        found = item.found or f"absent ({item.advice})"
        table.add_row(item.group if item.group != group else "", item.name, found)
        group = item.group
    console.print(table)
    console.print("\nwhich promises each sandbox keeps", style="dim")
    console.print(promise_table(diagnosis.sandboxes))
    console.print("\nwhat this allows", style="dim")
    stages = _plain_table("target", "build", "check", "time")
    for row in diagnosis.stages:
        stages.add_row(row.target, row.build, row.check, row.time)
    console.print(stages)


def _plain_table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name)
    return table


def _print_timing(target: Target, sandbox: str, cache: Path | None, json_output: bool) -> None:
    """Calibrate and print what it means. Raises UsageError, InfraError."""
    calibration = calibrate_here(target, sandbox, cache)
    if calibration is None:
        why = "not measured: no CUDA device on this machine; `--target cpu` measures its cores"
        print(f'{{"not_measured": "{why}"}}' if json_output else why)
    elif json_output:
        print(calibration.model_dump_json(indent=1))
    else:
        Console().print(timing_view(calibration))


def probe_all() -> tuple[SandboxState, ...]:
    """Probe every backend that can be used here; about half a second each."""
    return tuple(_probed(name) for name in BACKENDS)


def _probed(name: str) -> SandboxState:
    try:
        sandbox = open_sandbox(name)
        try:
            report = run_self_test(sandbox, str(sandbox.python))
        finally:
            sandbox.close()
    except InfraError as error:
        return SandboxState(name=name, unavailable=first_line(str(error)))
    states = tuple(
        PromiseState(promise=one.name, state=_state(one), detail=first_line(one.detail))
        for one in report.promises
    )
    return SandboxState(name=name, unavailable=None, promises=states, seconds=round(report.seconds, 2))


def _state(one: Attempt) -> State:
    if one.promised:
        return "held" if one.held else "broken"
    return "held, not promised" if one.held else "open"


def promise_table(sandboxes: tuple[SandboxState, ...]) -> Table:
    """Promise by backend."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("promise")
    for sandbox in sandboxes:
        table.add_column(sandbox.name)
    found = [{one.promise: one.state for one in sandbox.promises} for sandbox in sandboxes]
    for name, text in PROMISES.items():
        table.add_row(text, *(_cell(states.get(name)) for states in found))
    return table


def _cell(state: State | None) -> Text:
    return Text("-", style="dim") if state is None else Text(_SHORT[state], style=_STYLES[state])


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
    versions = (f"{found.name} ({found.sources})" for found in toolchain.cutlass)
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


def calibrate_here(target: Target, sandbox: str, cache: Path | None) -> Calibration | None:
    """An A/A calibration of this machine; None where it has no device of that target."""
    device = machine_facts(find_toolchain()).gpu_uuid if target == "cuda" else None
    if target == "cuda" and device is None:
        return None
    why = None if device is None else refused(device)
    if why is not None:
        raise DeviceError(f"the GPU of this machine cannot be calibrated: {why}")
    started, folder = time.monotonic(), cache_folder(cache)
    workshop = make_workshop(sandbox, cache)
    judge_cpus, worker_cpus = judge_and_worker_cpus()
    settings = GradeSettings(target=target, protocol="quick", cache=folder, device=device)
    workers = Workers(settings, workshop.sandbox, workshop.toolchain, worker_cpus)
    (loaded,) = select_tasks([TASK])
    try:
        with QuietLock(folder / "locks", device or "cpu").exclusive():
            setting = Setting(workers.transport, make_telemetry(device), workers.numbers, judge_cpus)
            if device is not None:  # a process for every turn takes seconds each
                setting = replace(setting, processes=2, blocks=setting.numbers.clean_blocks)
            timed = sizes_of(loaded, target, workers.transport, setting.numbers)
            print(f"timing {TASK} against itself: about half a minute ...", file=sys.stderr)
            found = calibrate(workers.start, loaded, timed, setting)
    finally:
        workers.close()
        workshop.close()
    return found.model_copy(
        update={"sandbox": workshop.sandbox.name, "wall_s": round(time.monotonic() - started, 1)}
    )


ALLOWED_ALARMS = 0.05
"""protocols.md: the A/A false-alarm rate is published, and is at most this."""


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        table.add_column(name, justify="left" if index == 0 else "right", no_wrap=True)
    return table


def _bytes(count: int) -> str:
    return f"{count / 2**20:.3g} MiB" if count >= 1 << 20 else f"{count / 2**10:.3g} KiB"


def _ratio(found: Ratio) -> str:
    if found.low is None or found.high is None:
        return f"{found.value:.3f} (n/a)"
    return f"{found.value:.3f} ({found.low:.3f}, {found.high:.3f})"


def _sizes(calibration: Calibration) -> Table:
    table = _table("moved", "lane", "inside us", "outside us", "u us", "u %", "L us", "of L")
    for one in calibration.sizes:
        table.add_row(
            _bytes(one.bytes_moved),
            one.lane,
            f"{one.inside_us:.1f}",
            f"{one.outside_us:.1f}",
            f"{one.uncertainty_us:.1f}",
            f"{100 * one.uncertainty_us / one.outside_us:.0f}",
            f"{one.latency_us:.0f}",
            f"{one.outside_us / one.latency_us:.1f}x",
        )
    return table


def _hand_shakes(calibration: Calibration) -> Table:
    table = _table("moved", "lane", "c05 us", "median us", "95 % us", "reveals")
    for size in calibration.sizes:
        for one in size.hand_shake:
            figures = [f"{us:.1f}" for us in (one.c05_us, one.median_us, one.p95_us)]
            table.add_row(_bytes(size.bytes_moved), one.lane, *figures, str(one.reveals))
    return table


def _equals(sizes: tuple[SizeFigures, ...]) -> Table:
    table = _table("moved", "A/A by own clocks", "A/A by the outside clock", "processes differ by")
    for one in sizes:
        spread = "n/a" if one.process_spread is None else f"{100 * one.process_spread:.1f} %"
        table.add_row(_bytes(one.bytes_moved), _ratio(one.ratio), _ratio(one.outside_ratio), spread)
    return table


def _alarms(alarms: tuple[FalseAlarms, ...]) -> Table:
    table = _table("protocol", "clock", "interval alone", "and at least 2 %", "comparisons")
    for one in alarms:
        rates = (f"{100 * rate:.1f} %" for rate in (one.rate, one.rate_with_gate))
        table.add_row(one.protocol, one.clock, *rates, f"{one.comparisons:,}")
    return table


def _meaning(calibration: Calibration) -> Iterator[str]:
    """What follows, and what to do."""
    disturbed = f"{calibration.disturbed_blocks} of {calibration.blocks} blocks were disturbed"
    if calibration.noisy:
        why = f" ({'; '.join(calibration.disturbances[:3])})" if calibration.disturbances else ""
        yield f"noisy host: {disturbed}{why}, or an A/A interval is wider than 5 %."
        yield (
            "Speedups measured now are shown and never ranked. End other programs, give liftbench two cores "
            "that nothing else uses (taskset, isolcpus, cpusets), avoid shared virtual machines, and repeat."
        )
        yield "Intervals are wide on such a host: its few false alarms do not predict those of a quiet one."
        return
    yield f"quiet host: {disturbed}, and every A/A interval is within 5 %."
    worst = max(calibration.false_alarms, key=lambda one: one.rate_with_gate)
    if worst.rate_with_gate > ALLOWED_ALARMS:
        yield (
            f'"Faster" by {worst.protocol} (clock: {worst.clock}) is a false alarm in '
            f"{100 * worst.rate_with_gate:.1f} % of comparisons of equals; 5 % are allowed. Equal processes "
            "differ, which an interval over blocks of one pair cannot see: rank by `full` only."
        )
    else:
        yield f'"Faster" is a false alarm in at most {100 * worst.rate_with_gate:.1f} % (5 % are allowed).'
    coarse = [one for one in calibration.sizes if one.uncertainty_us > MOST_DOUBT * one.outside_us]
    if coarse:
        largest = max(one.bytes_moved for one in coarse)
        yield f"u is above 5 % of calls that move up to {_bytes(largest)}: no claim is used there."


def timing_view(calibration: Calibration) -> RenderableType:
    """Everything, with a heading before each table."""
    parts: list[RenderableType] = [
        Text(
            f"{calibration.task} against itself: {calibration.processes} equal processes, sandbox "
            f"{calibration.sandbox}, transport {calibration.transport}, {calibration.wall_s} s",
            style="bold",
        )
    ]
    for heading, table in (
        ("what a reveal costs without work (c05 is taken off)", _hand_shakes(calibration)),
        ("one call: within u both clocks agree, L is the latency of the snapshot", _sizes(calibration)),
        ("two equal processes: 1 is right (95 % interval over blocks)", _equals(calibration.sizes)),
        ('false alarms: equals called "faster", by resampling blocks', _alarms(calibration.false_alarms)),
    ):
        parts += [Text(f"\n{heading}", style="dim"), table]
    parts += [Text(""), *(Text(line) for line in _meaning(calibration))]
    return Group(*parts)
