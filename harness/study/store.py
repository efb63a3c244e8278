"""The run folder. A torn line of trials.jsonl counts as unfinished; replies are on disk before they are
graded."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from pydantic import ValidationError

from harness.errors import UsageError
from harness.files import append_line, write_atomically
from harness.locks import held_by
from harness.records import Grade, Project, Record, Reply, Request, RunRecord, TrialKey, TrialRecord, utc_now
from harness.records.reasons import reason_of

_RUN = "run.json"
_TRIALS = "trials.jsonl"
_NOTES = "notes.jsonl"
_OF_AN_ATTEMPT = ("build.log", "check.json", "timing.json")
"""Files that differ between attempts; prompt, reply and project do not."""


@dataclass(frozen=True)
class RunStore:
    folder: Path

    @classmethod
    def create(cls, folder: Path, run: RunRecord) -> RunStore:
        folder.mkdir(parents=True)
        write_atomically(folder / _RUN, run.model_dump_json(indent=1) + "\n")
        return cls(folder)

    def run(self) -> RunRecord:
        """run.json. Raises UsageError when it is missing, damaged, or of another schema."""
        path = self.folder / _RUN
        try:
            text = path.read_text()
        except OSError as error:
            raise UsageError(f"{self.folder} is no run: {_RUN} cannot be read ({error.strerror})") from None
        try:
            head = json.loads(text)
            if not isinstance(head, dict):
                raise ValueError("it holds no JSON object")
            version = head.get("schema_version")
            if version != 1:
                raise UsageError(f"{path} has schema version {version}; this liftbench reads version 1")
            return RunRecord.model_validate_json(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is damaged: {reason_of(error)}") from None

    def append(self, trial: TrialRecord) -> None:
        """Append a finished trial and fsync."""
        append_line(self.folder / _TRIALS, trial.model_dump_json())

    def note(self, text: str) -> None:
        """Append what happened to the machines of the run."""
        append_line(self.folder / _NOTES, json.dumps({"at": utc_now(), "text": text}))

    def notes(self) -> list[str]:
        """All notes, oldest first."""
        path = self.folder / _NOTES
        return [json.loads(line)["text"] for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def trials_bytes(self) -> int:
        """Size of trials.jsonl, which only grows."""
        path = self.folder / _TRIALS
        return path.stat().st_size if path.exists() else 0

    def lines(self) -> Iterator[TrialRecord | None]:
        """Every line of trials.jsonl; None for one that is no trial."""
        path = self.folder / _TRIALS
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                yield TrialRecord.model_validate_json(line)
            except ValidationError:
                yield None

    def load(self) -> list[TrialRecord]:
        """All trials, the last one of each key; lines that are no trial are ignored."""
        return list({trial.key: trial for trial in self.lines() if trial is not None}.values())

    def turn_folder(self, key: TrialKey, turn: int = 0) -> Path:
        """Folder of one turn; the first turn's is the trial's."""
        folder = self.folder / key.folder
        return folder / f"turn-{turn}" if turn else folder

    def write_prompt(self, key: TrialKey, request: Request) -> None:
        """Store a request before it is sent: a later turn's prompt quotes times and cannot be made again."""
        path = self._exchange(key, "prompt", request.turn, request.step)
        write_atomically(path, request.model_dump_json(indent=1) + "\n")

    def write_reply(self, key: TrialKey, generation_key: str, request: Request, reply: Reply) -> None:
        paid = {"generation_key": generation_key, "reply": reply.model_dump(mode="json")}
        path = self._exchange(key, "reply", request.turn, request.step)
        write_atomically(path, json.dumps(paid, indent=1) + "\n")

    def paid_reply(self, key: TrialKey, generation_key: str, *, turn: int = 0, step: int = 0) -> Reply | None:
        """The stored reply of this generation key, or None."""
        path = self._exchange(key, "reply", turn, step)
        try:
            paid = json.loads(path.read_text())
            return Reply.model_validate(paid["reply"]) if paid["generation_key"] == generation_key else None
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def request(self, key: TrialKey, *, turn: int = 0, step: int = 0) -> Request:
        """A stored request. Raises UsageError where there is none."""
        path = self._exchange(key, "prompt", turn, step)
        try:
            return Request.model_validate_json(path.read_text())
        except (OSError, ValueError):
            raise UsageError(f"{path} is missing or damaged") from None

    def _exchange(self, key: TrialKey, what: str, turn: int, step: int) -> Path:
        name = f"{what}-step-{step}.json" if step else f"{what}.json"
        return self.turn_folder(key, turn) / name

    def copy_exchanges(self, other: RunStore, key: TrialKey) -> None:
        """Copy the prompts and replies of a trial of another run, except those that are here."""
        source, target = other.folder / key.folder, self.folder / key.folder
        for path in (p for place in (".", "turn-*") for p in source.glob(f"{place}/*.json")):
            copy = target / path.relative_to(source)
            if path.name.startswith(("prompt", "reply")) and not copy.exists():
                write_atomically(copy, path.read_text())

    def write_project(self, key: TrialKey, project: Project, turn: int = 0) -> None:
        """Write the project's files; their paths were checked by the parser."""
        base = self.turn_folder(key, turn) / "project"
        for file in project.files:
            write_atomically(base / file.path, file.text)

    def set_aside(self, key: TrialKey, turn: int = 0) -> None:
        """Move files of a failed attempt to attempt-N/ (N from 1)."""
        folder = self.turn_folder(key, turn)
        left = [folder / name for name in _OF_AN_ATTEMPT if (folder / name).exists()]
        if left:
            aside = folder / f"attempt-{len(list(folder.glob('attempt-*'))) + 1}"
            aside.mkdir()
            for path in left:
                path.replace(aside / path.name)

    def write_grade(self, key: TrialKey, grade: Grade, turn: int = 0) -> None:
        """Write check.json and timing.json, and remove those of stages that were not reached."""
        parts: dict[str, Record | None] = {"check.json": grade.check, "timing.json": grade.timing}
        for name, part in parts.items():
            path = self.turn_folder(key, turn) / name
            if part is None:
                path.unlink(missing_ok=True)
            else:
                write_atomically(path, part.model_dump_json(indent=1) + "\n")


@contextlib.contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Hold a folder's writer lock. Raises UsageError when another process does."""
    lock = FileLock(folder / ".lock")
    try:
        with lock.acquire(timeout=0):
            yield
    except Timeout:
        who = held_by(folder / ".lock")
        raise UsageError(
            f"another liftbench is at work in {folder}: {who}. Wait until it has ended"
        ) from None


def find_run(root: Path, name: str) -> RunStore:
    """A run by folder, or by name (or the end of one) below `root`. Raises UsageError."""
    direct = Path(name)
    if (direct / _RUN).is_file():
        return RunStore(direct)
    found = sorted(p.parent for p in root.glob(f"*/{_RUN}") if p.parent.name.endswith(name) or name == "last")
    if not found:
        raise UsageError(
            f"no run {name!r}: neither a folder with {_RUN} nor one below {root} "
            "(--runs-dir names another folder; the demo's is runs/demo)"
        )
    return RunStore(found[-1])


def all_runs(root: Path) -> list[RunStore]:
    """Every run below `root`, oldest first."""
    return [RunStore(p.parent) for p in sorted(root.glob(f"*/{_RUN}"))]
