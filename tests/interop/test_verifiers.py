"""The verifiers taskset, in an environment of its own, against a real service."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.suite.catalogue import load_task
from tests.fakes.overlays import TASKS
from tests.fakes.tiny import project_reply
from tests.fakes.trials import FakeGrader
from tests.interop.test_service import TOKEN, book_of, served

PACKAGE = Path(__file__).resolve().parents[2] / "examples" / "verifiers_taskset"
SCRIPT = """
import asyncio, json, sys
from types import SimpleNamespace
from verifiers.v1.utils.loaders import taskset_class
from liftbench_tasks import LiftbenchConfig

taskset = taskset_class("liftbench_tasks")(LiftbenchConfig(url=sys.argv[1]))
(task,) = taskset
trace = SimpleNamespace(last_reply=sys.stdin.read(), info={}, metrics={}, rewards={})
trace.record_reward = lambda name, value, weight: trace.rewards.__setitem__(name, value)
asyncio.run(task.score(trace))
print(json.dumps([task.data.name, trace.rewards, trace.info["liftbench"]["verdict"]]))
"""


@pytest.mark.slow
def test_verifiers_gets_prompts_and_named_rewards_over_http(tmp_path: Path) -> None:
    """verifiers 0.4 loads the taskset by name and scores a reply; liftbench is not installed there."""
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    installed = subprocess.run(
        [python, "-m", "pip", "install", "-q", "verifiers==0.4.0", PACKAGE], capture_output=True, check=False
    )
    if b"No matching distribution" in installed.stderr:
        pytest.skip("the package index has no verifiers 0.4.0")
    assert installed.returncode == 0, installed.stderr
    loaded = load_task(TASKS / "t/scale")
    tasks = {loaded.task.id: loaded}
    with served(book_of(tmp_path / "orders", tasks, FakeGrader()), tasks) as url:
        done = subprocess.run(
            [python, "-c", SCRIPT, url],
            input=project_reply("scale"),
            env={"LIFTBENCH_SERVE_TOKEN": TOKEN, "HOME": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    name, rewards, verdict = json.loads(done.stdout.splitlines()[-1])
    assert (name, verdict) == ("t/scale", "build_failed")
    assert rewards == {"compiled": 0.0, "correct": 0.0, "speedup": 0.0, "sol": 0.0}
