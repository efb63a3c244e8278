"""Scored trials, and the metrics that are read from them.

A metric that a trial does not count in is None, never 0. Trials lost to infra have no score.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness import stats
from harness.outcome import Cause, Verdict
from harness.records import DiagnosticKind, Grade, Reply, RunRecord, TrialRecord, Turn
from harness.records.timing import NOISY
from harness.report.comparison_schema import MetricName, Unit, ends
from harness.report.schema import Gap, Usages
from harness.text import first_line

KERNELBENCH: Final = "kernelbench_"
THRESHOLDS: Final = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
TESTED: Final = (
    "compiles",
    "correct_emulated",
    "correct",
    "deployed",
    "speedup_both_correct",
    "pass_at_k",
    "pass_hat_k",
)
"""pass@1 equals `correct`, and is not tested twice."""
_REASONS: Final = {
    Cause.NO_CUDA_DEVICE: "no CUDA device",
    Cause.NO_CUDA_TRANSPORT: "no CUDA transport",
    Cause.NO_TOOLCHAIN: "no CUDA toolchain",
}


@dataclass(frozen=True, slots=True)
class Score:
    """One scored trial."""

    task: str
    family: str
    compiled: bool | None
    correct: bool | None
    speedup: float | None
    """t_reference / t_student of a correct trial."""
    distinguishable: bool
    noisy: bool
    usage: Usages
    verdict: Verdict
    cause: Cause
    first_error: DiagnosticKind | None = None
    correct_emulated: bool | None = None
    """On the emulated GPU; None: not tried, or it could not say."""
    kernelbench: float | None = None
    """Speedup by KernelBench's own rules, 0 where it is not correct by them; None: another task, or not
    measured."""

    @property
    def deployed(self) -> float | None:
        """ln max(1, speedup) where correct and distinguishable, else 0; None: not measured."""
        if self.correct is None:
            return None
        return stats.deployed(self.speedup, self.correct, self.distinguishable)


def score(trial: TrialRecord, families: Mapping[str, str], turns: int | None = None) -> Score | None:
    """What a trial counts for, after its first `turns` turns or at its end; None for one lost to infra."""
    taken = trial.turns if turns is None else trial.turns[:turns]
    grades = [turn.grade for turn in taken if turn.grade is not None]
    grade = trial.grade if turns is None else grades[-1] if grades else None
    if trial.verdict is Verdict.INFRA or grade is None:
        return None
    build = grade.build if grade.not_built else None
    ratio = grade.timing.speedup if grade.correct and grade.timing else None
    return Score(
        task=trial.key.task,
        family=families[trial.key.task],
        compiled=compiled(grade),
        correct=grade.correct,
        speedup=None if ratio is None else ratio.value,
        distinguishable=ratio is not None and ratio.distinguishable,
        noisy=grade.timing is not None and NOISY in grade.timing.flags,
        usage=usage_of(taken),
        verdict=grade.verdict,
        cause=grade.finding.cause,
        first_error=build.diagnostics[0].kind if build and build.diagnostics else None,
        correct_emulated=grade.correct_emulated,
        kernelbench=_by_kernelbench(trial.key.task, grade),
    )


def scored(
    trials: Iterable[TrialRecord], families: Mapping[str, str], turns: int | None = None
) -> list[Score]:
    """The scores of all trials that were not lost to infra."""
    return [made for trial in trials if (made := score(trial, families, turns))]


def leaked_tasks(run: RunRecord) -> dict[str, str]:
    """Planned tasks whose reference a skill repeats, and where: they are not counted."""
    return {task: run.lock.leaked[task] for task in run.config.tasks if task in run.lock.leaked}


def compiled(grade: Grade) -> bool | None:
    return None if grade.verdict is Verdict.NOT_MEASURED and not grade.compiled else grade.compiled


def _by_kernelbench(task: str, grade: Grade) -> float | None:
    """KernelBench's rate counts every problem: what could not be built or run is not correct."""
    if not task.startswith(KERNELBENCH) or grade.correct is None:
        return None
    if grade.kernelbench is None:
        return None if grade.correct else 0.0
    return grade.kernelbench.speedup or 0.0


def usage_of_reply(reply: Reply) -> Usages:
    """Tokens and dollars of one reply; a prompt that was refused as too long costs nothing."""
    if reply.stop == "overflow":
        return Usages(input_tokens=0, output_tokens=0, cost_usd=0.0)
    usage = reply.usage
    return Usages(input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, cost_usd=reply.cost_usd)


def usage_of(turns: Iterable[Turn]) -> Usages:
    return total_usage(usage_of_reply(reply) for turn in turns for reply in turn.replies)


def total_usage(usages: Iterable[Usages]) -> Usages:
    """The sum; one unknown makes it unknown."""
    parts = list(usages)
    if len(parts) == 1:
        return parts[0]
    columns = {name: [getattr(part, name) for part in parts] for name in Usages.model_fields}
    return Usages.model_validate({k: None if None in v else math.fsum(v) for k, v in columns.items()})


def gaps(trials: Iterable[TrialRecord]) -> tuple[Gap | None, Gap | None]:
    """Why the build stage, and why the stages after it, were not measured in this run.

    One trial that could not be checked hides the row for all: the failures before that stage are known and
    the successes are not, so a rate over what is known would be biased downwards.
    """
    grades = [t.grade for t in trials if t.grade is not None and t.verdict is Verdict.NOT_MEASURED]
    return _gap([g for g in grades if compiled(g) is None]), _gap(grades)


def is_emulated(trials: Iterable[TrialRecord]) -> bool:
    return any(trial.grade is not None and trial.grade.emulated is not None for trial in trials)


def emulated_gap(trials: Iterable[TrialRecord]) -> Gap | None:
    """Why `correct_emulated` is not measured: as above, one trial without an answer hides it for all."""
    grades = [t.grade for t in trials if t.grade is not None and t.verdict is not Verdict.INFRA]
    silent = [grade for grade in grades if grade.correct_emulated is None]
    if not silent:
        return None
    said = next((one.emulated.message for one in silent if one.emulated is not None), "not checked on it")
    cause = silent[0].finding.cause
    return Gap(cause=cause, reason="not emulated", message=first_line(said), trials=len(silent))


def _gap(stopped: Sequence[Grade]) -> Gap | None:
    if not stopped:
        return None
    cause = Counter(grade.finding.cause for grade in stopped).most_common(1)[0][0]
    message = next(grade.finding.message for grade in stopped if grade.finding.cause is cause)
    reason = _REASONS.get(cause, cause.value.replace("_", " "))
    return Gap(cause=cause, reason=reason, message=first_line(message), trials=len(stopped))


Value = tuple[str, str, float]
Scores = Sequence[Score]
Values = Callable[[Scores], Iterable[Value]]


@dataclass(frozen=True)
class Metric:
    """A metric; shares stay as they are, ratios are handled as natural logs."""

    name: MetricName
    label: str
    unit: Unit
    values: Values

    def lift(
        self, treatment: Scores, control: Scores, confidence: float = 0.95, *, tested: bool = True
    ) -> stats.Lift:
        """The paired lift of treatment over control; a p value only where it is tested."""
        seen = observations(self.values, treatment, control)
        return stats.paired_lift(seen, confidence, shares=self.unit == "share", tested=tested)

    def shown(self, value: float) -> float:
        """From the scale of inference to the reader's: logs become ratios."""
        return value if self.unit == "share" else math.exp(value)

    def effect(self, lift: stats.Lift) -> dict[str, float | None]:
        """The fields of an Effect, in the reader's units."""
        values = {"control": lift.mean_without, "treatment": lift.mean_with, "lift": lift.lift}
        values |= ends(lift.interval)
        return {name: None if value is None else self.shown(value) for name, value in values.items()}

    def facts(self, lift: stats.Lift) -> dict[str, object]:
        """The same, with the names of this metric and what the lift rests on."""
        counted = ("n_families", "n_different", "n_tasks", "n_dropped_tasks")
        counts = {name: getattr(lift, name) for name in counted}
        return {"metric": self.name, "label": self.label, "unit": self.unit} | counts | self.effect(lift)


def observations(values: Values, treatment: Scores, control: Scores) -> list[stats.Observation]:
    seen: list[stats.Observation] = []
    side: Literal["treatment", "control"]
    for side, scores in (("treatment", treatment), ("control", control)):
        seen += [stats.Observation(family, task, side, value) for family, task, value in values(scores)]
    return seen


def by_trial(get: Callable[[Score], float | None]) -> Values:
    """One value per trial that has one."""

    def values(scores: Scores) -> Iterable[Value]:
        for score in scores:
            value = get(score)
            if value is not None:
                yield score.family, score.task, float(value)

    return values


def _by_task(k: int, estimate: Callable[[int, int, int], float]) -> Values:
    """One value per task with at least k scored replies."""

    def values(scores: Scores) -> Iterable[Value]:
        tasks: dict[tuple[str, str], list[bool]] = defaultdict(list)
        for score in scores:
            if score.correct is not None:
                tasks[score.family, score.task].append(score.correct)
        for (family, task), results in tasks.items():
            if len(results) >= k:
                yield family, task, estimate(len(results), sum(results), k)

    return values


def share_metric(get: Callable[[Score], float | None]) -> Metric:
    return Metric("correct", "", "share", by_trial(get))


def pass_metric(k: int, estimator: Callable[[int, int, int], float]) -> Metric:
    return Metric("pass_at_k", "", "share", _by_task(k, estimator))


def fast_metric(threshold: float) -> Metric:
    """Share of trials that are correct and faster than threshold."""

    def fast(score: Score) -> float | None:
        if score.correct is None:
            return None
        return float(score.speedup is not None and score.speedup > threshold)

    return share_metric(fast)


def metrics_for(repeats: int, *, emulated: bool = True) -> tuple[Metric, ...]:
    """All metrics of a run, in the order in which they are shown."""
    log_speedup = by_trial(lambda s: None if s.speedup is None else math.log(s.speedup))
    on_emulated = by_trial(lambda s: s.correct_emulated)
    once = (
        Metric("compiles", "compiles", "share", by_trial(lambda s: s.compiled)),
        *([Metric("correct_emulated", "correct emul.", "share", on_emulated)] if emulated else ()),
        Metric("correct", "correct", "share", by_trial(lambda s: s.correct)),
        Metric("deployed", "deployed", "ratio", by_trial(lambda s: s.deployed)),
        Metric("speedup_both_correct", "speedup where both correct", "ratio", log_speedup),
        Metric("pass_at_1", "pass@1", "share", _by_task(1, stats.pass_at_k)),
    )
    if repeats == 1:
        return once
    return (
        *once,
        Metric("pass_at_k", f"pass@{repeats}", "share", _by_task(repeats, stats.pass_at_k)),
        Metric("pass_hat_k", f"pass^{repeats}", "share", _by_task(repeats, stats.pass_hat_k)),
    )


def family_means(values: Iterable[Value]) -> list[float]:
    """Values of one arm, averaged by task and then by family."""
    tasks: dict[tuple[str, str], list[float]] = defaultdict(list)
    for family, task, value in values:
        tasks[family, task].append(value)
    means: dict[str, list[float]] = defaultdict(list)
    for (family, _), found in sorted(tasks.items()):
        means[family].append(math.fsum(found) / len(found))
    return [math.fsum(found) / len(found) for found in means.values()]
