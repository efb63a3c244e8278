"""A model that answers from a recording: `replay/DIR`.

A reply is given only to the very prompt, and the very tools, that it answered.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.models.recording import (
    USE_FROZEN_COPIES,
    RecordedReply,
    RecordingMismatch,
    ReplyKey,
    load,
    task_folder,
)
from harness.records import ModelSpec, Reply, Request


class ReplayModel:
    """Recorded replies, instead of asking anyone. DIR is absolute or relative to the working directory."""

    recorded: Final = True
    """Nothing is asked, and nothing paid."""

    def __init__(self, spec: ModelSpec) -> None:
        self.name = spec.name
        self.recording = load(Path(spec.model))

    def complete(self, request: Request) -> Reply:
        """The recorded reply, latency and cost as they were. Raises RecordingMismatch when there is none."""
        place = (task_folder(request.task), request.repeat, request.turn, request.step)
        here = {
            key: entry
            for key, entry in self.recording.replies.items()
            if (key.task, key.repeat, key.turn, key.step) == place
        }
        fitting = [key for key, entry in here.items() if entry.prompt_digest == request.prompt_digest]
        if not fitting:
            raise RecordingMismatch(self._why_not(request, here))
        # Two arms may have one prompt (a skill without text): then each gets its own reply.
        chosen = min(fitting, key=lambda key: (key.arm != request.arm, _kind(key.arm) != _kind(request.arm)))
        return here[chosen].reply.model_copy(update={"recorded": True})

    def _why_not(self, request: Request, here: dict[ReplyKey, RecordedReply]) -> str:
        folder, task = self.recording.folder, task_folder(request.task)
        held = [key for key in self.recording.replies if key.task == task]
        asked = f"task {request.task}, arm {request.arm}, repeat {request.repeat}, turn {request.turn}"
        asked += f", step {request.step}" if request.step else ""
        if not held:
            return f"{folder} holds no reply for task {request.task}"
        if not here:
            at = (request.turn, request.step)
            repeats = sorted({key.repeat for key in held if (key.turn, key.step) == at})
            having = f"repeats {', '.join(map(str, repeats))}" if repeats else "none"
            where = "task, turn and step" if request.step else "task and turn"
            return f"{folder} holds no reply for {asked}; of that {where} it has {having}"
        # By kind: a skill that changed has changed its arm's id.
        same_kind = (entry for key, entry in here.items() if _kind(key.arm) == _kind(request.arm))
        recorded = next(same_kind, None)
        if recorded is None:
            return f"{folder} holds no reply for {asked}; it has {', '.join(sorted(k.arm for k in here))}"
        because = "the prompt has changed since the recording was made"
        if recorded.tools != request.tools:
            because = "the tools have changed since the recording was made"
        elif request.turn:
            because = "a later turn quotes the compiler, whose words depend on the machine"
        elif request.step:
            because = "a later step quotes what the tools answered, which has changed since then"
        return (
            f"{folder} does not answer this prompt ({asked}): {because} "
            f"({self.recording.manifest.date}; digest {recorded.prompt_digest[:12]} then, "
            f"{request.prompt_digest[:12]} now). {USE_FROZEN_COPIES}"
        )


def _kind(arm: str) -> str:
    """The kind in an arm's id: what stands before its first hyphen."""
    return arm.partition("-")[0]
