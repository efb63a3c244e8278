"""Measures what a forger can gain on this machine, as a Markdown table.

A gain is the forged score over the honest one of the same work, each against the reference of its own
grade; a condemned attack gains nothing.

    python -m tools.zoo.gain [--sizes N]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from harness.builder.toolchain import find_toolchain
from harness.cli.options import make_build_setup
from harness.device.machine import machine_facts
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from harness.outcome import Verdict
from harness.records import Grade, Workload
from harness.records.timing import NOISY
from harness.suite.catalogue import LoadedTask
from tests.fakes.overlays import ZOO, overlaid, throw_away_task

PACKAGE: Final = "torch-ext/scale/__init__.py"
KERNEL: Final = "scale_cpu/scale.cpp"
_HALF: Final = "0.5)"  # the only text in the row that sets its factor
_HEAD: Final = (
    "| work | attack | verdict | score, us | a, % | u, % | gain | bound | flags |",
    "|---|---|---|---:|---:|---:|---:|---:|---|",
)


_BOUND: Final = (
    "The bound is of each grade: what a worker does to its own side makes its score less than the truth by u "
    "at most; `a` is what it could avoid. `gain` compares two grades and has the noise of both."
)


@dataclass(frozen=True)
class Size:
    """A workload, and the honest project that does it."""

    rows: int
    cols: int
    base: str = "base"

    @property
    def label(self) -> str:
        """Such as `256 x 256`."""
        return f"{self.rows} x {self.cols}" + (", 2000 passes" if self.base == "base_slow" else "")

    def task(self) -> LoadedTask:
        """t/scale with this one workload."""
        loaded = throw_away_task("scale")
        dims = {"rows": self.rows, "cols": self.cols}
        only = Workload(name="only", dims=dims, scalars={"alpha": 1.7}, timed=True)
        return replace(loaded, task=loaded.task.model_copy(update={"workloads": (only,)}))


SIZES: Final = (Size(64, 64), Size(256, 256), Size(1024, 1024), Size(256, 256, "base_slow"))


@dataclass(frozen=True)
class Attack:
    """Files that turn an honest project into a cheat."""

    name: str
    files: Mapping[str, str]
    any_kernel: bool = True
    """It does not replace the kernel, so it fits every base."""


def claims(factor: float) -> Attack:
    """The base, claiming `factor` of what every call took."""
    text = (ZOO / "clock_halves_claims" / PACKAGE).read_text()
    if text.count(_HALF) != 2:
        raise ValueError(f"clock_halves_claims no longer names its factor as {_HALF!r}, twice")
    return Attack(f"claims x{factor:g}", {PACKAGE: text.replace(_HALF, f"{factor})")})


def _of_row(name: str, row: str, *paths: str) -> Attack:
    return Attack(name, {path: (ZOO / row / path).read_text() for path in paths}, any_kernel=False)


def attacks() -> tuple[Attack, ...]:
    """All attacks. The first is none: its `gain` is the noise of the table."""
    return (
        Attack("none (honest, again)", {}),
        claims(0.9),
        claims(0.5),
        claims(0.0),
        _of_row("finishes late", "late_thread_races", KERNEL),
        _of_row("all sets in the first call", "fuses_batch", KERNEL),
        _of_row("a cheaper loop, claims 0", "replaces_runner", PACKAGE, KERNEL),
        _of_row("done before the work", "done_before_the_work", PACKAGE, KERNEL),
    )


def _score(grade: Grade) -> float:
    if grade.timing is None:
        raise AssertionError(f"not timed: {grade.finding.message}")
    return grade.timing.speedup.value


def line(size: Size, attack: str, grade: Grade, honest: Grade | None) -> str:
    """A row of the table; `honest` is None where the grade is the honest project's own."""
    if grade.timing is None or grade.verdict is not Verdict.CORRECT:
        return f"| {size.label} | {attack} | {grade.verdict}: {grade.finding.cause} | | | | none | | |"
    timed = grade.timing.workloads[0].student
    lane = timed.scored_lane
    gain = "" if honest is None else f"x{_score(grade) / _score(honest):.2f}"
    share = lane.uncertainty_us / timed.score_us
    figures = f"{timed.score_us:.1f} | {100 * lane.constant_us / timed.score_us:.1f} | {100 * share:.0f}"
    bound = f"x{1 + share:.2f}"  # the score can be lower than the truth by u at most
    flags = ", ".join(grade.timing.flags)
    return f"| {size.label} | {attack} | {grade.verdict} | {figures} | {gain} | {bound} | {flags} |"


def skipping(calls: int) -> str:
    """The gain from skipping calls at random, and the chance that verifying `calls` outputs misses it."""
    told = [f"one in {k}: x{k / (k - 1):.2f}, missed {(1 - 1 / k) ** calls:.2g}" for k in (3, 10, 50, 200)]
    return (
        f"Leaving out calls at random, with {calls} timed calls, all verified (gain, chance of being missed; "
        f"computed): {'; '.join(told)}."
    )


@contextmanager
def _grader() -> Iterator[tuple[Grader, str]]:
    """A grader on `local`, and the name of its sandbox."""
    setup = make_build_setup("local", None)
    with tempfile.TemporaryDirectory(prefix="gain-") as folder:
        settings = GradeSettings(target="cpu", protocol="quick", cache=Path(folder), worker_wall_s=120.0)
        grader = Grader(settings, setup.sandbox, setup.toolchain, machine_facts(setup.toolchain))
        try:
            yield grader, setup.sandbox.name
        finally:
            grader.close()
            setup.sandbox.stop()


def gain_table(sizes: tuple[Size, ...] = SIZES) -> str:
    """Grades every attack at every size (about five minutes). Raises InfraError when the machine fails."""
    lines, noisy, calls = [*_HEAD], 0, []
    with _grader() as (grader, sandbox):
        for size in sizes:
            honest = grader.grade(overlaid(ZOO / size.base, {}), size.task())
            graded = [("the honest project", honest)]
            for attack in attacks():
                if attack.any_kernel or size.base == "base":
                    project = overlaid(ZOO / size.base, attack.files)
                    graded.append((attack.name, grader.grade(project, size.task())))
                    sys.stderr.write(f"gain: {size.label}: {attack.name}\n")
            for name, grade in graded:
                lines.append(line(size, name, grade, None if grade is honest else honest))
                noisy += grade.timing is not None and NOISY in grade.timing.flags
            if honest.timing is not None and honest.timing.workloads:
                calls.append(sum(lane.calls for lane in honest.timing.workloads[0].student.lanes))
    device = f"{machine_facts(find_toolchain()).cpu}, target `cpu`, sandbox `{sandbox}`, protocol `quick`"
    said = f"{device}, on a quiet host. {_BOUND}"
    if noisy:
        said = (
            f"{device}. Other work disturbed {noisy} of {len(lines) - 2} grades: they carry `noisy host` and "
            f"are never ranked. {_BOUND}"
        )
    return "\n".join([said, "", *lines, "", skipping(min(calls, default=0)), ""])


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="What a forger can still gain on this machine.")
    parser.add_argument("--sizes", type=int, default=len(SIZES), help="only the first N sizes")
    sys.stdout.write(gain_table(SIZES[: parser.parse_args().sizes]))


if __name__ == "__main__":
    main()
