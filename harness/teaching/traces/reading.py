"""Opens a trace and reads all of it, whatever its format.

The format is detected from the contents, never from the name. JSONL is read line by line: only its events
are kept in memory.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harness.errors import UsageError
from harness.outcome import Verdict
from harness.records import Grade, TrialRecord
from harness.teaching.traces.events import Collector, Trace
from harness.teaching.traces.markdown import MarkdownReader
from harness.teaching.traces.sessions import SessionReader

TRIALS: Final = "trials.jsonl"
_FORMATS: Final = (
    "sessions of Claude Code and Codex, JSON or JSONL of chat messages, Markdown transcripts, plain logs, "
    "folders of our own runs"
)
_HEAD_BYTES: Final = 1 << 16
_PASSED: Final = (Verdict.CORRECT, Verdict.NOT_MEASURED)


def read_trace(path: Path, without: Collection[str] = ()) -> Trace:
    """The trace at `path`: a file, or the folder of a run, less the tasks in `without`.

    Raises UsageError when it cannot be read or holds no event.
    """
    out = Collector()
    try:
        kind, characters = ("run folder", _run(out, path, without)) if path.is_dir() else _file(out, path)
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror or fault}") from fault
    trace = Trace(kind, characters, tuple(out.events), out.torn, dict(out.unknown))
    if not trace.events:
        why = f" ({'; '.join(trace.skipped)})" if trace.skipped else ""
        if path.is_dir() and without:
            why += ", apart from tasks that are to choose or to test the skill"
        raise UsageError(f"{path} holds no event of a trace{why}. What can be read: {_FORMATS}")
    return trace


def _file(out: Collector, path: Path) -> tuple[str, int]:
    """The format and the number of characters of a file."""
    with path.open("rb") as source:
        head = source.read(_HEAD_BYTES)
    if b"\0" in head:
        raise UsageError(f"{path} is not text: it has NUL bytes. What can be read: {_FORMATS}")
    first = head.decode("utf-8", "replace").lstrip("\ufeff \t\r\n")[:1]
    if first == "{" and _is_jsonl(path):
        return "jsonl", _jsonl(out, path)
    text = "".join(_lines(path))
    if first in ("{", "[") and _json(out, text):
        return "json", len(text)
    return _markdown(out, text), len(text)


def _lines(path: Path) -> Iterator[str]:
    """Lines with their ends; bytes that are not text become U+FFFD."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="\n") as source:
        yield from source


def _parsed(text: str) -> Any:
    """The JSON value. Raises ValueError, also for a value that is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError as fault:
        raise ValueError("nested too deeply") from fault


def _is_jsonl(path: Path) -> bool:
    """Whether one of the first two lines, of more than one, is a whole object: the first may be torn."""
    lines = list(islice((line for line in _lines(path) if line.strip()), 2))
    for line in lines if len(lines) > 1 else ():
        try:
            if isinstance(_parsed(line), dict):
                return True
        except ValueError:
            continue
    return False


def _jsonl(out: Collector, path: Path) -> int:
    characters = 0
    reader = SessionReader(out)
    for number, line in enumerate(_lines(path), 1):
        characters += len(line)
        if not line.strip():
            continue
        try:
            reader.document(_parsed(line), f"line {number}")
        except (ValueError, RecursionError):
            out.torn += 1
    return characters


def _json(out: Collector, text: str) -> bool:
    """Read one document; False when it is not JSON."""
    try:
        value = _parsed(text)
    except ValueError:
        out.torn += text.lstrip()[:1] == "{"
        return False
    try:
        SessionReader(out).document(value)
    except RecursionError:  # the events before it count
        out.torn += 1
    return True


def _markdown(out: Collector, text: str) -> str:
    reader = MarkdownReader(out)
    reader.read(text.replace("\r\n", "\n"))
    if reader.is_log:
        out.events = [replace(event, role="tool", kind="tool_result") for event in out.events]
    return "log" if reader.is_log else "markdown"


# --- our own runs -----------------------------------------------------------------------------


def _run(out: Collector, folder: Path, without: Collection[str]) -> int:
    """Prompts, replies and grades of a run; returns the characters read."""
    if not (folder / TRIALS).is_file():
        raise UsageError(
            f"{folder} is a folder without {TRIALS}: name the file of a trace, or the folder of a run"
        )
    characters = 0
    prompted: set[str] = set()
    for number, line in enumerate(_lines(folder / TRIALS), 1):
        characters += len(line)
        try:
            trial = TrialRecord.model_validate_json(line)
        except ValidationError:
            out.torn += bool(line.strip())
            continue
        if trial.key.task in without:
            continue
        if trial.key.task not in prompted:
            prompted.add(trial.key.task)
            characters += _prompt(out, folder / trial.key.folder / "prompt.json")
        _trial(out, trial, f"{TRIALS} line {number}")
    return characters


def _prompt(out: Collector, path: Path) -> int:
    """The prompt of a task's first trial; an interrupted run may lack it."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        messages = json.loads(text)["messages"]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    SessionReader(out).document(messages, f"{path.name}, messages")
    return len(text)


def _trial(out: Collector, trial: TrialRecord, place: str) -> None:
    """The replies and grades of a trial."""
    name = trial.key.folder.removeprefix("trials/")
    for turn in trial.turns:
        where = f"{place}, turns[{turn.index}]"
        out.say("assistant", turn.reply.text, f"{where}.reply")
        if turn.grade is not None:
            call, failed = f"{name}/{turn.index}", turn.grade.verdict not in _PASSED
            out.called("grade", {"command": f"grade {name}"}, f"{where}.grade", call=call)
            out.returned(_words(turn.grade), f"{where}.grade", call=call, is_error=failed)


def _words(grade: Grade) -> str:
    """The verdict, the errors of a failed build with their lines of source, and the speedup."""
    lines = [f"verdict: {grade.verdict.value}"]
    if grade.verdict not in _PASSED:
        lines[0] += f" ({grade.finding.cause.value}): {grade.finding.message}"
    for found in grade.build.diagnostics if grade.build is not None else ():
        place = f"{found.file}:{found.line}: " if found.file else ""
        lines += [f"{place}error: {found.message}", *([found.source] if found.source else [])]
    if grade.timing is not None:
        lines.append(f"speedup over the reference: {grade.timing.speedup.value:.3f}x")
    return "\n".join(lines)
