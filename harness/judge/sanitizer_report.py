"""What compute-sanitizer prints, as findings.

The text comes from inside a student's process: it is bounded, and never more than a claim. Without the
tool's own summary nothing is clean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from harness.records import SanitizerFinding

MOST_BYTES: Final = 1 << 20
_MOST_FINDINGS: Final = 20
_TEXT_CHARS: Final = 300
_PREFIX: Final = re.compile(r"={9} ?(.*)")
_ERRORS: Final = re.compile(r"ERROR SUMMARY: (\d{1,9}) errors?\b")
_HAZARDS: Final = re.compile(
    r"RACECHECK SUMMARY: (\d{1,9}) hazards? displayed \((\d{1,9}) errors?, (\d{1,9}) warn"
)
# `at fill(float *, long)+0x160 in fill.cu:6`, or for racecheck ` access at fill(float *)+0x100 in ...`.
_PLACE: Final = re.compile(r"(?:.*\baccess )?at (.{1,2000}?)\+0x[0-9a-f]+\b")
# Said of the tool and of how the process ended, not of a kernel.
_TROUBLE: Final = re.compile(
    r"Error: (?!Race reported|Potential|Deadlock)|Internal Sanitizer|Internal error|Target application"
    r"|No attachable process|Failed to|Tracking kernels launched by child|Unable to|Unknown record"
)
_ASIDE: Final = re.compile(
    r"COMPUTE-SANITIZER$|(?:LEAK|RACECHECK|ERROR) SUMMARY:|Warning: (?!Race reported|Potential)|Try using "
    r"|\d+ errors? (?:were|was) |No hazards|Process ID|Created|System"
)


@dataclass(frozen=True)
class Report:
    """One run of one tool."""

    total: int | None
    """Errors and hazards by its summary; None where it came to none."""
    findings: tuple[SanitizerFinding, ...]
    """The first kinds, equal ones counted."""
    trouble: str | None
    """What the tool says of itself, first line."""


def read_report(text: str) -> Report:
    """Parse what the tool wrote; whatever else is in the text is ignored."""
    total, trouble = None, None
    counts: dict[tuple[str, str | None], int] = {}
    for head, body in _records(text[:MOST_BYTES]):
        total = _summed(head, total)
        if _TROUBLE.match(head):
            trouble = trouble or head[:_TEXT_CHARS]
        elif not _ASIDE.match(head):
            key = (head[:_TEXT_CHARS], _kernel([head, *body]))
            counts[key] = counts.get(key, 0) + 1
    findings = [SanitizerFinding(message=m, kernel=k, count=n) for (m, k), n in counts.items()]
    return Report(total, tuple(findings[:_MOST_FINDINGS]), trouble)


def _records(text: str) -> Iterator[tuple[str, list[str]]]:
    """(first line, indented lines) of each record."""
    head, body = "", list[str]()
    for line in text.splitlines():
        match = _PREFIX.match(line)
        if match is None or not match[1].strip():
            continue
        if not match[1].startswith(" "):
            if head:
                yield head, body
            head, body = match[1].strip(), []
        else:
            body.append(match[1].strip())
    if head:
        yield head, body


def _summed(head: str, total: int | None) -> int | None:
    hazards, errors = _HAZARDS.match(head), _ERRORS.match(head)
    if hazards is not None:
        return max(total or 0, int(hazards[1]), int(hazards[2]) + int(hazards[3]))
    return max(total or 0, int(errors[1])) if errors is not None else total


def _kernel(lines: list[str]) -> str | None:
    """The kernel of the first place that is named."""
    for line in lines:
        match = _PLACE.match(line)
        if match is not None:
            return match[1][:_TEXT_CHARS]
    return None
