"""Opens a trace, whatever its format, and reads all of it.

JSONL and text are never held as a whole, only their events are; the format is told by the contents, never
by the name.
"""

from __future__ import annotations

import codecs
import contextlib
import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.teaching.traces.collector import Collector
from harness.teaching.traces.documents import document, record
from harness.teaching.traces.event import Event, Trace
from harness.teaching.traces.markdown import MarkdownReader
from harness.teaching.traces.run_folder import TRIALS, read_run

_TRIED: Final = "JSONL and JSON of coding agents and chat APIs, Markdown transcripts, plain logs"
_HEAD: Final = 1 << 16


def read_trace(path: Path, without: Collection[str] = ()) -> Trace:
    """All of the trace at `path`: a file, or the folder of a run, of which tasks in `without` are left out.

    Raises UsageError when nothing is in it.
    """
    out = Collector()
    try:
        if path.is_dir():
            kind, characters = "run folder", _run(out, path, without)
        else:
            kind, characters = _file(out, path)
    except OSError as fault:
        raise UsageError(f"{path} cannot be read: {fault.strerror or fault}") from fault
    if not out.events:
        found = Trace(str(path), kind, characters, (), out.torn, dict(out.unknown)).faults
        what = f" ({'; '.join(found)})" if found else ""
        if path.is_dir() and without:
            what += ", apart from tasks that are to choose or to test the skill"
        raise UsageError(f"{path} holds no event of a trace{what}. Tried: {_TRIED}")
    return Trace(str(path), kind, characters, tuple(out.events), out.torn, dict(out.unknown))


def _run(out: Collector, folder: Path, without: Collection[str]) -> int:
    if not (folder / TRIALS).is_file():
        raise UsageError(
            f"{folder} is a folder without {TRIALS}: name the file of a trace, or the folder of a run"
        )
    return read_run(out, folder, without)


def _file(out: Collector, path: Path) -> tuple[str, int]:
    with path.open("rb") as source:
        head = source.read(_HEAD)
    encoding = _encoding(path, head)
    text = head.decode(encoding, "replace").lstrip("\ufeff \t\r\n")
    if text[:1] in ("{", "["):
        lines = _is_lines(path, encoding)
        characters = _jsonl(out, path, encoding) if lines else _json(out, path, encoding)
        if characters is not None:
            return ("jsonl" if lines else "json"), characters
    return _text(out, path, encoding)


def _encoding(path: Path, head: bytes) -> str:
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        unpack = "; write an inspect_ai log as JSON first (inspect log dump)" if head[:2] == b"PK" else ""
        raise UsageError(f"{path} is no text (it has NUL bytes){unpack}. Tried: {_TRIED}")
    return "utf-8-sig"


def _lines(path: Path, encoding: str) -> Iterator[str]:
    """Lines with their ends; bytes that are no text become U+FFFD."""
    with path.open(encoding=encoding, errors="replace", newline="\n") as source:
        yield from source


def _parsed(line: str) -> Any:
    """The JSON of a line. Raises ValueError, for a document that is nested too deeply as well."""
    try:
        return json.loads(line)
    except RecursionError as fault:
        raise ValueError("nested too deeply") from fault


def _is_lines(path: Path, encoding: str) -> bool:
    """Whether each line is a document: two of the first lines that are not blank parse as objects."""
    whole = seen = 0
    for line in _lines(path, encoding):
        if not line.strip():
            continue
        seen += 1
        with contextlib.suppress(ValueError):
            whole += isinstance(_parsed(line), dict)
        if whole == 2 or seen == 50:
            break
    # one line alone is the same either way, unless it is torn
    return whole >= 2 or (whole == 1 and seen > 1)


def _jsonl(out: Collector, path: Path, encoding: str) -> int:
    characters = 0
    for number, line in enumerate(_lines(path, encoding), 1):
        characters += len(line)
        if not line.strip():
            continue
        try:
            record(out, _parsed(line), f"line {number}")
        except (ValueError, RecursionError):
            out.torn += 1
    return characters


def _json(out: Collector, path: Path, encoding: str) -> int | None:
    """One document; None when it is none, and is to be read as text."""
    text = "".join(_lines(path, encoding))
    try:
        value = _parsed(text)
    except ValueError:
        if text.lstrip()[:1] == "{":
            out.torn += 1
        return None
    try:
        document(out, value, "")
    except RecursionError:  # what was read before it counts
        out.torn += 1
    return len(text)


def _text(out: Collector, path: Path, encoding: str) -> tuple[str, int]:
    characters = 0

    def counted() -> Iterator[str]:
        nonlocal characters
        for line in _lines(path, encoding):
            characters += len(line)
            yield line.rstrip("\r\n")

    reader = MarkdownReader(out)
    reader.read(counted())
    if reader.spoken or reader.fenced:
        return "markdown", characters
    # Nobody speaks: a log, all of it the output of something.
    for index, event in enumerate(out.events):
        out.events[index] = Event(index, "tool", "tool_result", event.text, event.place, line=event.line)
    return "log", characters
