"""One trial's exchange with the student: request, grade, feedback, request again.

Replies on disk are not requested again, and a later prompt on disk is reused, since its feedback quotes
times. The grader gets a project and a task, never the arm. The last project counts, not the best.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass

from harness.errors import UsageError
from harness.grading.setup import ProjectGrader
from harness.models import Model
from harness.records import Briefing, Finding, Grade, Message, Reply, Request, Skill, TrialKey, Turn
from harness.student.answer import Answer, answer
from harness.student.feedback import feedback
from harness.study.plan import generation_key
from harness.study.store import RunStore
from harness.suite.catalogue import LoadedTask


class Stopped(Exception):
    """The run was stopped and its processes killed, so a grade may not be the student's fault."""


@dataclass
class Conversation:
    """The exchange of one trial; after an infrastructure failure `finish` resumes at the failed turn."""

    key: TrialKey
    first: Request
    max_turns: int
    _: KW_ONLY
    briefing: Briefing
    loaded: LoadedTask
    skills: Sequence[Skill]
    model: Model
    grader: ProjectGrader
    store: RunStore
    stage: Callable[[str], None]
    """Called with the name of each stage that begins."""
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        self._next: Request | None = self.first
        self._turns: list[Turn] = []
        self.generation_key = generation_key(self.key, self.first)

    @property
    def turn(self) -> int:
        """The current turn, or the next one."""
        return len(self._turns)

    def finish(self) -> tuple[Turn, ...]:
        """All turns. Raises Stopped, and what the model and the grader raise."""
        while self._next is not None:
            request = self._next
            given = answer(request, self.skills, self._ask)
            before = self._turns[-1] if self._turns else None
            if before is not None and (given.reply.stop == "overflow" or given.keeps):
                if given.keeps or given.steps:  # steps were paid for, though no project came of them
                    self._turns.append(_turn(request, given, before.project, before.grade, kept=True))
                break
            if isinstance(given.project, Finding):
                grade = self.grader.no_project(given.project, self.loaded)
            else:
                self.store.write_project(self.key, given.project, request.turn)
                log = self.store.turn_folder(self.key, request.turn) / "build.log"
                grade = self.grader.grade(given.project, self.loaded, log=log, observer=self.stage)
                # The student's processes may have been killed by us.
                self._check_stopped()
                self.store.write_grade(self.key, grade, request.turn)
            # An exchange that did not fit into the context will not fit with more in it.
            self._next = None if given.reply.stop == "overflow" else self._following(request, given, grade)
            self._turns.append(_turn(request, given, grade.project, grade))
        self._next = None
        return tuple(self._turns)

    def _ask(self, request: Request) -> Reply:
        """The reply: from an interrupted attempt, or requested now and stored at once."""
        self._check_stopped()
        paid = generation_key(self.key, request)
        kept = self.store.paid_reply(self.key, paid, turn=request.turn, step=request.step)
        if kept is not None:
            return kept
        self.stage("ask")
        self.store.write_prompt(self.key, request)
        reply = self.model.complete(request)
        self.store.write_reply(self.key, paid, request, reply)
        return reply

    def _check_stopped(self) -> None:
        if self.stopped():
            raise Stopped

    def _following(self, request: Request, given: Answer, grade: Grade) -> Request | None:
        """The next turn's request; the stored one where an interrupted attempt came that far."""
        turn = request.turn
        if turn + 1 >= self.max_turns:
            return None
        with contextlib.suppress(UsageError):
            known = self.store.request(self.key, turn=turn + 1)
            if _continues(known, request, given):
                return known
        told = feedback(
            grade, self.loaded.task, grade.target, turn, turns=self.max_turns, briefing=self.briefing
        )
        messages = (*given.messages, Message(role="user", content=told))
        made = request.model_copy(update={"messages": messages, "turn": turn + 1, "step": 0})
        self.store.write_prompt(self.key, made)
        return made


def _continues(known: Request, request: Request, given: Answer) -> bool:
    """Whether `known` is this exchange with one more user message."""
    same = (known.sampling, known.tools, known.repeat) == (request.sampling, request.tools, request.repeat)
    return same and known.messages[:-1] == given.messages and known.messages[-1].role == "user"


def _turn(
    request: Request, given: Answer, project: str | None, grade: Grade | None, *, kept: bool = False
) -> Turn:
    return Turn(
        index=request.turn,
        prompt_digest=given.request.prompt_digest,
        reply=given.reply,
        project=project,
        grade=grade,
        steps=given.steps,
        kept=kept,
    )
