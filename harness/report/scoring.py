"""What a trial counts for in each metric.

Owns: the policy for infra, not_measured and failed trials, in one place. Does not own: averages and
tests (comparisons.py). Invariant: a metric that a trial does not count in is None, never 0; infra
trials have no score at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness import stats
from harness.outcome import Cause, Verdict
from harness.records import Grade, TrialRecord, Turn
from harness.report.clean import first_line
from harness.report.records import Gap, Usages

_REASONS: dict[Cause, str] = {
    Cause.NO_CUDA_DEVICE: "no CUDA device",
    Cause.NO_CUDA_TRANSPORT: "no CUDA transport",
    Cause.NO_TOOLCHAIN: "no CUDA toolchain",
    Cause.BUILD_ONLY: "build only",
}


@dataclass(frozen=True, slots=True)
class Score:
    """One scored trial."""

    task: str
    family: str
    model: str
    arm: str
    compiled: bool | None
    """None: the build stage was not measured."""
    correct: bool | None
    """None: correctness was not measured."""
    speedup: float | None
    """t_reference / t_student of a correct trial."""
    distinguishable: bool
    noisy: bool
    usage: Usages

    @property
    def deployed(self) -> float | None:
        """ln max(1, speedup) where correct and distinguishable, else 0; None: not measured."""
        if self.correct is None:
            return None
        return stats.deployed(self.speedup, self.correct, self.distinguishable)

    @property
    def log_speedup(self) -> float | None:
        """ln speedup of a correct trial."""
        return None if self.speedup is None else math.log(self.speedup)


def compiled(grade: Grade) -> bool | None:
    """Whether the build stage was passed; None when this machine could not run it."""
    return None if grade.verdict is Verdict.NOT_MEASURED and not grade.compiled else grade.compiled


def total(usages: Iterable[Usages]) -> Usages:
    """Tokens and dollars in all; one unknown makes the sum unknown."""
    parts = list(usages)
    inputs = [part.input_tokens for part in parts if part.input_tokens is not None]
    outputs = [part.output_tokens for part in parts if part.output_tokens is not None]
    costs = [part.cost_usd for part in parts if part.cost_usd is not None]
    return Usages(
        input_tokens=sum(inputs) if len(inputs) == len(parts) else None,
        output_tokens=sum(outputs) if len(outputs) == len(parts) else None,
        cost_usd=math.fsum(costs) if len(costs) == len(parts) else None,
    )


def usage_of(turns: Iterable[Turn]) -> Usages:
    """Tokens and dollars of all turns."""
    return total(
        Usages(
            input_tokens=turn.reply.usage.input_tokens,
            output_tokens=turn.reply.usage.output_tokens,
            cost_usd=turn.reply.cost_usd,
        )
        for turn in turns
    )


def score(trial: TrialRecord, families: Mapping[str, str]) -> Score | None:
    """What the trial counts for; None for a trial lost to infra."""
    grade = trial.grade
    if trial.verdict is Verdict.INFRA or grade is None:
        return None
    ratio = grade.timing.speedup if grade.correct and grade.timing else None
    return Score(
        task=trial.key.task,
        family=families[trial.key.task],
        model=trial.key.model,
        arm=trial.key.arm,
        compiled=compiled(grade),
        correct=grade.correct,
        speedup=None if ratio is None else ratio.value,
        distinguishable=ratio is not None and ratio.distinguishable,
        noisy=grade.timing is not None and "noisy host" in grade.timing.flags,
        usage=usage_of(trial.turns),
    )


def _gap(stopped: Sequence[Grade]) -> Gap | None:
    if not stopped:
        return None
    cause = Counter(grade.finding.cause for grade in stopped).most_common(1)[0][0]
    message = next(grade.finding.message for grade in stopped if grade.finding.cause is cause)
    reason = _REASONS.get(cause, cause.value.replace("_", " "))
    return Gap(cause=cause, reason=reason, message=first_line(message), trials=len(stopped))


def gaps(trials: Iterable[TrialRecord]) -> tuple[Gap | None, Gap | None]:
    """Why the build stage, and why the stages after it, were not measured in this run.

    One trial that could not be checked hides the row for all: the failures before that stage are
    known and the successes are not, so a rate over what is known would be biased downwards.
    """
    grades = [t.grade for t in trials if t.grade is not None and t.verdict is Verdict.NOT_MEASURED]
    return _gap([g for g in grades if compiled(g) is None]), _gap(grades)
