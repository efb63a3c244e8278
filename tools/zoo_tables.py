"""What a run of the zoo found, as Markdown.

Nothing that a project said gets into the text, only verdicts, causes and figures of ours; a row that was
not tried counts nowhere.
"""

from __future__ import annotations

import datetime
import os
import platform
from dataclasses import dataclass, field
from typing import Literal

from tests.fakes.zoo import Row, Seen
from tools.zoo_exploits import exploit_table

HELD, OPEN, UNJUDGED, FAILED = "held", "**open**", "not judged", "**failed**"
NOT_MEASURED, NOT_PROMISED = "not measured", "not promised"
_KINDS: tuple[tuple[Literal["hostile", "bad", "honest"], str, str], ...] = (
    ("hostile", "Hostile projects", "what it tries"),
    ("honest", "Honest projects that look suspicious", "why it looks suspicious"),
    ("bad", "Honest mistakes", "what is wrong with it"),
)
_EXPLOITS = "### Known exploits, and who tries them"


@dataclass(frozen=True)
class Failed:
    """A row that could not be graded, through a fault of ours."""

    message: str


@dataclass
class Column:
    """One sandbox."""

    sandbox: str
    seen: dict[str, Seen | Failed] = field(default_factory=dict)
    """By the row's name; rows that were not tried are missing."""
    seconds: float = 0.0
    absent: str | None = None
    """Why nothing was tried."""

    def state(self, wanted: Row) -> str:
        """One of the words above."""
        if wanted.gpu or self.absent is not None:
            return NOT_MEASURED
        if not wanted.expected_on(self.sandbox):
            return NOT_PROMISED
        seen = self.seen.get(wanted.name)
        if seen is None:
            return NOT_MEASURED
        if isinstance(seen, Failed):
            return FAILED
        if seen.wrong:
            return OPEN
        return UNJUDGED if seen.open else HELD

    def cell(self, wanted: Row) -> str:
        """The state, with what came instead or how much was gained."""
        state, seen = self.state(wanted), self.seen.get(wanted.name)
        if not isinstance(seen, Seen):
            return state
        if state == OPEN:
            return f"{state}: {seen.grade.verdict}, {seen.grade.finding.cause}"
        return state if seen.gain is None else f"{state}, x{seen.gain:.2f}"

    def told(self, name: str) -> str:
        """For people who wait: what happened."""
        seen = self.seen[name]
        if isinstance(seen, Failed):
            return f"FAILED: {seen.message}"
        word = "OPEN: " if seen.wrong else "not judged: " if seen.open else "held"
        return f"{seen.seconds:5.1f} s  {word}{'; '.join(seen.wrong or seen.open)}"

    def count(self, rows: list[Row], kind: str, *states: str) -> int:
        """Rows of that kind in one of these states."""
        return sum(one.kind == kind and self.state(one) in states for one in rows)

    def held_of(self, rows: list[Row], kind: str) -> str:
        """`held / tried`; rows that were not judged stand apart."""
        held, tried = self.count(rows, kind, HELD), self.count(rows, kind, HELD, OPEN, FAILED)
        return f"{held} / {tried}"

    def open(self, rows: list[Row]) -> list[str]:
        """Names of rows that did not hold."""
        return [one.name for one in rows if self.state(one) in (OPEN, FAILED)]

    def summary(self, rows: list[Row]) -> str:
        """One line."""
        return (
            f"hostile {self.held_of(rows, 'hostile')}, bad {self.held_of(rows, 'bad')}, "
            f"honest {self.held_of(rows, 'honest')}"
        )


def tables(rows: list[Row], columns: list[Column]) -> str:
    """The whole region."""
    lines = [f"- Date of the run: {datetime.datetime.now(datetime.UTC).date().isoformat()}"]
    lines += [f"- Machine: {os.cpu_count()} cores, {platform.machine()}, no GPU in use", ""]
    lines += _counts(rows, columns)
    lines += ["", _EXPLOITS, "", *exploit_table(rows)]
    for kind, title, reason in _KINDS:
        lines += ["", f"### {title}", ""]
        lines += _table([one for one in rows if one.kind == kind], columns, kind, reason)
    return "\n".join(lines) + "\n"


def _counts(rows: list[Row], columns: list[Column]) -> list[str]:
    head = (
        "| sandbox | caught, of hostile | caught, of mistakes | false positives, of honest | not judged | s |"
    )
    lines = [head, "|---|---|---|---|---|---|"]
    for column in columns:
        if column.absent is not None:
            lines.append(f"| {column.sandbox} | {NOT_MEASURED} | | | | |")
            continue
        wrongly = column.count(rows, "honest", OPEN, FAILED)
        tried = column.count(rows, "honest", HELD, OPEN, FAILED)
        unjudged = sum(column.state(one) == UNJUDGED for one in rows)
        lines.append(
            f"| {column.sandbox} | {column.held_of(rows, 'hostile')} | {column.held_of(rows, 'bad')} | "
            f"{wrongly} / {tried} | {unjudged} | {column.seconds:.0f} |"
        )
    gpu = sum(one.gpu for one in rows)
    return [*lines, "", f"{gpu} of {len(rows)} rows need a GPU: {NOT_MEASURED}."] if gpu else lines


def _table(rows: list[Row], columns: list[Column], kind: str, reason: str) -> list[str]:
    exploit = " exploit |" if kind == "hostile" else ""
    names = "".join(f" {column.sandbox} |" for column in columns)
    lines = [f"| project |{exploit} {reason} | must end |{names} s |"]
    lines.append("|---|" + ("---|" if exploit else "") + "---|---|" + "---|" * len(columns) + "---|")
    for one in rows:
        first = [f"{one.exploit} | "] if one.exploit else []
        cells = [column.cell(one) for column in columns]
        told = " | ".join([one.why, _end(one), *cells, _seconds(one, columns)])
        lines.append(f"| {one.name} | {''.join(first)}{told} |")
    return lines


def _end(wanted: Row) -> str:
    """What zoo.toml asks for."""
    parts = [f"{wanted.verdict}: {wanted.cause}"]
    parts += [f"flagged {wanted.flag}"] if wanted.flag else []
    parts += [f"at the stage {wanted.stage}"] if wanted.stage else []
    parts += [f"at most x{wanted.most_speedup:g}"] if wanted.most_speedup else []
    parts += [f"from {wanted.holds_on} on"] if wanted.holds_on != "local" else []
    return ", ".join(parts)


def _seconds(wanted: Row, columns: list[Column]) -> str:
    seen = [column.seen.get(wanted.name) for column in columns]
    return next((f"{one.seconds:.1f}" for one in seen if isinstance(one, Seen)), "")


def disagreements(text: str, rows: list[Row]) -> list[str]:
    """Where the published tables and the zoo differ: in rows, in exploits, and rows that did not hold."""
    shown = {
        line.strip("| ").split("|")[0].strip(): line for line in text.splitlines() if line.startswith("| ")
    }
    found = []
    for one in rows:
        line = shown.get(one.name)
        if line is None:
            found.append(f"{one.name}: not in the document: run `make zoo`")
        elif OPEN in line or FAILED in line:
            found.append(f"{one.name}: did not hold: {line}")
        elif one.why not in line or _end(one) not in line:
            found.append(f"{one.name}: its zoo.toml has changed since: run `make zoo`")
    lines = set(text.splitlines())
    if any(line not in lines for line in exploit_table(rows)):
        found.append("known exploits: projects or reasons have changed since: run `make zoo`")
    return found
