"""One turn of the student: from a request to an answer, including the files that it asks to read.

A turn has at most READS_LIMIT + LATE_LIMIT requests, whatever the model replies.
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
"""A reply of only this line keeps the project of the turn before."""
_NO_WORDS: Final = "(no text)"
"""Providers refuse an empty assistant message."""

Ask = Callable[[Request], Reply]
"""Model.complete or a recording wrapper; it may raise what Model.complete raises."""


@dataclass(frozen=True)
class Answer:
    """The last reply of a turn, with its project or the reason why there is none."""

    request: Request
    """The request that `reply` answers, with everything read during the turn."""
    reply: Reply
    project: Project | Finding
    steps: tuple[Step, ...] = ()
    """Earlier replies, which only asked for files."""
    results: tuple[Message, ...] = ()
    """Tool results for the calls in `reply`."""

    @property
    def keeps(self) -> bool:
        """Whether it keeps the project of the turn before."""
        return self.reply.text.strip() == KEEP

    @property
    def overflowed(self) -> bool:
        """Whether the exchange exceeded the model's context, so that there is no text."""
        return self.reply.stop == "overflow"

    @property
    def messages(self) -> tuple[Message, ...]:
        """The exchange, this answer included."""
        said = _said(self.reply, calls=bool(self.results))
        return (*self.request.messages, said, *self.results)


def read(reply: Reply) -> Project | Finding:
    """The project in a reply, or why there is none."""
    if reply.stop == "overflow":
        return Finding(
            cause=Cause.CONTEXT_OVERFLOW, message="the prompt does not fit into the model's context"
        )
    return parse_reply(reply)


def answer(request: Request, skills: Sequence[Skill], ask: Ask) -> Answer:
    """One turn: send the request, and again with each file that is asked for. `skills`: the arm's."""
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
    # Truncated thinking has no signature and is refused; thinking before a call is complete.
    whole = reply.stop in ("end", "tool")
    thinking = tuple(part for part in reply.thinking if whole or part.after_calls < len(made))
    return Message(role="assistant", content=content, tool_calls=made, thinking=thinking)
