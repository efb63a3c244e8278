"""Asks models test cases, with a skill and without, keeps what they answer, and counts it.

A reply that was paid for is on disk before its command runs, and is never asked for again.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from pydantic import ValidationError

from harness import __version__
from harness.cases.schema import (
    AnswerKey,
    ArmSums,
    CaseAnswer,
    CaseRow,
    CasesConfig,
    CasesRun,
    CasesTally,
    ModelTally,
    Rate,
    TestCase,
    Worth,
)
from harness.cases.scoring import Commands, case_text, score, verdict
from harness.errors import InfraError, PermanentProviderError, UsageError
from harness.files import append_line, write_atomically
from harness.models import Model
from harness.records import Arm, Message, ModelSpec, Request, Sampling, Skill, digest_of, utc_now
from harness.records.reasons import reason_of
from harness.student.prompts import skill_text
from harness.study.executor import LocalExecutor

SYSTEM: Final = """\
You are an expert who is given one request and answers it with one message. You cannot run, look up or save \
anything. Every file that you are asked to write or change stands whole in your message, as a fenced code \
block whose info string is the language and the file's path."""

_HEAD: Final = "cases.json"
_ANSWERS: Final = "cases.jsonl"
Number = TypeVar("Number", int, float)


def cases_config(
    skill: Skill, cases: Sequence[TestCase], models: Sequence[ModelSpec], *, repeats: int
) -> CasesConfig:
    """A run of these cases, with the skill and without."""
    return CasesConfig(
        skill=skill.name,
        skill_digest=skill.digest,
        skill_text=skill_text([skill]),
        system=SYSTEM,
        models=tuple(models),
        arms=(Arm(kind="without_skill"), Arm(kind="with_skill", skills=(skill.digest,))),
        repeats=repeats,
        sampling=Sampling(),
        cases=tuple(cases),
    )


def answers_of(config: CasesConfig) -> list[AnswerKey]:
    """Every answer of a run, the arms side by side. A case that checks nothing is not asked."""
    return [
        AnswerKey(case=case.id, model=model.name, arm=arm.id, repeat=repeat)
        for repeat in range(config.repeats)
        for case in config.cases
        if case.checks
        for model in config.models
        for arm in config.arms
    ]


class CasesStore:
    """The folder of one run. A torn line of cases.jsonl is asked again; an answer's last line counts."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = threading.Lock()

    @classmethod
    def open(cls, config: CasesConfig, root: Path) -> CasesStore:
        """The folder below `root` of the run that `config` describes: an earlier one, or a new one."""
        digest = digest_of(config.model_dump(mode="json"))[:8]
        earlier = sorted(path.parent for path in root.glob(f"*-{digest}/{_HEAD}"))
        if earlier:
            return cls(earlier[-1])
        created = utc_now()
        stamp = created.replace("-", "").replace(":", "")
        # A foreign skill may have any name.
        skill = re.sub(r"[^\w.-]", "-", config.skill, flags=re.A)[:64]
        name = f"{stamp}-cases-{skill}-{digest}"
        head = CasesRun(run_id=name, created=created, liftbench=__version__, config=config)
        write_atomically(root / name / _HEAD, head.model_dump_json(indent=1) + "\n")
        return cls(root / name)

    def run(self) -> CasesRun:
        """cases.json. Raises UsageError when it is missing or damaged."""
        path = self.folder / _HEAD
        try:
            return CasesRun.model_validate_json(path.read_text())
        except (OSError, ValidationError) as error:
            raise UsageError(f"{path} is missing or damaged: {reason_of(error)}") from None

    def append(self, answer: CaseAnswer) -> None:
        """Add an answer, from any thread; on disk when this returns."""
        with self._lock:
            append_line(self.folder / _ANSWERS, answer.model_dump_json())

    def load(self) -> dict[AnswerKey, CaseAnswer]:
        """Every whole answer."""
        path = self.folder / _ANSWERS
        found: dict[AnswerKey, CaseAnswer] = {}
        for line in path.read_bytes().splitlines() if path.exists() else []:
            with contextlib.suppress(ValidationError):
                answer = CaseAnswer.model_validate_json(line)
                found[answer.key] = answer
        return found


def all_case_runs(root: Path) -> list[CasesStore]:
    """Every run of test cases below `root`, oldest first."""
    return [CasesStore(path.parent) for path in sorted(root.glob(f"*/{_HEAD}"))]


def run_cases(
    store: CasesStore,
    models: Mapping[str, Model],
    executor: LocalExecutor,
    *,
    commands: Commands | None = None,
    observer: Callable[[CaseAnswer], None] = lambda answer: None,
) -> tuple[str, ...]:
    """Ask and score what is missing; returns why answers are still missing. `models` by name.

    An answer whose command was not run is scored again when there is a sandbox. Raises
    PermanentProviderError, and UsageError for what can never be answered.
    """
    config = store.run().config
    one = _Asker(store, config, store.load(), models, commands, observer)
    todo = [key for key in answers_of(config) if one.is_owed(key)]
    return tuple(problem for problem in executor.map(one.finish, todo) if problem is not None)


@dataclass(frozen=True)
class _Asker:
    """What one run works with; its methods are called from several threads."""

    store: CasesStore
    config: CasesConfig
    kept: Mapping[AnswerKey, CaseAnswer]
    models: Mapping[str, Model]
    commands: Commands | None
    observer: Callable[[CaseAnswer], None]

    def is_owed(self, key: AnswerKey) -> bool:
        """Not answered, or its command was not run and now can be."""
        answer = self.kept.get(key)
        return answer is None or (self.commands is not None and verdict(answer.outcomes) == "not_run")

    def finish(self, key: AnswerKey) -> str | None:
        """Keep an answer and its score; or say why there is none, if the fault is ours."""
        case = next(case for case in self.config.cases if case.id == key.case)
        try:
            answer = self.kept.get(key) or self._asked(key, case)
            if self.commands is not None and verdict(answer.outcomes) == "not_run":
                outcomes = score(case, answer.reply.text, self.commands)
                sandbox = self.commands.sandbox.name
                answer = answer.model_copy(update={"outcomes": outcomes, "sandbox": sandbox})
                self.store.append(answer)
        except PermanentProviderError:
            raise
        except InfraError as error:
            return f"{error}"
        self.observer(answer)
        return None

    def _asked(self, key: AnswerKey, case: TestCase) -> CaseAnswer:
        """Ask, and keep the reply with what needs no sandbox."""
        request = self._request(key, case)
        reply = self.models[key.model].complete(request)
        outcomes = score(case, reply.text, None)
        answer = CaseAnswer(key=key, prompt_digest=request.prompt_digest, reply=reply, outcomes=outcomes)
        self.store.append(answer)
        return answer

    def _request(self, key: AnswerKey, case: TestCase) -> Request:
        """The arms differ only in the skill's text."""
        arm = next(arm for arm in self.config.arms if arm.id == key.arm)
        skill = self.config.skill_text if arm.skills else ""
        return Request(
            messages=(
                Message(role="system", content=self.config.system),
                Message(role="user", content=skill + case_text(case)),
            ),
            sampling=self.config.sampling,
            task=key.case,
            arm=key.arm,
            repeat=key.repeat,
        )


def tally(run: CasesRun, answers: Mapping[AnswerKey, CaseAnswer], worths: Sequence[Worth]) -> CasesTally:
    """Counts by case, arm and model; `worths` are of all cases. A worthless case is in no total."""
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
        left, right = (_rate(a for a in arm if a.key.case == worth.case) for arm in (without, given))
        always = all(rate.scored and rate.passed == rate.scored for rate in (left, right))
        rows.append(
            CaseRow(
                case=worth.case,
                worth=worth,
                without_skill=left,
                with_skill=right,
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
        input_tokens=_sum([answer.reply.usage.input_tokens for answer in answers]),
        output_tokens=_sum([answer.reply.usage.output_tokens for answer in answers]),
        cost_usd=_sum([answer.reply.cost_usd for answer in answers]),
    )


def _sum(values: Sequence[Number | None]) -> Number | None:
    """None where one is unknown, or there is none."""
    known = [one for one in values if one is not None]
    return sum(known[1:], start=known[0]) if known and len(known) == len(values) else None
