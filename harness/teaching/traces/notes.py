"""Lines of a trace that are worth keeping though nothing failed: measured figures, and decisions.

Pure, and a note is the trace's own line, never a paraphrase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from harness.records import Record
from harness.teaching.traces.event import Event

_LIMIT: Final = 300
_SCAN_LIMIT: Final = 1_000
_DIGITS: Final = r"\d[\d.,]*"
_MEASURED: Final = (
    re.compile(rf"{_DIGITS}\s*(?:[GTM]i?B/s|[GT]FLOP/?s?\b|it/s\b|tok(?:ens)?/s)", re.I),
    re.compile(rf"\b(?:speed-?up|faster|slower)\b.{{0,80}}?\b{_DIGITS}\s*[x\u00d7%]", re.I),
    re.compile(
        rf"\b{_DIGITS}\s*[x\u00d7%]\s.{{0,40}}?\b(?:speed-?up|faster|slower|of (?:peak|roofline|bandwidth))",
        re.I,
    ),
    re.compile(
        r"\b(?:time|latency|avg|mean|median|kernel|torch|eager|compiled?|baseline|reference|ours|custom|took|runtime"
        rf"|forward|backward|elapsed|duration)\b.{{0,80}}?\b{_DIGITS}\s*(?:us|\u00b5s|\u03bcs|ms|ns)\b",
        re.I,
    ),
)
_UNITS = re.compile(
    r"\d\s*(?:x\b|\u00d7|%|us\b|\u00b5s|\u03bcs|ms\b|ns\b|[GTM]i?B/s|[GT]FLOP|it/s|tok)", re.I
)
_DECIDED = re.compile(
    r"\b(?:root cause|turns? out|the (?:issue|problem|bug|fix|culprit|reason) (?:is|was)"
    r"|(?:I|we) (?:decided|chose)|decision:|lesson:|key (?:insight|finding)|instead of"
    r"|the correct (?:way|form|spelling))\b",
    re.I,
)


class Note(Record):
    """One such line."""

    kind: Literal["measured", "decided"]
    text: str
    place: str
    event: int
    """Index of the event."""


def notes(events: Sequence[Event]) -> tuple[Note, ...]:
    """All of them in order; the same words twice are one note, at the later place."""
    found: dict[tuple[str, str], Note] = {}
    for event in events:
        for note in _of(event):
            found.pop((note.kind, note.text), None)
            found[note.kind, note.text] = note
    return tuple(found.values())


def _of(event: Event) -> Iterator[Note]:
    if event.kind not in ("text", "tool_result"):
        return
    decides = event.kind == "text" and event.role == "assistant" and _DECIDED.search(event.text) is not None
    if not decides and _UNITS.search(event.text) is None:
        return
    for offset, line in enumerate(event.text.splitlines()):
        text = line.strip()[:_SCAN_LIMIT]
        measured = _UNITS.search(text) is not None and any(p.search(text) for p in _MEASURED)
        if measured or (decides and _DECIDED.search(text)):
            kind: Literal["measured", "decided"] = "measured" if measured else "decided"
            clipped = text if len(text) <= _LIMIT else text[: _LIMIT - 1] + "…"
            yield Note(kind=kind, text=clipped, place=event.place_of(offset), event=event.index)
