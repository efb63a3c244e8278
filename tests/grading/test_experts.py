"""The oracle's self-test, as a user runs it: every expert on the CPU, and its build for sm_90."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.builder.toolchain import Toolchain
from harness.suite.catalogue import all_tasks
from tests.gpu.test_experts import EMULATED_HERE

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
IDS = [loaded.task.id for loaded in all_tasks()]
SOME = [id for id in IDS if id in EMULATED_HERE]


def validated(target: str, cache: Path, *tasks: str) -> list[dict[str, Any]]:
    """What `liftbench validate` says of the whole suite, or of some tasks."""
    words = ["validate", *tasks, "--target", target, "--sandbox", "local", "--cache", cache, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout, done.stderr[-2000:]
    results: list[dict[str, Any]] = json.loads(done.stdout)
    surprises = [f"{one['task']} {one['what']}: {one['said']}" for one in results if not one["as_expected"]]
    assert (surprises, done.returncode) == ([], 0)
    return results


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param(SOME, id="some"),
        pytest.param([id for id in IDS if id not in SOME], id="others", marks=pytest.mark.exhaustive),
    ],
)
def test_every_expert_is_correct_on_the_cpu_and_what_took_no_work_is_not(
    toolchain: Toolchain, tmp_path: Path, ids: list[str]
) -> None:
    """Experts pass every case, trivial outputs fail, replies without work score 0."""
    results = validated("cpu", tmp_path, *ids)
    experts = {one["task"]: one["grade"]["verdict"] for one in results if one["what"] == "expert"}
    assert experts == dict.fromkeys(ids, "correct")
    assert [one["task"] for one in results if one["what"] == "trivial outputs"] == ids
    assert sum(one["what"] not in ("expert", "trivial outputs") for one in results) == 3 * len(ids)


@pytest.mark.exhaustive
def test_an_expert_compiles_for_sm_90_and_is_emulated(toolchain: Toolchain, tmp_path: Path) -> None:
    """Without a GPU its verdict is `not_measured`; the GPU's items ask the same of every expert."""
    missing = toolchain.missing("cuda")
    if missing is not None:
        pytest.skip(f"cannot build for sm_90: {missing}")
    [grade] = [one["grade"] for one in validated("cuda", tmp_path, "l1/rms_norm") if one["what"] == "expert"]
    assert grade["build"]["ok"] and grade["emulated"]["outcome"] == "correct", grade["emulated"]
    assert all(name.startswith("sm_90") for name in grade["build"]["architectures"])
