"""Recordings: folders of real replies with their prompts, and a model that answers from one (`replay/DIR`).

    recording.json                             what was recorded, and from which tasks and skills
    replies/<task, / as __>/<arm>/<k>.json     repeat k; <k>-turn<n>.json for later turns, and
                                               <k>[-turn<n>]-step<m>.json for later steps of a turn

A recording loads only if every prompt has its digest, and a reply is given only to the very prompt and the
very tools that it answered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self, TypeVar

from pydantic import model_validator

from harness.errors import UsageError
from harness.models import ModelOptions
from harness.records import Briefing, Message, ModelSpec, Record, Reply, Request, Sampling, Tool
from harness.records.reasons import reason_of

MANIFEST: Final = "recording.json"

_STEM = re.compile(r"(?P<repeat>\d+)(?:-turn(?P<turn>[1-9]\d*))?(?:-step(?P<step>[1-9]\d*))?")

_R = TypeVar("_R", bound=Record)


class RecordingMismatch(UsageError):
    """What is asked for is not what was recorded."""


class RecordingManifest(Record):
    """recording.json: what a recording is of."""

    schema_version: Literal[2] = 2
    model_label: str
    """`provider/model` that was asked."""
    date: str
    """UTC, ISO 8601."""
    note: str = ""
    tasks: dict[str, str]
    """Task id to digest."""
    skills: dict[str, str]
    """Skill name to digest."""
    briefing: Briefing
    """Of every prompt."""

    @model_validator(mode="before")
    @classmethod
    def _of_version_1(cls, fields: Any) -> Any:
        """Version 1 had no briefing: its prompts describe the whole format."""
        if isinstance(fields, dict) and fields.get("schema_version") == 1 and "briefing" not in fields:
            return fields | {"schema_version": 2, "briefing": "full"}
        return fields


class RecordedReply(Record):
    """One reply and the prompt that it answers."""

    prompt: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    """That the model could call."""
    prompt_digest: str
    """Over both."""
    reply: Reply

    @model_validator(mode="after")
    def _digest_fits(self) -> Self:
        # Through Request, so that there is one definition of a prompt's digest.
        request = Request(
            messages=self.prompt, sampling=Sampling(), task="", arm="", repeat=0, tools=self.tools
        )
        if request.prompt_digest != self.prompt_digest:
            raise ValueError("the prompt was changed after it was recorded (its digest differs)")
        return self


class ReplyKey(NamedTuple):
    """Where a reply stands in a recording."""

    task: str
    """Task id with `__` for `/`."""
    arm: str
    """Arm kind or Arm.id."""
    repeat: int
    turn: int
    step: int = 0


class Recording(NamedTuple):
    """A recording in memory, all digests checked."""

    folder: Path
    manifest: RecordingManifest
    replies: Mapping[ReplyKey, RecordedReply]


def load(folder: Path) -> Recording:
    """Read a whole recording. Raises UsageError for a missing, damaged or altered one, naming the file."""
    manifest = read_manifest(folder)
    replies = {}
    for path in sorted((folder / "replies").glob("*/*/*.json")):
        stem = _STEM.fullmatch(path.stem)
        if stem is None:
            raise UsageError(f"{path} is no reply: expected <repeat>[-turn<n>][-step<m>].json")
        numbers = (int(stem[name] or 0) for name in ("repeat", "turn", "step"))
        replies[ReplyKey(path.parts[-3], path.parts[-2], *numbers)] = _read(path, RecordedReply)
    return Recording(folder, manifest, replies)


def read_manifest(folder: Path) -> RecordingManifest:
    """What a recording is of. Raises UsageError where there is none, or it is damaged."""
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder.absolute()} is no recording: it has no {MANIFEST}")
    return _read(folder / MANIFEST, RecordingManifest)


def task_folder(task: str) -> str:
    """A task id as a folder name: `l1/add` is `l1__add`."""
    return task.replace("/", "__")


def _read(path: Path, kind: type[_R]) -> _R:
    """One record from a file. Raises UsageError that names the file."""
    try:
        return kind.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:  # pydantic's and UTF-8 errors are ValueErrors
        raise UsageError(f"{path}: {reason_of(error)}") from error


class ReplayModel:
    """Recorded replies, instead of asking anyone. DIR is absolute or relative to the working directory."""

    recorded: Final = True
    """Nothing is asked, and nothing paid."""

    def __init__(self, spec: ModelSpec, options: ModelOptions | None = None) -> None:
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
        folder = self.recording.folder
        asked = f"task {request.task}, arm {request.arm}, repeat {request.repeat}, turn {request.turn}"
        asked += f", step {request.step}" if request.step else ""
        # By kind: a skill that changed has changed its arm's id.
        recorded = next((entry for key, entry in here.items() if _kind(key.arm) == _kind(request.arm)), None)
        if recorded is None:
            held = sorted({f"{k.task} {k.arm} {k.repeat}" for k in here or self.recording.replies})
            return f"{folder} holds no reply for {asked}; it has {', '.join(held[:3])}"
        because = "the prompt has changed since the recording was made"
        if recorded.tools != request.tools:
            because = "the tools have changed since the recording was made"
        elif request.turn:
            because = "a later turn quotes the compiler, whose words depend on the machine"
        elif request.step:
            because = "a later step quotes the results of tools, which have changed since then"
        return (
            f"{folder} does not answer this prompt ({asked}): {because} "
            f"({self.recording.manifest.date}; digest {recorded.prompt_digest[:12]} then, "
            f"{request.prompt_digest[:12]} now). "
            "Run `liftbench eval` with the recording's own frozen copies of task and skill"
        )


def _kind(arm: str) -> str:
    """The kind in an arm's id: the part before its first hyphen."""
    return arm.partition("-")[0]
