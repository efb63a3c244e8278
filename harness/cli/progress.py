"""Progress of an eval, on stderr: a line for each finished trial, and in a terminal a status below them."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from rich.console import Console
from rich.text import Text

from harness.outcome import Verdict
from harness.records import TrialKey, TrialRecord
from harness.text import first_line

_TOLD_EVERY_S: Final = 10.0
"""Between two lines on one wait."""
EVIDENCE: Final = 3
"""Trials that must have finished in this session before the rest is estimated from them."""


def clock_text(seconds: float) -> str:
    """Such as 0:07, 12:31 or 1:04:10."""
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


@contextlib.contextmanager
def waiting(what: str, every_s: float = _TOLD_EVERY_S) -> Iterator[None]:
    """Says on stderr what is waited for, and for how long already."""
    start, over = time.monotonic(), threading.Event()

    def tell() -> None:
        while not over.wait(every_s):
            print(f"{what} ... {clock_text(time.monotonic() - start)}", file=sys.stderr, flush=True)

    print(f"{what} ...", file=sys.stderr, flush=True)
    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()
    print(f"{what}: {clock_text(time.monotonic() - start)}", file=sys.stderr, flush=True)


class EvalProgress:
    """An Observer that shows what happens; use it as a context manager."""

    def __init__(
        self, planned: int, finished: int, models: int = 1, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`finished` before; with several `models` each line names its own."""
        self._console = Console(file=sys.stderr)
        self._status = self._console.status("")
        self._lock = threading.Lock()
        self._clock = clock
        self._start = clock()
        self._stages: dict[TrialKey, str] = {}
        self._verdicts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._planned, self._before, self._finished = planned, finished, finished
        self._several_models = models > 1

    def __enter__(self) -> EvalProgress:
        self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._status.stop()

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
            # Not wrapped here: a file keeps one line per trial, a terminal breaks what is too long.
            self._console.print(Text(self._line(trial)), soft_wrap=True)

    def _line(self, trial: TrialRecord) -> str:
        key = trial.key
        model = f" {key.model}" if self._several_models else ""
        which = f"{key.task} {key.arm.partition('-')[0]} #{key.repeat}{model}"
        times = ", ".join(filter(None, (clock_text(self._clock() - self._start), self._eta())))
        result = trial.result
        timing = trial.grade.timing if trial.grade is not None else None
        if trial.verdict is Verdict.CORRECT and timing is not None:
            result += f" {timing.speedup.value:.2f}x"
        return f"[{self._finished}/{self._planned}] {which}: {result}, {times}{self._why(trial)}"

    def _eta(self) -> str:
        """How long the rest may take by what has finished in this session; empty without evidence for it."""
        done, left = self._finished - self._before, self._planned - self._finished
        if done < EVIDENCE or not left:
            return ""
        return f"ETA ~{clock_text((self._clock() - self._start) / done * left)}"

    def _why(self, trial: TrialRecord) -> str:
        """Why a trial was lost: the last reason in one line, and only where it is new."""
        if not trial.infra:
            return ""
        reason = first_line(trial.failures[-1].message)
        self._reasons[reason] += 1
        count = self._reasons[reason]
        return f" (for the same reason: {count})" if count > 1 else f" ({reason})"

    def _show(self) -> None:
        """In a terminal, below the lines: the count, elapsed time, stages under way and verdicts."""
        doing = Counter(self._stages.values())
        now = ", ".join(f"{stage} {count}" for stage, count in sorted(doing.items()))
        seen = ", ".join(f"{count} {verdict}" for verdict, count in self._verdicts.most_common())
        count, elapsed = f"{self._finished}/{self._planned}", clock_text(self._clock() - self._start)
        said = "   ".join(filter(None, (count, elapsed, self._eta(), now, seen)))
        self._status.update(Text(said, no_wrap=True, overflow="ellipsis"))


class StderrDisplay:
    """Shows a study's progress on stderr."""

    waiting = staticmethod(waiting)
    trials = staticmethod(EvalProgress)

    def say(self, text: str) -> None:
        """Print one line."""
        print(text, file=sys.stderr)
