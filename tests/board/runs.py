"""Run folders for the board, of made-up trials."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.board.entries import BoardRun, read_run
from harness.outcome import Cause
from harness.study.store import RunStore
from tests.report import factories as make

GOOD = Cause.PASSED
N_FAMILIES = 10


def speed(with_skill: float, without: float = 1.2) -> Callable[[bool, int], float]:
    """Speedups of both arms; families differ a little."""
    return lambda skilled, family: (with_skill if skilled else without) * (1 + family / 100)


def store(root: Path, name: str, speedup: Callable[[bool, int], float], **changes: Any) -> Path:
    """A finished run: every trial is correct, with that speedup."""
    run_id = changes.pop("run_id", name)
    regraded_from = changes.pop("regraded_from", None)
    tasks = make.families(N_FAMILIES)
    given: dict[str, Any] = {"protocol": "full", "repeats": 5}
    record = make.run(tasks, **(given | changes)).model_copy(
        update={"run_id": run_id, "regraded_from": regraded_from}
    )
    made = RunStore.create(root / name, record)
    for model in record.config.models:
        for arm in record.config.arms:
            for index, task in enumerate(tasks):
                for repeat in range(record.config.repeats):
                    value = speedup(arm is not record.config.arms[0], index)
                    made.append(make.trial(task, arm, GOOD, model=model.name, repeat=repeat, speedup=value))
    return root / name


def board_run(root: Path, name: str, speedup: Callable[[bool, int], float], **changes: Any) -> BoardRun:
    """The same, read."""
    return read_run(store(root, name, speedup, **changes))
