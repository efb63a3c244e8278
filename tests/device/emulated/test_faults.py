"""Programming errors that the emulated GPU finds, each beside its correct form, under three schedules."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.device.emulated.kernels import build_kernels
from tests.device.emulated.run_faults import SEEDS

HERE = Path(__file__).parent
Outcomes = dict[str, dict[str, Any]]

ERRORS = {
    "out_of_bounds": (
        "crashed",
        "store of 4 bytes",
        "0 bytes past the end of an allocation",
        700,
    ),
    "misaligned": ("crashed", "load of 4 bytes", "misaligned", 700),
    "outside_shared": (
        "crashed",
        "store of 4 bytes",
        "outside of the block's 2832 bytes",
        700,
    ),
    "deadlock": ("deadlock", "every thread waits: 32 at bar.sync", "faults.cu", 702),
    "partial_shuffle": ("deadlock", "64 at shfl.sync", "64 at bar.sync", 702),
    "spin": ("timed_out", "step budget", "backward branches", 702),
    "divergent_barrier": ("crashed", "divergent barrier", "bar.sync", 719),
    "trap": ("crashed", "trap", "", 719),
    "not_in_mask": ("crashed", "not in the mask", "", 719),
    "uninitialized_barrier": ("crashed", "mbarrier is not initialized", "", 719),
    "arrive_twice": ("crashed", "more threads arrive", "", 719),
}
RACES = {
    "missing_barrier": "is not ordered after",
    "two_writers": "is not ordered after the write by warp",
    "overwritten_early": "is not ordered after",
    "missing_async_wait": "by an asynchronous operation at cp.async",
    "missing_bulk_wait": "by an asynchronous operation at cp.async.bulk",
    "missing_fence": "without fence.proxy.async",
    "missing_store_wait": "does not wait for this copy",
    "missing_wgmma_fence": "without wgmma.fence",
}
TURNED = [float((i + 32) % 128 + 1) for i in range(128)]
CORRECT = {
    "correct_barrier": TURNED,
    "correct_async": TURNED,
    "correct_bulk": TURNED,
    "correct_store": [float(i + 1) for i in range(128)],
    "correct_wgmma": [64.0] * 128,
    "correct_named_barrier": [-1.0] * 64 + [float(i + 1) for i in range(64)],
}


@pytest.fixture(scope="module")
def outcomes(cudart: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """By fault and seed: the CUDA error, the outputs, and what was reported."""
    folder = cudart.parent / "faults"
    (kernels,) = build_kernels([(HERE / "faults.ptx").read_text()], folder).values()
    assert kernels["faulty"].startswith("kernel "), kernels
    command = [sys.executable, "-P", str(HERE / "run_faults.py"), str(cudart), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return dict(json.loads(done.stdout))


def _each(outcomes: Outcomes, name: str, test: Callable[[dict[str, Any]], bool]) -> None:
    for seed in SEEDS:
        outcome = outcomes[f"{name} {seed}"]
        assert test(outcome), (seed, outcome)


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_kernel_has_no_findings(outcomes: Outcomes, name: str) -> None:
    """Its outputs are right under every schedule."""
    expected = [repr(value) for value in CORRECT[name]]
    _each(outcomes, name, lambda o: o["error"] == 0 and not o["findings"] and o["out"] == expected)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_ends_the_kernel_and_says_where(outcomes: Outcomes, name: str) -> None:
    """The launch returns the CUDA error of hardware; the report names kernel, thread and source line."""
    kind, begins, has, error = ERRORS[name]

    def found(outcome: dict[str, Any]) -> bool:
        last = outcome["findings"][-1]
        where = last["kernel"] == "faulty" and last["line"] > 0 and len(last["thread"]) == 3
        said = begins in last["message"] and has in last["message"]
        return outcome["error"] == error and last["kind"] == kind and where and said

    _each(outcomes, name, found)


@pytest.mark.parametrize("name", RACES)
def test_a_race_is_reported_under_every_schedule(outcomes: Outcomes, name: str) -> None:
    """The kernel goes on; the report says which accesses are not ordered."""

    def found(outcome: dict[str, Any]) -> bool:
        races = [one["message"] for one in outcome["findings"] if one["kind"] == "race"]
        return outcome["error"] == 0 and any(RACES[name] in message for message in races)

    _each(outcomes, name, found)


def test_a_missing_wait_leaves_no_accumulators(outcomes: Outcomes) -> None:
    """Sums that wgmma.wait_group has not covered read as NaN."""
    _each(outcomes, "missing_wgmma_wait", lambda o: o["out"] == ["nan"] * 128)


def test_a_missing_wait_for_a_copy_reads_what_was_there(outcomes: Outcomes) -> None:
    """Bytes of an asynchronous copy land at the wait, so the poison of shared memory shows."""
    for name in ("missing_async_wait", "missing_bulk_wait"):
        assert "nan" in outcomes[f"{name} 0"]["out"]


def test_an_uninitialized_read_is_reported(outcomes: Outcomes) -> None:
    """Shared memory that nothing wrote is NaN, and its first reader is named."""

    def found(outcome: dict[str, Any]) -> bool:
        return [one["kind"] for one in outcome["findings"]] == ["uninitialized"] and outcome["out"][
            96
        ] == "nan"

    _each(outcomes, "uninitialized", found)


def test_schedules_differ(outcomes: Outcomes) -> None:
    """What a race leaves depends on the seed."""
    assert len({tuple(outcomes[f"missing_barrier {seed}"]["out"]) for seed in SEEDS}) > 1
