"""Writes recordings, as those of the demo and the studies lie on disk."""

from __future__ import annotations

import json
from pathlib import Path

from harness.files import write_atomically
from harness.models.recording import MANIFEST, RecordedReply, RecordingManifest, task_folder
from harness.records import Record, Reply, Request


def create(folder: Path, manifest: RecordingManifest) -> None:
    """Begin a recording."""
    _write(folder / MANIFEST, manifest)


def write_reply(folder: Path, request: Request, arm: str, reply: Reply) -> Path:
    """Store one reply."""
    turn = f"-turn{request.turn}" if request.turn else ""
    step = f"-step{request.step}" if request.step else ""
    path = folder / "replies" / task_folder(request.task) / arm / f"{request.repeat}{turn}{step}.json"
    _write(
        path,
        RecordedReply(
            prompt=request.messages, tools=request.tools, prompt_digest=request.prompt_digest, reply=reply
        ),
    )
    return path


def _write(path: Path, record: Record) -> None:
    write_atomically(path, json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n")
