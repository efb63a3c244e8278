"""Counts what the answers of a run say: by case, arm and model.

A case without worth is in no total; an answer whose command was not run is in no rate; an unknown cost is
never taken for 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeVar

from harness.cases.records import AnswerKey, CaseAnswer, CasesRun, Worth
from harness.cases.running import answers_of
from harness.cases.scoring import verdict
from harness.records import Record

Number = TypeVar("Number", int, float)


class Rate(Record):
    """How often a case was passed."""

    passed: int
    scored: int
    not_run: int
    """Answers whose command was not run; they are in no rate."""


class CaseRow(Record):
    """One case, asked of one model."""

    case: str
    worth: Worth
    without_skill: Rate
    with_skill: Rate
    tells_nothing_apart: bool
    """Always passed in both arms."""


class ArmSums(Record):
    """All answers of one arm: what they passed, and what they cost."""

    rate: Rate
    """Of cases that are worth something."""
    input_tokens: int | None
    """Of all answers; None where one is unknown."""
    output_tokens: int | None
    cost_usd: float | None


class ModelTally(Record):
    """One model."""

    model: str
    rows: tuple[CaseRow, ...]
    without_skill: ArmSums
    with_skill: ArmSums


class CasesTally(Record):
    """One run."""

    schema_version: Literal[1] = 1
    run_id: str
    skill: str
    repeats: int
    answers_owed: int
    models: tuple[ModelTally, ...]


def tally(run: CasesRun, answers: Mapping[AnswerKey, CaseAnswer], worths: Sequence[Worth]) -> CasesTally:
    """The sums of a run; `worths` are of all its cases."""
    config = run.config
    return CasesTally(
        run_id=run.run_id,
        skill=config.skill,
        repeats=config.repeats,
        answers_owed=sum(key not in answers for key in answers_of(config)),
        models=tuple(
            _of_model(model.name, [a for a in answers.values() if a.key.model == model.name], worths)
            for model in config.models
        ),
    )


def _of_model(model: str, answers: list[CaseAnswer], worths: Sequence[Worth]) -> ModelTally:
    without = [answer for answer in answers if answer.key.arm.startswith("without_skill")]
    given = [answer for answer in answers if not answer.key.arm.startswith("without_skill")]
    rows = []
    for worth in worths:
        rates = [_rate(a for a in arm if a.key.case == worth.case) for arm in (without, given)]
        always = all(rate.scored and rate.passed == rate.scored for rate in rates)
        rows.append(
            CaseRow(
                case=worth.case,
                worth=worth,
                without_skill=rates[0],
                with_skill=rates[1],
                tells_nothing_apart=always,
            )
        )
    counted = {worth.case for worth in worths if worth.worth != "none"}
    return ModelTally(
        model=model, rows=tuple(rows), without_skill=_sums(without, counted), with_skill=_sums(given, counted)
    )


def _rate(answers: Iterable[CaseAnswer]) -> Rate:
    found = [verdict(answer.outcomes) for answer in answers]
    waiting = found.count("not_run")
    return Rate(passed=found.count("passed"), scored=len(found) - waiting, not_run=waiting)


def _sums(answers: list[CaseAnswer], counted: set[str]) -> ArmSums:
    return ArmSums(
        rate=_rate(answer for answer in answers if answer.key.case in counted),
        input_tokens=_sum(answers, lambda answer: answer.reply.usage.input_tokens),
        output_tokens=_sum(answers, lambda answer: answer.reply.usage.output_tokens),
        cost_usd=_sum(answers, lambda answer: answer.reply.cost_usd),
    )


def _sum(answers: list[CaseAnswer], value: Callable[[CaseAnswer], Number | None]) -> Number | None:
    """None where one is unknown, or there is none."""
    values = [value(answer) for answer in answers]
    known = [one for one in values if one is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(values) else None
