"""How far a claim was checked: its projects graded again, and its models asked again, by the owner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.board.runs import BoardRun
from harness.outcome import Verdict
from harness.records import Ratio, TrialKey, TrialRecord

WIDEST: Final = 1.25**2
"""high / low of an interval from which it is too wide to contradict anything."""

Level = Literal["claimed", "regraded", "reproduced"]
"""Nothing was checked; all projects graded again and none contradicted; the models asked again too."""


@dataclass(frozen=True)
class GradedAgain:
    """What a regraded run says of a claim."""

    compared: frozenset[TrialKey]
    contradictions: tuple[str, ...]
    unchecked: tuple[str, ...]
    """What could not be compared, and why."""


def graded_again(one: BoardRun, again: BoardRun) -> GradedAgain:
    """Verdicts, and speedups whose intervals do not meet; another device is not compared."""
    if again.division.place != one.division.place:
        ours, theirs = again.division.device, one.division.device
        return GradedAgain(frozenset(), (), (f"graded again on {ours}: the claim is of {theirs}",))
    claimed = {trial.key: trial for trial in one.trials}
    compared, contradictions, unchecked = set[TrialKey](), list[str](), list[str]()
    for trial in again.trials:
        old = claimed.get(trial.key)
        if old is None or old.grade is None:
            continue
        said, wrong = _compared(old, trial)
        if said is None or wrong:
            compared.add(trial.key)
        if said is not None:
            (contradictions if wrong else unchecked).append(f"{trial.key.folder}: {said}")
    return GradedAgain(frozenset(compared), tuple(contradictions), tuple(unchecked))


def _compared(old: TrialRecord, new: TrialRecord) -> tuple[str | None, bool]:
    """What is to be said of one trial, if anything, and whether it is a contradiction."""
    if new.infra or new.grade is None or old.grade is None:
        return "lost to infrastructure", False
    if old.result != new.result:
        unmeasured = Verdict.NOT_MEASURED in (old.verdict, new.verdict)
        return f"claimed {old.result}, graded again {new.result}", not unmeasured
    ratios = [one.grade.timing.speedup for one in (old, new) if one.grade and one.grade.timing]
    if old.verdict is not Verdict.CORRECT or not ratios:
        return None, False
    ends = [_ends(ratio) for ratio in ratios]
    if len(ends) < 2 or None in ends:
        return "a speedup without an interval, or with one too wide to compare", False
    (low, high), (other_low, other_high) = (end for end in ends if end is not None)
    apart = low > other_high or other_low > high
    return ("the speedups' intervals do not meet" if apart else None), apart


def _ends(ratio: Ratio) -> tuple[float, float] | None:
    if ratio.low is None or ratio.high is None or not 0 < ratio.low <= ratio.value <= ratio.high:
        return None
    return (ratio.low, ratio.high) if ratio.high / ratio.low <= WIDEST else None


def level_of(one: BoardRun, model: str, arm: str, own: Sequence[BoardRun]) -> Level:
    """`own`: runs that the board's owner made. A submitter's runs raise nobody's level."""
    if any(_asked_again(one, model, arm, other) for other in own):
        return "reproduced"
    found = [graded_again(one, other) for other in own if other.run.regraded_from == one.run.run_id]
    owed = {trial.key for trial in one.trials if (trial.key.model, trial.key.arm) == (model, arm)}
    compared = frozenset[TrialKey]().union(*(again.compared for again in found))
    sound = not any(again.contradictions for again in found)
    return "regraded" if found and sound and owed and owed <= compared else "claimed"


def _asked_again(one: BoardRun, model: str, arm: str, other: BoardRun) -> bool:
    """A complete live run of the same study with other replies, whose figures agree."""
    apart = {"sandbox": one.run.config.sandbox}
    same = other.run.config.model_copy(update=apart) == one.run.config and other.division == one.division
    if not same or other.run.regraded_from is not None or other.run.run_id == one.run.run_id:
        return False
    if one.summary.replies.recorded or other.summary.replies.recorded or other.repeated:
        return False
    if set(one.replies(model, arm)) & set(other.replies(model, arm)):
        return False
    there = other.summary.arm(model, arm)
    figures = [run.figures(model, arm).get(one.division.metric) for run in (one, other)]
    if there.scored < there.planned or None in figures:
        return False
    ends = [(f.low, f.high) for f in figures if f is not None and f.low is not None and f.high is not None]
    return len(ends) == 2 and max(low for low, _ in ends) <= min(high for _, high in ends)
