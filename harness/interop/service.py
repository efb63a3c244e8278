"""The grading service: HTTP in front of an order book. Starlette; the same JSON as everywhere else."""

from __future__ import annotations

import asyncio
import hmac
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, get_args

from pydantic import ValidationError, model_validator
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from harness import __version__
from harness.files import unsafe_path
from harness.interop.order_book import Answer, GradeOrder, OrderBook, QueueFull
from harness.records import Arm, Briefing, Protocol, Record, Reply, Sampling, Target, Task, utc_now
from harness.records.grade import GRADER_VERSION
from harness.records.reasons import reason_of
from harness.student.answer import parse_reply, project_of
from harness.student.prompts import make_request
from harness.suite.catalogue import LoadedTask

MOST_BYTES: Final = 32 << 20
"""Of one request."""
MOST_WAIT_S: Final = 60.0
_POLL_S: Final = 0.1
_RETRY_S: Final = "5"


class Submission(Record):
    """One thing to grade: a model's whole reply, or the files of a project."""

    task: str
    reply: str | None = None
    files: dict[str, str] | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Submission:
        if (self.reply is None) == (self.files is None):
            raise ValueError("give either `reply` (text) or `files` (path -> text)")
        for path, text in (self.files or {"reply": self.reply or ""}).items():
            why = unsafe_path(path)
            if why is not None:
                raise ValueError(f"files: {path!r} {why}")
            if any("\ud800" <= char <= "\udfff" for char in text):
                raise ValueError(f"{path}: it holds half of a character (a lone surrogate)")
        return self


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.response = JSONResponse({"error": message}, status, dict(headers or {}))


@dataclass(frozen=True)
class Service:
    """What answers requests."""

    book: OrderBook
    tasks: Mapping[str, LoadedTask]
    target: Target
    protocol: Protocol
    token: str = field(repr=False)

    def app(self) -> Starlette:
        """The ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/tasks", self._list),
                Route("/grades", self._post, methods=["POST"]),
                Route("/grades/{key}", self._get),
            ],
            exception_handlers={Refused: _refuse, HTTPException: _unknown},
        )

    async def _health(self, request: Request) -> Response:
        """Without a token: says nothing of what is graded."""
        book = self.book
        facts = {"liftbench": __version__, "grader_version": GRADER_VERSION, "target": self.target}
        state = {"status": "ok" if book.lost is None else "no grader left", "waiting": book.waiting}
        return JSONResponse(state | facts | {"tasks": len(self.tasks)}, 200 if book.lost is None else 503)

    async def _list(self, request: Request) -> Response:
        """Tasks with the messages that a student gets, `?briefing=contract` or `full`."""
        self._authorize(request)
        briefing = request.query_params.get("briefing", "contract")
        if briefing not in get_args(Briefing):
            raise Refused(400, "briefing: contract or full")
        return JSONResponse([self._task(loaded.task, briefing) for loaded in self.tasks.values()])

    def _task(self, task: Task, briefing: Any) -> dict[str, Any]:
        arm = Arm(kind="without_skill")
        asked = make_request(
            task, self.target, arm, [], sampling=Sampling(), repeat=0, briefing=briefing, turns=1
        )
        messages = [one.model_dump(mode="json", include={"role", "content"}) for one in asked.messages]
        return {"id": task.id, "family": task.family, "digest": task.digest, "messages": messages}

    async def _post(self, request: Request) -> Response:
        """One submission, or a list of them: all are accepted, or none; in their order."""
        self._authorize(request)
        data = await _body(request)
        several = isinstance(data, list)
        if several and len(data) > self.book.most_waiting:
            raise Refused(413, f"a list has at most {self.book.most_waiting} submissions")
        try:
            submitted = [Submission.model_validate(one) for one in (data if several else [data])]
        except ValidationError as error:
            raise Refused(400, reason_of(error)) from None
        answers = await run_in_threadpool(self._accept, submitted)
        done = all(answer.status == "done" for answer in answers)
        shown = [answer.model_dump(mode="json") for answer in answers]
        return JSONResponse(shown if several else shown[0], 200 if done else 202)

    async def _get(self, request: Request) -> Response:
        """`?wait=SECONDS`: answer when it is graded, or after that time."""
        self._authorize(request)
        try:
            wait_s = float(request.query_params.get("wait", "0"))
        except ValueError:
            wait_s = math.nan
        if not math.isfinite(wait_s):
            raise Refused(400, "wait: give seconds")
        key = request.path_params["key"]
        give_up = time.monotonic() + min(wait_s, MOST_WAIT_S)
        while self.book.under_way(key) and time.monotonic() < give_up:  # a thread would be held meanwhile
            await asyncio.sleep(_POLL_S)
        answer = await run_in_threadpool(self.book.answer, key) if key.isalnum() else None
        if answer is None:
            raise Refused(404, "no such order")
        return JSONResponse(answer.model_dump(mode="json"))

    def _authorize(self, request: Request) -> None:
        given = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self.token.encode()):
            raise Refused(401, "send `Authorization: Bearer TOKEN`", {"WWW-Authenticate": "Bearer"})

    def _order(self, submission: Submission) -> GradeOrder:
        loaded = self.tasks.get(submission.task)
        if loaded is None:
            raise Refused(400, f"no task {submission.task!r} here")
        if submission.files is not None:
            given = project_of(submission.files)
        else:
            text = submission.reply or ""
            given = parse_reply(Reply(text=text, model_label="", stop="end", created=utc_now()))
        return GradeOrder(
            task=submission.task,
            task_digest=loaded.task.digest,
            target=self.target,
            protocol=self.protocol,
            given=given,
        )

    def _accept(self, submitted: Sequence[Submission]) -> list[Answer]:
        try:
            return self.book.accept_all([self._order(one) for one in submitted])
        except QueueFull:
            raise Refused(429, "the queue is full", {"Retry-After": _RETRY_S}) from None


async def _body(request: Request) -> Any:
    """The JSON of a request of bounded size."""
    held = bytearray()
    async for chunk in request.stream():
        held += chunk
        if len(held) > MOST_BYTES:
            raise Refused(413, f"a request has at most {MOST_BYTES >> 20} MiB")
    try:
        return json.loads(held)
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON, or nested too deeply") from None


async def _unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


async def _refuse(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response
