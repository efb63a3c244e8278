"""Progress of an eval, on stderr: one live line set in a terminal, plain lines elsewhere.

Owns: what is shown while a run is on. Does not own: the run. Invariant: stdout is never touched.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from harness.records import TrialKey, TrialRecord
from harness.report.clean import first_line


def _short(key: TrialKey) -> str:
    return f"{key.task} {key.arm.partition('-')[0]} #{key.repeat}"


def _why(trial: TrialRecord) -> str:
    """Why a trial was lost to infra: the last reason, in one line."""
    return f" ({first_line(trial.failures[-1].message)})" if trial.infra else ""


class EvalProgress:
    """An Observer that shows what happens; use it as a context manager."""

    def __init__(self, planned: int, finished: int) -> None:
        self._console = Console(file=sys.stderr)
        self._live = self._console.is_terminal
        self._lock = threading.Lock()
        self._stages: dict[TrialKey, str] = {}
        self._verdicts: Counter[str] = Counter()
        self._planned, self._finished = planned, finished
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}"),
            console=self._console,
            disable=not self._live,
            transient=True,
        )
        self._bar = self._progress.add_task("trials", total=planned, completed=finished, doing="")

    def __enter__(self) -> EvalProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, key: TrialKey, stage: str) -> None:
        """A trial enters a stage."""
        with self._lock:
            self._stages[key] = stage
            self._show()

    def finished(self, trial: TrialRecord) -> None:
        """A trial is on disk."""
        with self._lock:
            self._stages.pop(trial.key, None)
            self._finished += 1
            self._verdicts[str(trial.verdict)] += 1
            self._show()
        if not self._live:
            count = f"[{self._finished}/{self._planned}]"
            line = f"{count} {_short(trial.key)} ({trial.key.model}): {trial.verdict}{_why(trial)}"
            print(line, file=sys.stderr, flush=True)

    def _show(self) -> None:
        doing = Counter(self._stages.values())
        now = ", ".join(f"{stage} {count}" for stage, count in sorted(doing.items()))
        seen = ", ".join(f"{count} {verdict}" for verdict, count in self._verdicts.most_common())
        self._progress.update(self._bar, completed=self._finished, doing=f"{now}   {seen}")
