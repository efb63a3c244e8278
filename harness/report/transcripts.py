"""What a run folder holds of each trial beside its record: prompts, source files and the build's log."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.records import Project, ProjectFile, TrialRecord
from harness.student.answer import parse_reply
from harness.study.store import RunStore
from harness.suite.catalogue import read_project
from harness.text import clean, redact

LOG_CHARS: Final = 3_000
"""Of the end of a build's log."""
_END_OF_SKILL: Final = "</skill>\n\n"
"""A task's text follows it; it is the same with and without a skill."""
_SHORTEST_FILE: Final = 20
"""Characters from which a file in a reply is replaced by its name."""


@dataclass(frozen=True)
class Said:
    """One message of the exchange, cleaned."""

    role: str
    """`system prompt`, `skill`, `prompt`, `file tool`, `feedback` or `reply`."""
    turn: int
    text: str


@dataclass(frozen=True)
class Transcript:
    """One trial. What the run folder does not hold is empty."""

    exchange: tuple[Said, ...] = ()
    """In order. In replies, files of the graded project are replaced by their paths."""
    files: tuple[ProjectFile, ...] = ()
    """Of the last project that was graded."""
    log: str = ""
    """The end of the build's log."""


def read_transcript(store: RunStore, trial: TrialRecord) -> Transcript:
    """Everything is cleaned, and what looks like a secret is redacted."""
    turn = trial.project_turn
    last = store.turn_folder(trial.key, turn or 0)
    files = () if turn is None else _files(last, trial, turn)
    return Transcript(_exchange(store, trial, files), files, _log(last / "build.log"))


def _shown(text: str) -> str:
    return redact(clean(text))


def _files(folder: Path, trial: TrialRecord, turn: int) -> tuple[ProjectFile, ...]:
    """From the folder, else from the reply."""
    found: object = None
    try:
        found = read_project(folder / "project")
    except UsageError:
        found = parse_reply(trial.turns[turn].reply)
    files = found.files if isinstance(found, Project) else ()
    return tuple(ProjectFile(path=clean(one.path), text=_shown(one.text)) for one in files)


def _log(path: Path) -> str:
    """The last lines, at most LOG_CHARS."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - 2 * LOG_CHARS))
            text = _shown(file.read().decode(errors="replace"))
    except OSError:
        return ""
    if len(text) <= LOG_CHARS and size <= 2 * LOG_CHARS:
        return text.strip("\n")
    return "...\n" + text[-LOG_CHARS:].partition("\n")[2].strip("\n")


def _exchange(store: RunStore, trial: TrialRecord, files: tuple[ProjectFile, ...]) -> tuple[Said, ...]:
    said, seen = list[Said](), 0
    for turn in trial.turns:
        for step, reply in enumerate(turn.replies):
            told, seen = _prompts(store, trial, turn.index, step, seen)
            said += told
            calls = [f"\n[calls {call.name}({call.arguments})]" for call in reply.tool_calls]
            said.append(Said("reply", turn.index, _without(_shown("".join((reply.text, *calls))), files)))
    return tuple(said or _prompts(store, trial, 0, 0, 0)[0])


def _prompts(store: RunStore, trial: TrialRecord, turn: int, step: int, seen: int) -> tuple[list[Said], int]:
    """Messages after the first `seen` of a stored prompt, without replies; nothing where it is not stored."""
    try:
        messages = store.request(trial.key, turn=turn, step=step).messages
    except UsageError:
        return [], seen
    roles = {"system": "system prompt", "user": "feedback" if turn else "prompt", "tool": "file tool"}
    told = [
        Said(role, turn, text)
        for message in messages[seen:]
        if message.role in roles
        for role, text in _parts(roles[message.role], _shown(message.content))
    ]
    return told, len(messages)


def _parts(role: str, text: str) -> list[tuple[str, str]]:
    """A message, with the skills in front of a task apart."""
    skill, end, task = text.rpartition(_END_OF_SKILL)
    return [("skill", skill + end), (role, task)] if skill.startswith("<skill ") else [(role, text)]


def _without(text: str, files: tuple[ProjectFile, ...]) -> str:
    """A reply without the files that are shown beside it."""
    for file in sorted(files, key=lambda one: -len(one.text)):
        if len(file.text) >= _SHORTEST_FILE:
            text = text.replace(file.text.strip("\n"), f"[{file.path}: below]")
    return text
