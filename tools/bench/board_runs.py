"""Runs of made-up figures over the shipped tasks, as large as those of a board: for benches and tests."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.records import ModelSpec, RunRecord, TrialKey
from harness.records.base import digest_of
from harness.study.plan import plan
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask, select_tasks
from tests.report import factories as make


def write_runs(root: Path, n_runs: int, tasks: Sequence[LoadedTask] = (), repeats: int = 5) -> list[Path]:
    """Folders of runs of one model with and without a skill, on a GPU: two entries each."""
    chosen = list(tasks) or select_tasks([])
    return [_write(root, number, chosen, repeats) for number in range(n_runs)]


def _write(root: Path, number: int, tasks: Sequence[LoadedTask], repeats: int) -> Path:
    """Every model has a level of its own, every trial a reply of its own."""
    record = _record(number, tasks, repeats)
    store = RunStore.create(root / record.run_id, record)
    draw, level = random.Random(number), number / 500
    samples = {arm.id: _sample(arm) for arm in record.config.arms}
    with (store.folder / "trials.jsonl").open("w") as file:
        for key in plan(record.config):
            trial = json.loads(samples[key.arm])
            turn = trial["turns"][0]
            trial["key"] = key.model_dump()
            turn["reply"]["text"] = f"reply {number} {key.folder}"
            grade = turn["grade"]
            grade |= {"task": key.task, "task_digest": record.lock.tasks[key.task]}
            value = draw.lognormvariate(level + 0.2 * (key.arm != "without_skill"), 0.3)
            grade["timing"]["speedup"] |= {"value": value, "low": value / 1.05, "high": value * 1.05}
            file.write(json.dumps(trial) + "\n")
    return store.folder


def _record(number: int, tasks: Sequence[LoadedTask], repeats: int) -> RunRecord:
    families = {one.task.id: one.task.family for one in tasks}
    digests = {one.task.id: one.task.digest for one in tasks}
    models = (ModelSpec(name=f"openai/model-{number}"),)
    made = make.run(families, protocol="full", repeats=repeats, models=models, seed=number)
    lock = made.lock.model_copy(update={"tasks": digests, "families": families})
    return made.model_copy(update={"run_id": f"20260314T101500Z-bench-{number:04}", "lock": lock})


def _sample(arm: Any) -> str:
    """A correct trial as JSON, with a timing of two workloads."""
    key = TrialKey(task="l1/x", model=make.MODEL, arm=arm.id, repeat=0)
    grade = make.grade(key, protocol="full", timing=make.timed(1.0))
    made = make.trial(key.task, arm).model_dump(mode="json")
    made["turns"][0]["grade"] = grade.model_dump(mode="json")
    made["generation_key"] = digest_of(arm.id)
    return json.dumps(made)
