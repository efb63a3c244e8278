"""Runs as the board reads them, and the division that their figures stand in."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final, Literal

import yaml
from pydantic import ValidationError

from harness import stats
from harness.errors import UsageError
from harness.files import unsafe_path
from harness.records import (
    Briefing,
    Metric,
    ModelSpec,
    Protocol,
    Record,
    RunRecord,
    Target,
    TrialRecord,
    digest_of,
)
from harness.records.reasons import reason_of
from harness.report.comparison_schema import Bounded, ends
from harness.report.comparisons import ON_BOARDS
from harness.report.metrics import Metric as ShownMetric
from harness.report.metrics import Score, family_means, metrics_for
from harness.report.schema import Summary
from harness.report.summary import standing
from harness.study.store import RunStore

AUDIT: Final = ".audit.yaml"
"""Ends the name of the file beside a run's folder, where its submitter writes nothing."""
DELISTED: Final = "delisted.json"
_TASK: Final = re.compile(r"[A-Za-z0-9_][\w.-]*/[A-Za-z0-9_][\w.-]*", re.ASCII)
_DEEPEST: Final = 8
"""Levels of nesting in an audit."""
_OPENS: Final = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
_CLOSES: Final = (yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken)
_OWN_WORDS: Final = 200
"""Characters of a reply from which two that are equal are one."""
Suite = Mapping[str, tuple[str, str]]
"""Digest and family of every task that the board knows."""


class Division(Record):
    """What all rows of one table share; figures of two divisions are never compared."""

    kind: Literal["gpu", "cpu", "emulated", "built"]
    """`built`: for sm_90, and not run."""
    device: str
    target: Target
    protocol: Protocol
    briefing: Briefing | None
    """None: only expert kernels, which nobody was asked for."""
    suite: str
    """Digest over all tasks and their versions; of experts, which results do not record, empty."""

    @property
    def slug(self) -> str:
        return digest_of(self.model_dump())[:8]

    @property
    def metric(self) -> Metric:
        """On which its entries are ranked and sorted."""
        chosen: dict[str, Metric] = {"emulated": "correct_emulated", "built": "compiles"}
        return chosen.get(self.kind, "deployed")

    @property
    def not_ranked(self) -> tuple[str, ...]:
        """Why none of its entries is ranked."""
        reasons = {
            f"not measured on a GPU ({self.label})": self.kind != "gpu",
            "protocol quick: only full is ranked": self.protocol != "full",
        }
        return tuple(reason for reason, holds in reasons.items() if holds)

    @property
    def place(self) -> tuple[str, str]:
        """What figures depend on besides the project."""
        return self.kind, self.device

    @property
    def label(self) -> str:
        if self.briefing is None:
            return f"Expert kernels on {self.device}"
        if self.kind == "gpu":
            return self.device
        words = {
            "cpu": f"CPU target on {self.device}: not a GPU",
            "emulated": "emulated GPU: correctness only, not a GPU's result",
            "built": "built for sm_90, not run",
        }
        return words[self.kind]


class Figure(Bounded):
    """A share, or a ratio for `deployed`; with its 95 % interval by family."""

    value: float


class Audit(Record):
    """What somebody who read a cell says of it."""

    task: str
    model: str
    arm: str
    verdict: Literal["clean", "rubric_leak", "reward_hack", "interesting", "bug"]
    auditor: str
    quotes: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class BoardRun:
    """A run as the board reads it."""

    store: RunStore
    run: RunRecord
    trials: tuple[TrialRecord, ...]
    summary: Summary
    scores: Mapping[tuple[str, str], Sequence[Score]]
    audits: tuple[Audit, ...]
    delisted: str | None = None
    """Why the board took it off its ranks; its pages stay."""
    repeated: int = 0
    """Lines of trials.jsonl that score a trial once more; a trial lost to infrastructure is tried again."""
    torn: int = 0
    """Lines that are no trial."""

    @cached_property
    def division(self) -> Division:
        return division_of(self)

    def replies(self, model: str, arm: str) -> Iterator[str]:
        """Digests of what was answered, white space apart; short answers may well be alike."""
        for trial in self.trials:
            if (trial.key.model, trial.key.arm) == (model, arm):
                words = "".join("".join(r.text for t in trial.turns for r in t.replies).split())
                if len(words) >= _OWN_WORDS:
                    said = f"{trial.key.task}\0{words}".encode(errors="replace")
                    yield hashlib.sha256(said).hexdigest()[:20]

    def figures(self, model: str, arm: str) -> dict[str, Figure]:
        """By metric; without those that were not measured."""
        shown = (metric for metric in metrics_for(1) if metric.name in ON_BOARDS)
        made = {metric.name: _figure(metric, self.scores[model, arm]) for metric in shown}
        return {name: figure for name, figure in made.items() if figure is not None}


def read_run(folder: Path) -> BoardRun:
    """Raises UsageError for what is no run, has a link, a name that is a path, or a bad audit."""
    folder = folder.absolute()
    refuse_links(folder)
    store, lines = RunStore(folder), Counter[object]()
    run, latest = store.run(), dict[object, TrialRecord]()
    for trial in store.lines():
        if trial is not None:
            latest[trial.key] = trial
        lines[None if trial is None else trial.key if not trial.infra else "lost"] += 1
    torn, _ = lines.pop(None, 0), lines.pop("lost", 0)
    repeated = sum(lines.values()) - len(lines)
    trials = tuple(latest.values())
    _refuse_paths(run, trials)
    summary, scores = standing(run, trials)
    audits = _audits(folder.with_name(folder.name + AUDIT))
    why = delisted(folder.parent).get(run.run_id)
    return BoardRun(store, run, trials, summary, scores, audits, why, repeated, torn)


def refuse_links(folder: Path) -> None:
    """Raises UsageError for anything but folders and files: a page could show it, or wait for it."""
    for path in (folder, *sorted(folder.rglob("*"))):
        if path.is_symlink() or not (path.is_dir() or path.is_file()):
            name = path.relative_to(folder).as_posix()
            raise UsageError(f"{folder}: {name!r} is a link, or no file")


def _refuse_paths(run: RunRecord, trials: Sequence[TrialRecord]) -> None:
    """Tasks, models and arms name folders: none may lead elsewhere."""
    for task in run.config.tasks:
        if not _TASK.fullmatch(task) or len(task) > 120:
            raise UsageError(f"{run.run_id}: {task[:60]!r} is no name of a task")
    for task, model, arm in {(t.key.task, t.key.model, t.key.arm) for t in trials}:
        folder = f"{task}/{ModelSpec(name=model).slug}/{arm}"
        if (why := unsafe_path(folder)) or "/" in arm:
            raise UsageError(f"{run.run_id}: a trial's folder {folder[:60]!r} {why or 'leads elsewhere'}")


def delisted(folder: Path) -> dict[str, str]:
    """Run id -> why it was taken off the ranks. Raises UsageError for a damaged file."""
    path = folder / DELISTED
    try:
        found = json.loads(path.read_text()) if path.exists() else {}
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is damaged: {error}") from None
    if not isinstance(found, dict) or not all(isinstance(why, str) for why in found.values()):
        raise UsageError(f"{path} must map run ids to reasons")
    return found


def _audits(path: Path) -> tuple[Audit, ...]:
    if not path.exists():
        return ()
    try:
        text = path.read_text()
        depth = 0
        for token in yaml.scan(text):  # lazy, so that deep nesting ends early
            depth += isinstance(token, _OPENS) - isinstance(token, _CLOSES)
            if depth > _DEEPEST or isinstance(token, yaml.AliasToken):
                raise UsageError(f"{path} is nested too deeply, or has aliases (*name): write it out")
        return tuple(Audit.model_validate(one) for one in yaml.safe_load(text) or ())
    except (ValidationError, yaml.YAMLError, TypeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path}: {reason_of(error)}") from None


def division_of(one: BoardRun) -> Division:
    """The table that a run's entries stand in."""
    config, machine, summary = one.run.config, one.run.lock.machine, one.summary
    measured = summary.check_gap is None and summary.build_gap is None
    kind: Literal["gpu", "cpu", "emulated", "built"]
    if config.target == "cpu":
        kind, device = "cpu", machine.cpu
    elif measured and machine.gpu is not None:
        kind, device = "gpu", machine.gpu
    else:
        emulated = any(trial.grade is not None and trial.grade.emulated for trial in one.trials)
        kind, device = ("emulated" if emulated else "built"), "no GPU"
    return Division(
        kind=kind,
        device=device,
        target=config.target,
        protocol=config.protocol,
        briefing=config.briefing,
        suite=digest_of({task: one.run.lock.tasks.get(task) for task in config.tasks})[:8],
    )


def foreign_tasks(run: RunRecord, suite: Suite | None) -> list[str]:
    """Tasks of a run whose digest or family is not the board's; none where the suite is not known."""
    lock = run.lock
    found = [] if suite is None else run.config.tasks
    return [t for t in found if (suite or {}).get(t) != (lock.tasks.get(t), lock.families.get(t))]


def _figure(metric: ShownMetric, scores: Sequence[Score]) -> Figure | None:
    """A metric of one arm; None where one trial was not measured in it."""
    values = list(metric.values(scores))
    if not values or len(values) < len(scores):
        return None
    means = family_means(values)
    if metric.unit == "share":
        return Figure(value=math.fsum(means) / len(means), **ends(stats.share_interval(means)))
    ratio = stats.log_ratio_interval(means)
    return Figure(value=ratio.value, **ends(ratio.interval))
