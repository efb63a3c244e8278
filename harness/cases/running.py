"""Asks models test cases, with a skill and without, and keeps what they answer.

A reply that was paid for is on disk before its command runs; it is never asked for again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from harness.cases.asking import SYSTEM, request_for
from harness.cases.commands import Commands
from harness.cases.records import AnswerKey, CaseAnswer, CasesConfig, TestCase
from harness.cases.scoring import score, verdict
from harness.cases.store import CasesStore
from harness.errors import InfraError
from harness.models.failure import PermanentProviderError
from harness.models.protocol import Model
from harness.records import Arm, ModelSpec, Sampling, Skill
from harness.student.prompts import skill_text
from harness.study.executors import Executor


def cases_config(
    skill: Skill,
    cases: Sequence[TestCase],
    models: Sequence[ModelSpec],
    *,
    repeats: int,
    sampling: Sampling | None = None,
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
        sampling=sampling or Sampling(),
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


def run_cases(
    store: CasesStore,
    models: Mapping[str, Model],
    executor: Executor,
    *,
    commands: Commands | None = None,
    observer: Callable[[CaseAnswer], None] = lambda answer: None,
) -> tuple[str, ...]:
    """Ask and score what is owed; why each answer that is still owed is so. `models` by name.

    An answer whose command was not run is scored again when there is a sandbox. Raises
    PermanentProviderError, and UsageError for what can never be answered.
    """
    config, kept = store.run().config, store.load()
    one = _Asker(store, config, kept, models, commands, observer)
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
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_owed(self, key: AnswerKey) -> bool:
        """Not answered, or its command waits for a sandbox."""
        answer = self.kept.get(key)
        return answer is None or (self.commands is not None and verdict(answer.outcomes) == "not_run")

    def finish(self, key: AnswerKey) -> str | None:
        """Keep an answer and its score, or say why there is none: the one boundary for failures of ours."""
        try:
            answer = self.kept.get(key) or self._asked(key)
            case = next(case for case in self.config.cases if case.id == key.case)
            if self.commands is not None and verdict(answer.outcomes) == "not_run":
                outcomes = score(case, answer.reply.text, self.commands)
                sandbox = self.commands.sandbox.name
                answer = answer.model_copy(update={"outcomes": outcomes, "sandbox": sandbox})
                self._keep(answer)
        except PermanentProviderError:
            raise
        except InfraError as error:
            return f"{error}"
        self.observer(answer)
        return None

    def _asked(self, key: AnswerKey) -> CaseAnswer:
        """Ask, and keep the reply with what needs no sandbox."""
        request = request_for(key, self.config)
        reply = self.models[key.model].complete(request)
        case = next(case for case in self.config.cases if case.id == key.case)
        outcomes = score(case, reply.text, None)
        answer = CaseAnswer(key=key, prompt_digest=request.prompt_digest, reply=reply, outcomes=outcomes)
        self._keep(answer)
        return answer

    def _keep(self, answer: CaseAnswer) -> None:
        with self._lock:
            self.store.append(answer)
