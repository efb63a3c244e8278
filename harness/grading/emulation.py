"""Checks a CUDA project on the emulated GPU, where no GPU can run it."""

from __future__ import annotations

import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harness.builder.build import Built
from harness.device.emulated.engine import REPORT, Engine, Prepared
from harness.device.emulated.ptx import CannotEmulate
from harness.grading.workers import Workers, project_source
from harness.judge.check import check
from harness.judge.worker_client import Failed, Source, WorkerClient, Wrapper
from harness.outcome import Cause, Verdict
from harness.records import CheckResult, EmulatedCheck, EmulatedFinding, Protocol
from harness.records.grade import EmulatedOutcome
from harness.suite.catalogue import LoadedTask
from harness.text import first_line

WALL_S: Final = 300.0
_REPORT_BYTES: Final = 1 << 20
_MOST_FINDINGS: Final = 64
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
    Cause.WALL_TIMEOUT: "timed_out",
    Cause.IMPORT_ERROR: "cannot_emulate",
}
"""Of a finding that the emulated GPU did not explain."""


@dataclass(frozen=True)
class Emulation:
    engine: Engine
    workers: Workers
    protocol: Protocol

    def check(self, built: Built, loaded: LoadedTask) -> EmulatedCheck:
        """The check's cases in a worker whose GPU is emulated. Raises InfraError."""
        start = time.monotonic()
        seen: EmulatedFinding | None = None
        result: CheckResult | None = None
        try:
            if built.ptx is None:
                raise CannotEmulate(
                    "it compiles when it runs" if built.result.jit else "the build left no PTX"
                )
            source = project_source(built, loaded.task)
            assert source.path is not None
            library = source.path.parent / f"{source.namespace}.abi3.so"
            prepared = self.engine.prepare(library, built.ptx, built.result.key)
            result, seen = self._checked(source, loaded, prepared)
        except CannotEmulate as error:
            seen = EmulatedFinding(kind="cannot_emulate", message=str(error))
        outcome, message = _outcome(result, seen)
        if outcome == "cannot_emulate" and result is not None and result.finding is None:
            result = None
        return EmulatedCheck(
            outcome=outcome, message=message, finding=seen, check=result, wall_s=time.monotonic() - start
        )

    def _checked(
        self, source: Source, loaded: LoadedTask, prepared: Prepared
    ) -> tuple[CheckResult, EmulatedFinding | None]:
        under = Wrapper((), (), prepared.environment, prepared.inputs)
        with self.workers.start(source, WALL_S, under) as worker:
            try:
                worker.load()
                result = check(worker, loaded, "cuda", self.protocol, emulated=True)
            except Failed as failed:
                result = CheckResult(workloads=(), finding=failed.finding)
            return result, _first_seen(worker)


def _outcome(result: CheckResult | None, seen: EmulatedFinding | None) -> tuple[EmulatedOutcome, str]:
    """What the emulated GPU saw explains what the judge found; what only it saw counts too."""
    if seen is not None:
        return _KINDS.get(seen.kind, "crashed"), _described(seen)
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


def _first_seen(worker: WorkerClient) -> EmulatedFinding | None:
    """The first finding of the worker's report; an uninitialized read only where there is no other."""
    with tempfile.TemporaryDirectory() as folder:
        files = worker.collect([REPORT], Path(folder))
        lines = [line for path in files for line in path.read_bytes()[:_REPORT_BYTES].splitlines()]
    found = [_parsed(line) for line in lines[:_MOST_FINDINGS]]
    return min(found, key=lambda one: one.kind == "uninitialized", default=None)


def _parsed(line: bytes) -> EmulatedFinding:
    try:
        told: dict[str, Any] = json.loads(line)
        file, number = str(told.pop("file", "")), told.pop("line", 0)
        source = f"{Path(file).name}:{number}" if file else None
        known = {name: told[name] for name in EmulatedFinding.model_fields if told.get(name) is not None}
        return EmulatedFinding.model_validate(known | {"source": source})
    except (ValueError, AttributeError, ValidationError, RecursionError):
        return EmulatedFinding(kind="crashed", message="the report of the emulated GPU is damaged")
