"""Recordings: folders of real replies, each with the whole prompt that it answers.

    recording.json                             what was recorded, and from which tasks and skills
    replies/<task, / as __>/<arm>/<k>.json     repeat k; <k>-turn<n>.json for later turns, and
                                               <k>[-turn<n>]-step<m>.json for later steps of a turn

A recording that loads has no prompt that differs from its digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Self, TypeVar

from pydantic import ValidationError, model_validator

from harness.errors import UsageError
from harness.files import write_atomically
from harness.models.prices import Price
from harness.models.protocol import Model
from harness.records import Message, Record, Reply, Request, Sampling, Tool
from harness.records.reasons import reason_of

MANIFEST: Final = "recording.json"
RECORDING_SCHEMA_VERSION: Final = 1
USE_FROZEN_COPIES: Final = (
    "Run `liftbench eval` with the recording's own frozen copies of task and skill, or record anew"
)

_STEM = re.compile(r"(?P<repeat>\d+)(?:-turn(?P<turn>[1-9]\d*))?(?:-step(?P<step>[1-9]\d*))?")
_SAFE_NAME = re.compile(r"\w[\w.+-]*")

_R = TypeVar("_R", bound=Record)


class RecordingMismatch(UsageError):
    """What is asked for is not what was recorded."""


class RecordingManifest(Record):
    """recording.json: what a recording is of."""

    schema_version: Literal[1] = RECORDING_SCHEMA_VERSION
    model_label: str
    """`provider/model` that was asked."""
    date: str
    """UTC, ISO 8601."""
    note: str = ""
    tasks: dict[str, str]
    """Task id to digest."""
    skills: dict[str, str]
    """Skill name to digest."""


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


@dataclass(frozen=True)
class ReplyKey:
    """Where a reply stands in a recording."""

    task: str
    """Task id with `__` for `/`."""
    arm: str
    """Arm kind or Arm.id; only the recorder gives it a meaning."""
    repeat: int
    turn: int
    step: int = 0


@dataclass(frozen=True)
class Recording:
    """A recording in memory, all digests checked."""

    folder: Path
    manifest: RecordingManifest
    replies: Mapping[ReplyKey, RecordedReply]

    def check(self, tasks: Mapping[str, str], skills: Mapping[str, str]) -> None:
        """Raise RecordingMismatch unless these tasks and skills (name to digest) are the recorded ones."""
        for kind, present, recorded in (
            ("task", tasks, self.manifest.tasks),
            ("skill", skills, self.manifest.skills),
        ):
            for name, digest in present.items():
                if name not in recorded:
                    held = ", ".join(sorted(recorded)) or "none"
                    raise RecordingMismatch(f"{self.folder} holds no {kind} {name}; it holds {held}")
                if recorded[name] != digest:
                    raise RecordingMismatch(
                        f"{kind} {name} has changed since {self.folder} was recorded ({self.manifest.date}): "
                        f"digest {recorded[name][:12]} then, {digest[:12]} now. {USE_FROZEN_COPIES}"
                    )


def create(folder: Path, manifest: RecordingManifest) -> None:
    """Begin a recording, or go on with the same one. Raises UsageError when the folder holds another."""
    path = folder / MANIFEST
    if path.exists():
        old = _read(path, RecordingManifest)
        same = (
            old.model_label == manifest.model_label
            and old.tasks == manifest.tasks
            and old.skills == manifest.skills
        )
        if not same:
            raise UsageError(f"{folder} holds a recording of another model, task or skill: name a new folder")
        return
    _write(path, manifest)


def load(folder: Path) -> Recording:
    """Read a whole recording. Raises UsageError for a missing, damaged or altered one, naming the file."""
    if not (folder / MANIFEST).is_file():
        raise UsageError(f"{folder.absolute()} is no recording: it has no {MANIFEST}")
    manifest = _read(folder / MANIFEST, RecordingManifest)
    replies = {}
    for path in sorted((folder / "replies").glob("*/*/*.json")):
        stem = _STEM.fullmatch(path.stem)
        if stem is None:
            raise UsageError(f"{path} is no reply: expected <repeat>[-turn<n>][-step<m>].json")
        numbers = (int(stem[name] or 0) for name in ("repeat", "turn", "step"))
        replies[ReplyKey(path.parts[-3], path.parts[-2], *numbers)] = _read(path, RecordedReply)
    return Recording(folder, manifest, replies)


def task_folder(task: str) -> str:
    """A task id as a folder name: `l1/add` is `l1__add`."""
    return _safe(task.replace("/", "__"), "task")


def reply_path(folder: Path, request: Request, arm: str) -> Path:
    """Where the reply to a request is kept."""
    turn = f"-turn{request.turn}" if request.turn else ""
    step = f"-step{request.step}" if request.step else ""
    name = f"{request.repeat}{turn}{step}.json"
    return folder / "replies" / task_folder(request.task) / _safe(arm, "arm") / name


def write_reply(folder: Path, request: Request, arm_kind: str, reply: Reply) -> Path:
    """Store one reply, atomically; an older reply of the same trial, turn and step is replaced.

    Raises UsageError when a first prompt is there already and differs: two recordings do not share a
    folder. (Prompts of later turns and steps hold what came before, and may differ when repeated.)
    """
    _refuse_other_prompt(folder, request, arm_kind)
    path = reply_path(folder, request, arm_kind)
    entry = RecordedReply(
        prompt=request.messages, tools=request.tools, prompt_digest=request.prompt_digest, reply=reply
    )
    _write(path, entry)
    return path


class RecordingModel:
    """A model whose replies are kept: wraps a real one, for `--record DIR`."""

    def __init__(self, inner: Model, folder: Path) -> None:
        manifest = _read(folder / MANIFEST, RecordingManifest)
        if manifest.model_label != inner.name:
            raise UsageError(f"{folder} is a recording of {manifest.model_label}, not of {inner.name}")
        self._inner = inner
        self._folder = folder

    @property
    def name(self) -> str:
        """The inner model's."""
        return self._inner.name

    @property
    def ignored_parameters(self) -> frozenset[str]:
        """The inner model's."""
        return getattr(self._inner, "ignored_parameters", frozenset())

    @property
    def price(self) -> Price | None:
        """The inner model's."""
        return getattr(self._inner, "price", None)

    def complete(self, request: Request) -> Reply:
        """The inner model's reply, kept before it is handed on."""
        # Before the reply is paid for. The folder is the arm's id: two skills are two arms of one kind.
        _refuse_other_prompt(self._folder, request, request.arm)
        reply = self._inner.complete(request)
        write_reply(self._folder, request, request.arm, reply)
        return reply


def _refuse_other_prompt(folder: Path, request: Request, arm: str) -> None:
    path = reply_path(folder, request, arm)
    if request.turn > 0 or request.step > 0 or not path.exists():
        return
    if _read(path, RecordedReply).prompt_digest != request.prompt_digest:
        raise RecordingMismatch(f"{path} holds the reply to another prompt: name a new folder")


def _safe(name: str, what: str) -> str:
    if not _SAFE_NAME.fullmatch(name):
        raise UsageError(f"{what} {name!r} cannot be a folder name")
    return name


def _read(path: Path, kind: type[_R]) -> _R:
    """One record from a file. Raises UsageError that names the file."""
    try:
        text = path.read_text(encoding="utf-8")
        head = json.loads(text)
        if not isinstance(head, dict):
            raise ValueError("it holds something else")
        version = head.get("schema_version", RECORDING_SCHEMA_VERSION)
        if version != RECORDING_SCHEMA_VERSION:
            raise UsageError(
                f"{path}: schema_version {version}; this liftbench reads {RECORDING_SCHEMA_VERSION}"
            )
        return kind.model_validate_json(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(f"{path}: {reason_of(error)}") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON object: {error}") from error


def _write(path: Path, record: Record) -> None:
    """Atomically and durably: a reply was paid for."""
    text = json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"
    try:
        write_atomically(path, text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
