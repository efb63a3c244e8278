"""The student: from one request to its answer.

Whatever the model says, this ends and returns: it asks for files at most READS_LIMIT + LATE_LIMIT times;
only what asks may raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from harness.outcome import Cause
from harness.records import Finding, Message, Project, Reply, Request, Skill, Step
from harness.student.reply_parsing import parse_reply
from harness.student.skill_tool import LATE_LIMIT, Reader

KEEP: Final = "KEEP"
"""A reply that is nothing but this line lets the project of the turn before stand."""
_NO_WORDS: Final = "(no text)"
"""Providers refuse an assistant's message without any content."""

Ask = Callable[[Request], Reply]
"""Model.complete, or something that keeps what was paid for. Raises what Model.complete raises."""


@dataclass(frozen=True)
class Answer:
    """The last reply of a turn, and the project in it or what was found instead."""

    request: Request
    """What `reply` answers: the turn's request and all that was read since."""
    reply: Reply
    project: Project | Finding
    steps: tuple[Step, ...] = ()
    """Replies before it that only asked for files."""
    results: tuple[Message, ...] = ()
    """To calls in `reply` itself."""

    @property
    def keeps(self) -> bool:
        """It asks for the project of the turn before."""
        return self.reply.text.strip() == KEEP

    @property
    def overflowed(self) -> bool:
        """The exchange has become too long for the model; nothing was said."""
        return self.reply.stop == "overflow"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The exchange so far, this answer included."""
        said = _said(self.reply, calls=bool(self.results))
        return (*self.request.messages, said, *self.results)


def read(reply: Reply) -> Project | Finding:
    """What a reply holds."""
    if reply.stop == "overflow":
        return Finding(
            cause=Cause.CONTEXT_OVERFLOW, message="the prompt does not fit into the model's context"
        )
    return parse_reply(reply)


def answer(request: Request, skills: Sequence[Skill], ask: Ask) -> Answer:
    """One turn: ask, hand over the files that are asked for, and ask again. `skills`: the arm's."""
    reader, steps, late = Reader(skills), list[Step](), 0
    while True:
        reply = ask(request)
        found, given_all = read(reply), reader.exhausted
        wants_files = request.tools and reply.tool_calls and reply.stop not in ("refusal", "overflow")
        if not wants_files:
            return Answer(request, reply, found, tuple(steps))
        results, reads = reader.answer(reply.tool_calls)
        if given_all and isinstance(found, Project):
            return Answer(request, reply, found, tuple(steps), results)
        late += given_all
        if late == LATE_LIMIT:
            message = f"{late} replies did nothing but call tools after there were no more files to read"
            found = Finding(cause=Cause.TOOL_LOOP, message=message)
            return Answer(request, reply, found, tuple(steps), results)
        steps.append(Step(prompt_digest=request.prompt_digest, reply=reply, reads=reads))
        messages = (*request.messages, _said(reply, calls=True), *results)
        request = request.model_copy(update={"messages": messages, "step": request.step + 1})


def _said(reply: Reply, *, calls: bool) -> Message:
    """The reply as a message of the exchange."""
    content = reply.text if reply.text.strip() or calls else _NO_WORDS
    made = reply.tool_calls if calls else ()
    # Thinking that was cut off has no signature, and is not taken back; what a call follows was not cut off.
    whole = reply.stop in ("end", "tool")
    thinking = tuple(part for part in reply.thinking if whole or part.after_calls < len(made))
    return Message(role="assistant", content=content, tool_calls=made, thinking=thinking)
