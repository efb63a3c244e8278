"""Checks a CUDA project on the emulated GPU, where no GPU can run it."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from harness.builder.build import Built
from harness.builder.cubins import demangled
from harness.device.emulated.engine import REPORT, Engine, Refused
from harness.grading.workers import Workers, project_source
from harness.judge.check import cases, check, rehearse
from harness.judge.keystream import Seed
from harness.judge.verifier import Case
from harness.judge.worker_client import Failed, WorkerClient, Wrapper
from harness.outcome import Cause, Verdict
from harness.records import CheckResult, EmulatedCheck, EmulatedFinding, Protocol
from harness.records.grade import EmulatedOutcome
from harness.suite.catalogue import LoadedTask
from harness.text import first_line
from sandboxes.scratch import CollectError

WALL_S: Final = 300.0
_REPORT_BYTES: Final = 1 << 20
_MOST_LINES: Final = 4096
_ROUNDS: Final = 5
_DAMAGED: Final = EmulatedFinding(kind="crashed", message="the report of the emulated GPU is damaged")
_KINDS: Final[dict[str, EmulatedOutcome]] = {
    "crashed": "crashed",
    "race": "race",
    "deadlock": "deadlock",
    "timed_out": "timed_out",
    "cannot_emulate": "cannot_emulate",
    "uninitialized": "wrong_result",
}
_CAUSES: Final[dict[Cause, EmulatedOutcome]] = {
    Cause.NONDETERMINISTIC: "race",
    Cause.WALL_TIMEOUT: "cannot_emulate",
    Cause.IMPORT_ERROR: "cannot_emulate",
}
"""Of a finding that the emulated GPU did not explain."""


class Report(NamedTuple):
    """What a worker's emulated GPU says it saw."""

    first: EmulatedFinding | None
    """An uninitialized read only where there is nothing else."""
    launched: frozenset[str]
    """Kernels that were launched and are not compiled."""


@dataclass(frozen=True)
class Emulation:
    engine: Engine
    workers: Workers
    protocol: Protocol

    def check(self, built: Built, loaded: LoadedTask, seed: bytes | None = None) -> EmulatedCheck:
        """The check's cases in a worker whose GPU is emulated, by a seed (default: a fresh secret one).
        Raises InfraError."""
        start = time.monotonic()
        seen: EmulatedFinding | None = None
        result: CheckResult | None = None
        try:
            if built.ptx is None:
                raise Refused("it compiles when it runs" if built.result.jit else "the build left no PTX")
            result, seen = self._checked(built, built.ptx, loaded, Seed(seed))
        except Refused as error:
            seen = EmulatedFinding(kind="cannot_emulate", message=str(error))
        outcome, message = outcome_of(result, seen)
        if outcome == "cannot_emulate" and result is not None and result.finding is None:
            result = None
        return EmulatedCheck(
            outcome=outcome, message=message, finding=seen, check=result, wall_s=time.monotonic() - start
        )

    def _checked(
        self, built: Built, ptx: Path, loaded: LoadedTask, seed: Seed
    ) -> tuple[CheckResult, EmulatedFinding | None]:
        """The check, repeated until every kernel that it launches is compiled; the first time for a build, a
        rehearsal finds them. Raises Refused."""
        source = project_source(built, loaded.task)
        assert source.path is not None
        library = source.path.parent / f"{source.namespace}.abi3.so"
        todo = cases(loaded, "cuda", self.protocol, emulated=True, seed=seed)
        launched: frozenset[str] = frozenset()
        rehearsed = False
        for _ in range(_ROUNDS):
            prepared = self.engine.prepare(library, ptx, built.result.key, launched)
            rehearsal = not (prepared.any_compiled or rehearsed)
            under = Wrapper((), (), prepared.environment, prepared.inputs)
            with self.workers.start(source, WALL_S, under) as worker:
                result = self._run(worker, loaded, todo, seed, rehearsal=rehearsal)
                report = report_of(worker)
            launched = report.launched & prepared.missing
            if not launched and not rehearsal:
                return result, report.first
            rehearsed = True
        raise Refused("it launches other kernels in every run")

    def _run(
        self, worker: WorkerClient, loaded: LoadedTask, todo: list[Case], seed: Seed, *, rehearsal: bool
    ) -> CheckResult:
        try:
            worker.load()
            if not rehearsal:
                return check(worker, loaded, "cuda", self.protocol, todo, seed)
            rehearse(worker, todo)
        except Failed as failed:
            return CheckResult(workloads=(), finding=failed.finding)
        return CheckResult(workloads=(), finding=None)


def outcome_of(result: CheckResult | None, seen: EmulatedFinding | None) -> tuple[EmulatedOutcome, str]:
    """What the emulated GPU saw explains what the judge found; what only it saw counts too."""
    if seen is not None:
        return _KINDS[seen.kind], _described(seen)
    assert result is not None
    finding = result.finding
    if finding is None:
        return "correct", "right on every workload, under the schedules that were tried"
    if finding.verdict is Verdict.CRASHED:
        return "crashed", finding.message
    return _CAUSES.get(finding.cause, "wrong_result"), finding.message


def _described(seen: EmulatedFinding) -> str:
    """One line: what, in which kernel, where."""
    places = {
        "kernel": seen.kernel,
        "block": seen.block,
        "thread": seen.thread,
        "address": None if seen.address is None else f"{seen.address:#x}",
        "instruction": seen.instruction,
        "at": seen.source,
    }
    where = ", ".join(f"{name} {value}" for name, value in places.items() if value is not None)
    return first_line(seen.message) + (f" ({where})" if where else "")


def report_of(worker: WorkerClient) -> Report:
    """What the worker's report says. The project can write it: whatever it holds, nothing is raised, and no
    part of it says `correct`."""
    data = b""
    with tempfile.TemporaryDirectory() as folder:
        try:
            for path in worker.collect([REPORT], Path(folder)):
                with path.open("rb") as file:
                    data += file.read(_REPORT_BYTES)
        except CollectError:
            return Report(_DAMAGED, frozenset())
    return parse_report(data)


def parse_report(data: bytes) -> Report:
    """What the lines of a report say; nothing is raised."""
    found = [_parsed(line) for line in data.splitlines()[:_MOST_LINES]]
    findings = [one for one in found if isinstance(one, EmulatedFinding)]
    first = min(findings, key=lambda one: one.kind == "uninitialized", default=None)
    if first is not None and first.kernel is not None:
        first = first.model_copy(update={"kernel": demangled([first.kernel])[0]})
    return Report(first, frozenset(one for one in found if isinstance(one, str)))


def _parsed(line: bytes) -> EmulatedFinding | str:
    """A finding, or the name of a kernel that is not compiled."""
    try:
        told: dict[str, Any] = json.loads(line)
        if told["kind"] == "missing":
            return str(told.get("kernel"))
        if told["kind"] not in _KINDS:
            return _DAMAGED
        file, number = str(told.pop("file", "")), told.pop("line", 0)
        told["source"] = f"{Path(file).name}:{number}" if file else None
        known = {name: told[name] for name in EmulatedFinding.model_fields if told.get(name) is not None}
        texts = {name: first_line(text) for name, text in known.items() if isinstance(text, str)}
        return EmulatedFinding.model_validate(known | texts)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return _DAMAGED
