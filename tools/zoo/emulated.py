"""Grades the zoo's rows for a GPU on the emulated one, for docs/generated/security.md."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from harness.cli.options import make_build_setup
from harness.device.machine import machine_facts
from harness.errors import InfraError
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from tests.fakes.zoo import Row, Seen, try_emulated

REGION: Final = "zoo_gpu"
NOT_TRIED: Final = "not measured"
_HEAD: Final = (
    "| project | kind | exploit | what it is | must end on a GPU | emulated GPU | what that lacks | s |",
    "|---|---|---|---|---|---|---|---|",
)


def measure_emulated(sandbox: str, rows: Sequence[Row], tell: Callable[[str], None]) -> dict[str, Seen | str]:
    """Per row for a GPU: what came, or our failure in words. Raises UsageError where CUDA cannot be built."""
    seen: dict[str, Seen | str] = {}
    wanted = [one for one in rows if one.gpu]
    setup = make_build_setup(sandbox, None, "cuda")
    try:
        with tempfile.TemporaryDirectory(prefix="zoo-") as name:
            settings = GradeSettings("cuda", "quick", Path(name), timed=False, emulate=True)
            made = Grader(settings, setup.sandbox, setup.toolchain, machine_facts(setup.toolchain))
            begun = time.monotonic()
            with closing(made) as grader:
                for number, one in enumerate(wanted, 1):
                    try:
                        seen[one.name] = try_emulated(one, grader)
                    except InfraError as error:
                        seen[one.name] = f"{type(error).__name__}: {error}"
                    left = (time.monotonic() - begun) / number * (len(wanted) - number)
                    told = emulated_cell(one, seen.get(one.name))
                    tell(f"emulated {number:3}/{len(wanted)} {one.name:36} {told}; {left / 60:.0f} min left")
    finally:
        setup.sandbox.stop()
    return seen


def emulated_cell(wanted: Row, seen: Seen | str | None) -> str:
    """The outcome; in bold where it is not the expected one, or where we failed."""
    if seen is None:
        return NOT_TRIED
    if isinstance(seen, str):
        return "**failed**"
    check = seen.grade.emulated
    outcome = str(seen.grade.verdict if check is None else check.outcome)
    return f"**open**: {outcome}" if seen.wrong else f"emulated: {outcome}"


def emulated_table(
    rows: Sequence[Row], seen: Mapping[str, Seen | str], end: Callable[[Row], str]
) -> list[str]:
    """One line per row for a GPU; `end` says what zoo.toml asks for."""
    lines = [*_HEAD]
    for one in (row for row in rows if row.gpu):
        tried = seen.get(one.name)
        lacks = one.emulated.lacks if one.emulated is not None else ""
        seconds = f"{tried.seconds:.0f}" if isinstance(tried, Seen) else ""
        cells = (one.name, one.kind, one.exploit or "", one.why, end(one), emulated_cell(one, tried), lacks)
        lines.append("| " + " | ".join((*cells, seconds)) + " |")
    return lines
