"""What a trial counts for in each metric.

A metric that a trial does not count in is None, never 0; infra trials have no score at all.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness import stats
from harness.outcome import Cause, Verdict
from harness.records import DiagnosticKind, Grade, Reply, TrialRecord, Turn
from harness.report.records import Gap, Usages
from harness.text import first_line

KERNELBENCH = "kernelbench_"
"""How the ids of converted KernelBench problems begin (kernelbench/checkout.py)."""
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
    """Of every reply, those that only asked for files too."""
    verdict: Verdict
    cause: Cause
    first_error: DiagnosticKind | None = None
    """Kind of a failed build's first error."""
    kernelbench: float | None = None
    """Speedup by KernelBench's own rules, 0 where it is not correct by them; None: no problem of
    KernelBench's, or not measured."""

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
    """Tokens and dollars of every reply of all turns."""
    return total(usage_of_reply(reply) for turn in turns for reply in turn.replies)


def usage_of_reply(reply: Reply) -> Usages:
    """Tokens and dollars of one reply; a prompt that was refused unread as too long costs nothing."""
    if reply.stop == "overflow":
        return Usages(input_tokens=0, output_tokens=0, cost_usd=0.0)
    return Usages(
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        cost_usd=reply.cost_usd,
    )


def score(trial: TrialRecord, families: Mapping[str, str]) -> Score | None:
    """What the trial counts for; None for a trial lost to infra."""
    grade = trial.grade
    if trial.verdict is Verdict.INFRA or grade is None:
        return None
    return _score(trial, trial.turns, grade, families)


def score_after(trial: TrialRecord, families: Mapping[str, str], turns: int) -> Score | None:
    """What the trial counts for after so many turns; a trial that ended before stands as it ended."""
    taken = trial.turns[:turns]
    grades = [turn.grade for turn in taken if turn.grade is not None]
    if trial.verdict is Verdict.INFRA or not grades:
        return None
    return _score(trial, taken, grades[-1], families)


def _score(trial: TrialRecord, turns: Sequence[Turn], grade: Grade, families: Mapping[str, str]) -> Score:
    build = grade.build if grade.not_built else None
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
        usage=usage_of(turns),
        verdict=grade.verdict,
        cause=grade.finding.cause,
        first_error=build.diagnostics[0].kind if build and build.diagnostics else None,
        kernelbench=_by_kernelbench(trial.key.task, grade),
    )


def _by_kernelbench(task: str, grade: Grade) -> float | None:
    """Their rate counts every problem: what could not be built or run is not correct."""
    if not task.startswith(KERNELBENCH) or grade.correct is None:
        return None
    if grade.kernelbench is None:
        return None if grade.correct else 0.0
    return grade.kernelbench.speedup or 0.0


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
