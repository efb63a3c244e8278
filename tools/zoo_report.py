"""Grades the whole zoo and writes its part of docs/security.md: `make zoo`.

Every cell of its tables was observed in the run that wrote it; what was not is `not measured`. python -m
tools.zoo_report [--sandbox NAME ...] [--all] [--rows PATTERN] [--no-gain] [--check]
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from harness.cli.setup import make_workshop
from harness.device.machine import machine_facts
from harness.errors import InfraError, UsageError
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from sandboxes.registry import BACKENDS
from tests.fakes.zoo import HURRIED_S, HonestScores, Row, row, row_names, try_row
from tests.zoo.regions import region, with_region
from tools.zoo_tables import Column, Failed, disagreements, tables

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "security.md"
_SHOWN = 160


@contextmanager
def _graders(sandbox: str, cache: Path) -> Iterator[tuple[Grader, Grader]]:
    """On the CPU target, with the limits of the tests, which suit tiny projects; the second one is in a hurry
    to build. Raises UsageError."""
    workshop = make_workshop(sandbox, None)
    settings = GradeSettings(
        target="cpu",
        protocol="quick",
        cache=cache,
        worker_wall_s=60.0,
        call_wall_s=3.0,
        worker_memory_bytes=3 << 29,
    )
    machine = machine_facts(workshop.toolchain)
    both = [
        Grader(one, workshop.sandbox, workshop.toolchain, machine)
        for one in (settings, replace(settings, build_wall_s=HURRIED_S))
    ]
    try:
        yield both[0], both[1]
    finally:
        for grader in both:
            grader.close()
        workshop.sandbox.stop()


def measure(sandbox: str, rows: list[Row]) -> Column:
    """Try all rows that a sandbox must hold. Raises UsageError when it cannot be had."""
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
                # Ours: the row counts as not held, and the others are tried all the same.
                column.seen[wanted.name] = Failed(f"{type(error).__name__}: {error}")
            _progress(f"{sandbox} {number:3}/{len(rows)} {wanted.name:36} {column.told(wanted.name)}")
    column.seconds = time.monotonic() - start
    return column


def _progress(line: str) -> None:
    """A line on stderr; what a project said in it may be anything."""
    sys.stderr.write("".join(c if c.isprintable() else "?" for c in line)[:_SHOWN] + "\n")
    sys.stderr.flush()


def _sandboxes(wanted: list[str], every: bool) -> list[str]:
    """Names, the strongest first: by default the automatic one and `local`."""
    if wanted:
        return wanted
    if every:
        return list(BACKENDS)
    from sandboxes.registry import choose_sandbox

    choice = choose_sandbox("auto,local")
    choice.sandbox.close()
    return list(dict.fromkeys((choice.sandbox.name, "local")))


def _columns(names: list[str], rows: list[Row]) -> list[Column]:
    columns = []
    for name in names:
        try:
            columns.append(measure(name, rows))
        except (UsageError, InfraError) as error:
            # A sandbox that this machine does not have is a column that says so.
            columns.append(Column(name, absent=str(error)))
            _progress(f"{name}: not measured: {error}")
    return columns


def _write(name: str, body: str) -> None:
    DOCUMENT.write_text(with_region(DOCUMENT.read_text(), name, body))


def _gain() -> str:
    """What a forger can still gain, measured now."""
    if importlib.util.find_spec("tools.zoo_gain") is None:
        return "Not measured.\n"
    from tools.zoo_gain import gain_table

    return str(gain_table())


def main() -> int:
    """0 where every row held, else 1."""
    parser = argparse.ArgumentParser(description="Grade the zoo, and write its part of docs/security.md.")
    parser.add_argument("--sandbox", action="append", default=[], choices=list(BACKENDS), help="repeatable")
    parser.add_argument("--all", action="store_true", help="all sandboxes that this machine has")
    parser.add_argument("--rows", help="only these (a pattern such as honest_*); nothing is written")
    parser.add_argument("--no-gain", action="store_true", help="leave the table of gains as it is")
    parser.add_argument("--check", action="store_true", help="only compare the document with the zoo")
    given = parser.parse_args()
    rows = [row(name) for name in row_names()]
    if given.check:
        found = disagreements(region(DOCUMENT.read_text(), "zoo"), rows)
        sys.stderr.writelines(f"{line}\n" for line in found)
        return 1 if found else 0
    if given.rows:
        rows = [one for one in rows if fnmatch.fnmatch(one.name, given.rows)]
    columns = _columns(_sandboxes(given.sandbox, given.all), rows)
    if not given.rows:
        _write("zoo", tables(rows, columns))
        if not given.no_gain:
            _write("gain", _gain())
    for column in columns:
        _progress(f"{column.sandbox}: {column.summary(rows)}, {column.seconds:.0f} s")
    return 1 if any(column.open(rows) for column in columns) else 0


if __name__ == "__main__":
    sys.exit(main())
