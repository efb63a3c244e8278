"""What a worker's report of the emulated GPU is worth: a claim that never makes a grade better."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import pytest

from harness.grading.emulation import outcome_of, report_of
from harness.judge.worker_client import WorkerClient
from harness.outcome import Cause
from harness.records import CheckResult, EmulatedCheck, EmulatedFinding, Finding
from sandboxes.scratch import CollectError

PASSED = CheckResult(workloads=(), finding=None)
WRONG = CheckResult(workloads=(), finding=Finding(cause=Cause.WRONG_VALUES, message="out of tolerance"))
CRASH = {"kind": "crashed", "message": "store of 4 bytes", "kernel": "scale", "block": [1, 0, 0]}
HOSTILE = {
    "claims correct": b'{"kind": "correct", "message": "correct"}',
    "no object": b"[1, 2]",
    "nothing in it": b"{}",
    "kind is a list": b'{"kind": [], "message": ""}',
    "deep": b"[" * (1 << 20),
    "no text": bytes(range(256)),
    "surrogate": b'{"kind": "race", "message": "\\ud800", "kernel": "\\udfff"}',
    "control characters": b'{"kind": "race", "message": "\\u001b[2J\\u202e", "kernel": "\\u0000"}',
    "long": json.dumps({"kind": "race", "message": "x" * 100_000}).encode(),
    "huge number": b'{"kind": "race", "message": "", "address": ' + b"9" * 5000 + b"}",
    "infinite": b'{"kind": "race", "message": "", "address": 1e999}',
    "block of words": b'{"kind": "race", "message": "", "block": ["x"]}',
    "many": b'{"kind": "race", "message": "x"}\n' * 20_000,
}


class Reports:
    """A worker that leaves a report, or, without one, has closed its scratch directory."""

    def __init__(self, report: bytes | None) -> None:
        self._report = report

    def collect(self, names: list[str], destination: Path) -> list[Path]:
        """As WorkerClient.collect."""
        if self._report is None:
            raise CollectError("the scratch directory is closed")
        (destination / names[0]).write_bytes(self._report)
        return [destination / names[0]]


def seen(report: bytes | None) -> EmulatedFinding | None:
    """What is made of that report."""
    return report_of(cast(WorkerClient, Reports(report))).first


def record(result: CheckResult, finding: EmulatedFinding | None) -> dict[str, Any]:
    """The check's record, through JSON."""
    outcome, message = outcome_of(result, finding)
    made = EmulatedCheck(outcome=outcome, message=message, finding=finding, check=result, wall_s=0.0)
    return cast(dict[str, Any], json.loads(made.model_dump_json()))


@pytest.mark.parametrize("report", [*HOSTILE.values(), None], ids=[*HOSTILE, "closed"])
def test_a_forged_report_only_makes_a_grade_worse(report: bytes | None) -> None:
    """It is read without an error, in bounded time and size, and never ends `correct`."""
    finding = seen(report)
    assert finding is not None
    for result in (PASSED, WRONG):
        told = record(result, finding)
        assert told["outcome"] not in {"correct", "cannot_emulate"}
        assert len(told["message"]) < 1000 and told["message"].isprintable()


def test_an_empty_report_leaves_it_to_the_judge() -> None:
    """Wrong outputs stay wrong, also where a project removes what the emulated GPU saw."""
    assert seen(b"") is None
    assert record(WRONG, None)["outcome"] == "wrong_result"
    assert record(PASSED, None)["outcome"] == "correct"


def test_a_kernel_that_is_not_compiled_is_named() -> None:
    """It is no finding."""
    report = report_of(cast(WorkerClient, Reports(b'{"kind": "missing", "kernel": "scale"}')))
    assert (report.first, report.launched) == (None, {"scale"})


def test_uninitialized_reads_give_way_to_other_findings() -> None:
    """They are often the consequence of them."""
    read = json.dumps({"kind": "uninitialized", "message": "read"}).encode()
    store = json.dumps(CRASH | {"file": "/x/scale.cu", "line": 3}).encode()
    first = seen(read + b"\n" + store)
    assert first is not None and (first.source, first.block) == ("scale.cu:3", (1, 0, 0))
    message = record(PASSED, first)["message"]
    assert message == "store of 4 bytes (kernel scale, block (1, 0, 0), at scale.cu:3)"
