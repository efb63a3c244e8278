"""Carries out a study on this machine, with progress: what `eval` and `generate` share.

The bench is left open, the run's folder unlocked.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.cli.setup import Bench
    from harness.models import Model
    from harness.study.run import Budget, Outcome
    from harness.study.store import RunStore
    from harness.study.study import Study


@dataclass(frozen=True)
class Way:
    """How studies are carried out here."""

    bench: Bench
    models: Mapping[str, Model]
    """By `provider/model`."""
    runs: Path
    """Folder of run folders."""
    budget: Budget
    connections: int
    fresh: bool = False


def open_study(study: Study, way: Way) -> RunStore:
    """The study's run folder: found again, or made. Raises UsageError for what cannot fit in memory."""
    from harness.study.study import open_run
    from harness.suite.sizes import refuse_too_large
    from sandboxes.job import IMAGES_FACT

    bench = way.bench
    refuse_too_large(study.tasks, study.target, bench.grader.device_bytes)
    image = bench.sandbox.facts().get(IMAGES_FACT)
    resolved = study.resolve(bench.sandbox.name, bench.machine, image)
    return open_run(study, *resolved, way.runs, fresh=way.fresh)


def carry_out(study: Study, store: RunStore, way: Way) -> Outcome:
    """Do what is owed of the study, with a line of progress on stderr."""
    from harness.cli.progress import EvalProgress
    from harness.study.executors import make_executor
    from harness.study.plan import plan
    from harness.study.run import Run

    bench = way.bench
    with store.writer():
        record = store.run()
        runner = Run(
            store,
            record,
            study.tasks_by_id,
            study.arms.library,
            way.models,
            bench.grader,
            kill=bench.sandbox.stop,
        )
        before = [trial for trial in store.load() if not trial.infra]  # those are tried again
        planned = len(plan(record.config))
        print(f"run {store.folder}: {planned} trials, {len(before)} finished before", file=sys.stderr)
        with EvalProgress(planned, len(before), len(way.models)) as progress:
            outcome = runner.carry_out(make_executor("local", way.connections), progress, way.budget)
    if outcome.stopped is not None:
        print(f"stopped: {outcome.stopped}; {outcome.owed} trials are owed", file=sys.stderr)
    return outcome
