"""The teacher: a model that is asked for skills, and whose replies are kept.

The same brief is paid for once; a reply is on disk before it is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from pydantic import ValidationError

from harness.files import write_atomically
from harness.models.protocol import Model
from harness.records import Message, Reply, Request, Sampling


class Teacher:
    """One model with a folder for its replies."""

    def __init__(
        self,
        model: Model,
        sampling: Sampling,
        folder: Path,
        waiting: Callable[[str], AbstractContextManager[None]] = lambda what: nullcontext(),
    ) -> None:
        """`waiting` is entered, with a sentence, while the model writes."""
        self._model = model
        self._waiting = waiting
        self._sampling = sampling
        self._folder = folder
        self._asked = 0

    @property
    def name(self) -> str:
        """`provider/model`."""
        return self._model.name

    def ask(self, brief: Sequence[Message]) -> Reply:
        """The reply to a brief: kept from before, or asked for. Raises ProviderError and BudgetSpent."""
        request = Request(
            messages=tuple(brief), sampling=self._sampling, task="skill", arm="teacher", repeat=self._asked
        )
        self._asked += 1
        path = self._folder / f"{request.prompt_digest[:16]}.json"
        try:
            return Reply.model_validate(json.loads(path.read_text(encoding="utf-8"))["reply"])
        except (OSError, ValueError, KeyError, TypeError, ValidationError):
            pass
        with self._waiting(f"teacher {self.name} writes"):
            reply = self._model.complete(request)
        kept = {"prompt": [m.model_dump() for m in brief], "reply": reply.model_dump(mode="json")}
        write_atomically(path, json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
        return reply
