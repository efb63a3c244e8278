"""Finds errors in the text of an event, line by line.

Pure; linear in the text, whatever it holds. What an agent says is matched more strictly than what a tool
printed, as an agent talks about errors that nothing has shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.teaching.traces.event import Event
from harness.teaching.traces.patterns import PATTERNS, Category, has_cue

_LINE_LIMIT: Final = 1_000
_HEADLINE_LIMIT: Final = 400
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-_])")


@dataclass(frozen=True)
class Fault:
    """One error in one event."""

    category: Category
    headline: str
    """The line that names it, without its place in a source file."""
    line: int
    """Of the event's text, from 0: where it begins."""
    end: int
    """Its last line."""
    consequence: bool = False
    """Such as `ninja: build stopped`: counts only where nothing in the event says why."""


_EXCEPTION = re.compile(r"^(?:[a-zA-Z_]\w*\.)*[A-Za-z_]\w*(?:: .*)?$")
_TRACEBACK: Final = "Traceback (most recent call last)"
_NEXT_LINES: Final = 2


def faults_of(event: Event) -> list[Fault]:
    """All errors that the event shows, in order; consequences only where they stand alone."""
    if event.kind in ("tool_call", "thinking"):  # what was asked for or thought of has not happened
        return []
    printed = event.role in ("tool", "user", "system")
    found = list(_scan(event.text, printed)) if has_cue(event.text) else []
    causes = [f for f in found if not f.consequence]
    compiled = any(f.category in ("compile", "link", "build") for f in causes)
    if compiled:  # torch's and subprocess's own exceptions only repeat that a compiler failed
        causes = [f for f in causes if not (f.category == "python" and _repeats(f.headline))]
    if causes or found:
        return causes or found[-1:]
    if event.is_error:
        lines = event.text.split("\n")
        first = next((i for i, line in enumerate(lines) if line.strip()), 0)
        return [Fault("other", _clip(lines[first].strip()), first, first)]
    return []


def _repeats(headline: str) -> bool:
    cues = (
        "error compiling",
        "error building",
        "calledprocesserror",
        "compilation failed",
        "failed to build",
    )
    return any(cue in headline.lower() for cue in cues)


def _scan(text: str, printed: bool) -> Iterator[Fault]:
    lines = text.splitlines()
    if "\x1b" in text:
        lines = [_ANSI.sub("", line) for line in lines]
    index = 0
    while index < len(lines):
        line = lines[index][:_LINE_LIMIT]
        if _TRACEBACK in line:
            fault = _traceback(lines, index)
            yield fault
            index = fault.end + 1
            continue
        if has_cue(line):
            found = _match(line, lines, index, printed)
            if found is not None:
                yield found
        index += 1


def _match(line: str, lines: list[str], index: int, printed: bool) -> Fault | None:
    # `E   ` is pytest's, `> ` and `| ` are quotes, `[3/7] ` is ninja's
    bare = re.sub(r"^\s*(?:E\s{2,}|[>|]\s+|\[\d+/\d+\]\s+|(?:stderr|stdout): )*", "", line).strip()
    for pattern in PATTERNS:
        if pattern.loose and not printed:
            continue
        found = pattern.regex.search(bare)
        if found is None:
            continue
        groups = found.groups() or (bare,)
        headline = next((g for g in groups if g), "").strip()
        end = index
        if not headline:  # the tool says what on the next line that is not blank
            following = [
                i for i in range(index + 1, min(index + 1 + _NEXT_LINES, len(lines))) if lines[i].strip()
            ]
            end = following[0] if following else index
            headline = lines[end].strip() if following else bare
        category: Category = (
            _finer(headline) or pattern.category if pattern.category == "python" else pattern.category
        )
        return Fault(category, _clip(headline), index, end, pattern.consequence)
    return None


def _traceback(lines: list[str], start: int) -> Fault:
    """From `Traceback` to the line that names the exception, which is indented no deeper."""
    head = lines[start]
    column = head.index(_TRACEBACK)
    limit = min(len(lines), start + 400)
    for index in range(start + 1, limit):
        line = lines[index]
        text = line[column:] if not line[:column].strip() or line[:column] == head[:column] else line.strip()
        if not text.strip() or text.startswith((" ", "\t")):
            continue
        if _TRACEBACK in line:  # a torn one
            break
        if _EXCEPTION.match(text[:_LINE_LIMIT].strip()):
            headline = text.strip()
            if headline.endswith(":"):  # the message begins on the next line
                headline += " " + next((x.strip() for x in lines[index + 1 : index + 3] if x.strip()), "")
            return Fault(_finer(headline) or "python", _clip(headline), start, index)
        break
    shown = next((x.strip() for x in reversed(lines[start : start + 3]) if x.strip()), _TRACEBACK)
    return Fault("python", _clip(f"traceback that is cut off: {shown}"), start, start)


def _finer(headline: str) -> Category | None:
    """What an exception is really about."""
    low = headline.lower()
    if "cuda" in low and (
        "error" in low.partition(":")[2] or "out of memory" in low or "kernel image" in low
    ):
        return "cuda"
    if "not close" in low or "not equal" in low or ("assert" in low and "mismatch" in low):
        return "wrong result"
    if "undefined symbol" in low or "cannot open shared object" in low:
        return "link"
    if "timeout" in low.partition(":")[0]:
        return "timeout"
    return None


def _clip(text: str) -> str:
    return text if len(text) <= _HEADLINE_LIMIT else text[: _HEADLINE_LIMIT - 1] + "…"


_PATH = re.compile(r"(?:[A-Za-z]:)?[~.\w+-]*(?:[/\\][\w.+@-]+)+")
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+\b|\b(?=[0-9a-f]*\d)[0-9a-f]{8,}\b")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def signature(fault: Fault) -> tuple[Category, str]:
    """What two occurrences of one error have in common: no folders, addresses, numbers."""
    text = _PATH.sub(lambda m: re.split(r"[/\\]", m[0])[-1], fault.headline)
    text = _NUMBER.sub("#", _ADDRESS.sub("@", text))
    return fault.category, " ".join(text.split())
