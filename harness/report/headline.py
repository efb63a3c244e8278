"""What a list of runs says about one: how far it is, and the lift and decision of every comparison.

It is kept in headline.json beside the trials, so that a list need not read them again; the file may be
deleted.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Final

from harness import __version__
from harness.files import write_atomically
from harness.records import Metric, Record
from harness.report.comparison_schema import Bounded, DecisionName, Unit
from harness.report.schema import REPORT_SCHEMA_VERSION, Summary
from harness.report.summary import summarise
from harness.report.wording import model_name
from harness.study.store import RunStore

_FILE: Final = "headline.json"
_MADE_BY: Final = f"{__version__}/{REPORT_SCHEMA_VERSION}"


class HeadlineRow(Bounded):
    """One comparison on the primary metric."""

    model: str
    skill: str
    control: str
    decision: DecisionName
    metric: Metric
    unit: Unit
    lift: float | None
    p_value: float | None


class Headline(Record):
    made_by: str
    trials_bytes: int
    """Size of trials.jsonl that this was read from."""
    planned: int
    scored: int
    lost: int
    """Trials lost to infrastructure failures."""
    rows: tuple[HeadlineRow, ...]


def headline(store: RunStore) -> Headline:
    """The kept one where no trial has finished since, else one from all trials, which is kept then.

    Raises UsageError when run.json is missing or damaged.
    """
    size = store.trials_bytes
    with contextlib.suppress(OSError, ValueError):
        kept = Headline.model_validate_json((store.folder / _FILE).read_text())
        if (kept.made_by, kept.trials_bytes) == (_MADE_BY, size):
            return kept
    run = store.run()
    return keep_headline(store, summarise(run, store.load(), run.lock.families), size)


def keep_headline(store: RunStore, summary: Summary, trials_bytes: int) -> Headline:
    """The headline of a summary, kept where the folder can be written to.

    `trials_bytes`: size of trials.jsonl before it was read.
    """
    made = Headline(
        made_by=_MADE_BY,
        trials_bytes=trials_bytes,
        planned=summary.progress.planned,
        scored=summary.progress.scored,
        lost=summary.progress.infra_trials,
        rows=tuple(_rows(summary)),
    )
    with contextlib.suppress(OSError):
        write_atomically(store.folder / _FILE, made.model_dump_json() + "\n")
    return made


def _rows(summary: Summary) -> Iterable[HeadlineRow]:
    for one in summary.comparisons:
        yield HeadlineRow(
            model=model_name(summary, one.model),
            skill=one.label,
            control=one.control_label,
            decision=one.conclusion.decision,
            metric=one.conclusion.metric,
            **one.primary.model_dump(include={"unit", "lift", "low", "high", "p_value"}),
        )
