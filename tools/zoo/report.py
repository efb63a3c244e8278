"""Grades the whole zoo and writes its part of docs/generated/security.md: `make zoo`.

Every cell of its tables was observed in the run that wrote it, or is `not measured`. The tables contain
only our verdicts, causes and figures, no text of a project.

    python -m tools.zoo.report [--sandbox NAME ...] [--all] [--rows PATTERN] [--no-gain]
                               [--emulated] [--check]
"""

from __future__ import annotations

import argparse
import datetime
import fnmatch
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from harness.cli.options import make_build_setup
from harness.device.machine import machine_facts
from harness.errors import InfraError, UsageError
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from sandboxes.registry import BACKENDS, choose_sandbox
from tests.fakes.zoo import HURRIED, HonestScores, Row, Seen, row, row_names, try_row
from tools.zoo.emulated import REGION, emulated_table, measure_emulated
from tools.zoo.exploits import exploit_table
from tools.zoo.gain import gain_table
from tools.zoo.regions import region, with_region

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "generated" / "security.md"
_SHOWN = 160
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
    """A row that could not be graded because of our failure."""

    message: str


@dataclass
class Column:
    """One sandbox."""

    sandbox: str
    seen: dict[str, Seen | Failed] = field(default_factory=dict)
    """By row name, without rows that were not tried."""
    seconds: float = 0.0
    absent: str | None = None
    """Why the sandbox is unavailable."""

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


@contextmanager
def _graders(sandbox: str, cache: Path) -> Iterator[tuple[Grader, Grader]]:
    """On the CPU target, with limits for tiny projects; the second grader has short time limits.

    Raises UsageError.
    """
    setup = make_build_setup(sandbox, None)
    settings = GradeSettings(
        target="cpu",
        protocol="quick",
        cache=cache,
        worker_wall_s=60.0,
        worker_memory_bytes=3 << 29,
    )
    machine = machine_facts(setup.toolchain)
    both = [
        Grader(one, setup.sandbox, setup.toolchain, machine)
        for one in (settings, replace(settings, **HURRIED))
    ]
    try:
        yield both[0], both[1]
    finally:
        for grader in both:
            grader.close()
        setup.sandbox.stop()


def measure(sandbox: str, rows: list[Row]) -> Column:
    """Try all rows that a sandbox must hold. Raises UsageError when it is unavailable."""
    column = Column(sandbox)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="zoo-") as name, _graders(sandbox, Path(name)) as graders:
        grader, hurried = graders
        honest = HonestScores(grader)
        for number, wanted in enumerate(rows, 1):
            if wanted.gpu or not wanted.expected_on(sandbox):
                continue
            try:
                column.seen[wanted.name] = try_row(wanted, grader, honest, hurried)
            except InfraError as error:
                # Our failure: the row counts as not held.
                column.seen[wanted.name] = Failed(f"{type(error).__name__}: {error}")
            _progress(f"{sandbox} {number:3}/{len(rows)} {wanted.name:36} {column.told(wanted.name)}")
    column.seconds = time.monotonic() - start
    return column


def _progress(line: str) -> None:
    """A line on stderr, without control characters: it may quote a project."""
    sys.stderr.write("".join(c if c.isprintable() else "?" for c in line)[:_SHOWN] + "\n")
    sys.stderr.flush()


def tables(rows: list[Row], columns: list[Column]) -> str:
    """The whole region."""
    lines = [*_when(), "", *_counts(rows, columns)]
    lines += ["", _EXPLOITS, "", *exploit_table(rows)]
    for kind, title, reason in _KINDS:
        lines += ["", f"### {title}", ""]
        lines += _table([one for one in rows if one.kind == kind and not one.gpu], columns, kind, reason)
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
    return [*lines, "", _for_a_gpu(rows)] if any(one.gpu for one in rows) else lines


def _for_a_gpu(rows: list[Row]) -> str:
    return f"{sum(one.gpu for one in rows)} of {len(rows)} rows need a GPU: {NOT_MEASURED} on one."


def recounted(body: str, rows: list[Row]) -> str:
    """The region `zoo` with new counts of what no run measures: projects by exploit, and rows for a GPU."""
    anew = {line.split(" | ")[0]: line for line in exploit_table(rows)}
    count = _for_a_gpu(rows)
    ending = count[count.index("rows") :]
    lines = [anew.get(line.split(" | ")[0], line) for line in body.splitlines()]
    return "\n".join(count if line.endswith(ending) else line for line in lines)


def gpu_text(rows: list[Row], seen: dict[str, Seen | str]) -> str:
    """The region of the rows for a GPU."""
    tried = [one for one in seen.values() if isinstance(one, Seen) and not one.wrong]
    shown = sum(not (one.row.emulated and one.row.emulated.lacks) for one in tried)
    return "\n".join(
        (
            *_when(),
            "",
            f"As expected: {len(tried)} of {sum(one.gpu for one in rows)}; as on a GPU: {shown}.",
            "",
            *emulated_table(rows, seen, _end),
        )
    )


def _when() -> tuple[str, str]:
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"- Date of the run: {date}",
        f"- Machine: {os.cpu_count()} cores, {platform.machine()}, no GPU in use",
    )


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
        elif (
            one.why not in line or _end(one) not in line or (one.emulated and one.emulated.lacks not in line)
        ):
            found.append(f"{one.name}: its zoo.toml has changed since: run `make zoo`")
    lines = set(text.splitlines())
    if any(line not in lines for line in exploit_table(rows)):
        found.append("known exploits: projects or reasons have changed since: run `make zoo`")
    return found


def _sandboxes(wanted: list[str], every: bool) -> list[str]:
    """Names, strongest first; by default the automatic one and `local`."""
    if wanted:
        return wanted
    if every:
        return list(BACKENDS)
    choice = choose_sandbox("auto,local")
    choice.sandbox.close()
    return list(dict.fromkeys((choice.sandbox.name, "local")))


def _columns(names: list[str], rows: list[Row]) -> list[Column]:
    columns = []
    for name in names:
        try:
            columns.append(measure(name, rows))
        except (UsageError, InfraError) as error:
            columns.append(Column(name, absent=str(error)))
            _progress(f"{name}: not measured: {error}")
    return columns


def published() -> str:
    """Both regions with rows."""
    text = DOCUMENT.read_text()
    return region(text, "zoo") + region(text, REGION)


def _emulated(sandbox: str, rows: list[Row], write: bool) -> bool:
    """Whether every row for a GPU gave on the emulated one what it must. Raises UsageError."""
    seen = measure_emulated(sandbox, rows, _progress)
    if write:
        _write(REGION, gpu_text(rows, seen))
        _write("zoo", recounted(region(DOCUMENT.read_text(), "zoo"), rows))
    return all(isinstance(one, Seen) and not one.wrong for one in seen.values())


def _write(name: str, body: str) -> None:
    DOCUMENT.write_text(with_region(DOCUMENT.read_text(), name, body))


def main() -> int:
    """0 where every row held, else 1."""
    parser = argparse.ArgumentParser(
        description="Grade the zoo, and write its part of docs/generated/security.md."
    )
    parser.add_argument("--sandbox", action="append", default=[], choices=list(BACKENDS), help="repeatable")
    parser.add_argument("--all", action="store_true", help="all sandboxes that this machine has")
    parser.add_argument("--rows", help="only these (a pattern such as honest_*); nothing is written")
    parser.add_argument("--no-gain", action="store_true", help="leave the table of gains as it is")
    parser.add_argument("--emulated", action="store_true", help="only rows for a GPU, on the emulated one")
    parser.add_argument("--check", action="store_true", help="only compare the document with the zoo")
    given = parser.parse_args()
    rows = [row(name) for name in row_names()]
    if given.check:
        found = disagreements(published(), rows)
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    if given.rows:
        rows = [one for one in rows if fnmatch.fnmatch(one.name, given.rows)]
    names = _sandboxes(given.sandbox, given.all)
    held = _emulated(names[0], rows, write=not given.rows)
    if given.emulated:
        return 0 if held else 1
    columns = _columns(names, rows)
    if not given.rows:
        _write("zoo", tables(rows, columns))
        if not given.no_gain:
            _write("gain", gain_table())
    for column in columns:
        _progress(f"{column.sandbox}: {column.summary(rows)}, {column.seconds:.0f} s")
    return 1 if not held or any(column.open(rows) for column in columns) else 0


if __name__ == "__main__":
    sys.exit(main())
