"""Opens a trace and reads all of it, whatever its format.

The format is detected from the contents, never from the name. JSONL is read line by line: only its events
are kept in memory.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.outcome import Verdict
from harness.records import Grade, TrialRecord
from harness.study.store import RunStore
from harness.teaching.traces.events import Collector, Kind, Piece, Role, Trace, pieces
from harness.teaching.traces.sessions import SessionReader

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


# --- our own runs -----------------------------------------------------------------------------


def _run(out: Collector, folder: Path, without: Collection[str]) -> int:
    """Prompts, replies and grades of a run; returns the characters that were read."""
    if not (folder / "run.json").is_file():
        raise UsageError(f"{folder} holds no run.json: name the file of a trace, or the folder of a run")
    store, prompted = RunStore(folder), set[str]()
    for trial in store.load():
        task = trial.key.task
        if task in without:
            continue
        if task not in prompted:
            prompted.add(task)
            with contextlib.suppress(UsageError):  # an interrupted run may lack it
                for message in store.request(trial.key).messages:
                    out.say(message.role, message.content, f"{trial.key.folder}/prompt.json")
        _trial(out, trial)
    return sum(len(event.text) for event in out.events)


def _trial(out: Collector, trial: TrialRecord) -> None:
    """The replies and grades of a trial."""
    name = trial.key.folder.removeprefix("trials/").replace("/", "-")
    for turn in trial.turns:
        place = f"{trial.key.folder}, turn {turn.index}"
        out.say("assistant", turn.reply.text, place)
        if turn.grade is not None:
            call, failed = f"{name}/{turn.index}", turn.grade.verdict not in _PASSED
            out.called("grade", {"command": f"grade {name}"}, place, call=call)
            out.returned(_words(turn.grade), f"{place}, grade", call=call, is_error=failed)


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


# --- Markdown transcripts and logs -------------------------------------------------------------

_SHELL: Final = frozenset(("bash", "sh", "shell", "zsh", "console", "terminal", "powershell", "cmd"))
_OUTPUT: Final = frozenset(("", "text", "txt", "output", "log", "plaintext", "stdout", "stderr", "pytb"))
_SPEAKERS: Final[dict[str, tuple[Role, Kind]]] = {
    **dict.fromkeys(("user", "human", "you", "prompt"), ("user", "text")),
    **dict.fromkeys(("assistant", "claude", "codex", "model", "agent", "ai"), ("assistant", "text")),
    **dict.fromkeys(("thinking", "reasoning"), ("assistant", "thinking")),
    **dict.fromkeys(("system", "developer"), ("system", "text")),
    **dict.fromkeys(("tool call", "tool use", "tool input"), ("assistant", "tool_call")),
    **dict.fromkeys(("tool", "tool result", "tool output", "observation"), ("tool", "tool_result")),
}
_NAMES: Final = "|".join(sorted((w.replace(" ", "[ _]") for w in _SPEAKERS), key=len, reverse=True))
_MARKER = re.compile(
    # A heading, bold text, or the bare name; emoji and numbers may precede the name.
    r"^(?:#{1,6}\s|\*\*|__|(?=(?:User|Human|Assistant|System|Tool|Claude|AI)\s*:))"
    rf"[\W\d]{{0,20}}?(?i:({_NAMES}))\b"
    # A model's name or a time may follow it.
    r"(?:\s*[(\[][^)\]]{0,80}[)\]])?(?:\*\*|__)?\s*"
    r"(?:(?::|\s[\u2013\u2014-]\s)\s*(?:\*\*|__)?\s*(?P<rest>.*?)(?:\*\*|__)?|\W*)$"
)
_TOOL_NAME = re.compile(r"[`*_]*([\w.:-]{1,60}?)[`*_]*")
_MARKER_LIMIT: Final = 400
_LONG: Final = 16_000
"""A blank line ends an event of more characters."""


def _markdown(out: Collector, text: str) -> str:
    reader = MarkdownReader(out)
    reader.read(text.replace("\r\n", "\n"))
    if reader.is_log:
        out.events = [replace(event, role="tool", kind="tool_result") for event in out.events]
    return "log" if reader.is_log else "markdown"


class MarkdownReader:
    """Reads one text into a collector."""

    def __init__(self, out: Collector) -> None:
        self._out = out
        self._role: Role = "assistant"
        self._kind: Kind = "text"
        self._tool: str | None = None
        self._lines: list[str] = []
        self._start = 1
        self._size = 0
        self.is_log = True
        """Nobody is named as a speaker, and there is no fenced block."""

    def read(self, text: str) -> None:
        """The whole text."""
        for piece in pieces(text):
            if piece.block is not None:
                self.is_log = False
                self._flush()
                self._block(piece)
                continue
            for number, line in enumerate(piece.text.split("\n"), piece.line):
                if not self._marker(line, number):
                    self._take(line, number)
        self._flush()

    def _take(self, line: str, number: int) -> None:
        if not self._lines:
            self._start = number
        self._lines.append(line)
        self._size += len(line)
        if self._size > _LONG and not line.strip():
            self._flush()

    def _marker(self, line: str, number: int) -> bool:
        """Whether the line says who speaks from here on."""
        named = _MARKER.match(line) if len(line) <= _MARKER_LIMIT else None
        if named is None:
            return False
        self._flush()
        self.is_log = False
        self._role, self._kind = _SPEAKERS[named[1].lower().replace("_", " ")]
        self._tool, rest = None, (named["rest"] or "").strip()
        if self._kind in ("tool_call", "tool_result") and (tool := _TOOL_NAME.fullmatch(rest)) is not None:
            self._tool, rest = tool[1], ""
        if rest:
            self._take(rest, number)
        return True

    def _add(self, role: Role, kind: Kind, text: str, line: int) -> None:
        of_tool = kind in ("tool_call", "tool_result")
        arguments = {"command": text} if kind == "tool_call" else {}
        tool = self._tool if of_tool else None
        self._out.add(role, kind, text, f"line {line}", tool=tool, arguments=arguments, line=line)

    def _flush(self) -> None:
        self._add(self._role, self._kind, "\n".join(self._lines), self._start)
        self._lines, self._size = [], 0

    def _block(self, piece: Piece) -> None:
        """A fenced block: a command, its output, or code, by its language and by who speaks."""
        language = (piece.block.info.split() or [""])[0].lower() if piece.block else ""
        if self._role == "user" or self._kind == "thinking":
            self._add(self._role, self._kind, piece.text, piece.line)
        elif self._kind == "tool_result" or language in _OUTPUT:
            self._add("tool", "tool_result", piece.text, piece.line)
        elif self._kind == "tool_call" and piece.text.lstrip().startswith("{"):  # arguments as JSON
            self._out.called(self._tool, piece.text, f"line {piece.line}")
        elif self._kind == "tool_call" or language in _SHELL:
            self._commands(piece)
        else:
            place, arguments = f"line {piece.line}", piece.arguments
            self._out.add("assistant", "code", piece.text, place, arguments=arguments, line=piece.line)

    def _commands(self, piece: Piece) -> None:
        """Commands; where some begin with `$ `, the lines below those are their output."""
        lines = list(enumerate(piece.text.split("\n"), piece.line))
        prompted = any(line.startswith("$ ") for _, line in lines)
        for is_command, group in groupby(lines, lambda x: not prompted or x[1].startswith("$ ")):
            numbers, texts = zip(*group, strict=True)
            text = "\n".join(line.removeprefix("$ ") if is_command else line for line in texts)
            if is_command:
                self._add("assistant", "tool_call", text, numbers[0])
            else:
                self._add("tool", "tool_result", text, numbers[0])
