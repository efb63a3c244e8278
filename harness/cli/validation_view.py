"""The table of `liftbench validate`."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from harness.cli.card import ratio_text, untrusted
from harness.grading.validation import Validation
from harness.records import Grade


def print_validation(results: Sequence[Validation]) -> None:
    """A table on stdout, one line for each expert and one for what surprised."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True)
    for name in ("what", "verdict", "build s", "worst error", "speedup, 95% CI", ""):
        table.add_column(name)
    for one in results:
        if one.what == "expert" or not one.as_expected:
            table.add_row(one.task, one.what, *_cells(one.grade), "" if one.as_expected else "UNEXPECTED")
    console = Console()
    console.print(table)
    experts = [r for r in results if r.what == "expert"]
    trivial = [r for r in results if r.what == "trivial outputs"]
    talk = [r for r in results if r not in experts and r not in trivial]
    on_trivial = f"trivial outputs fail on {_count(trivial)} tasks, " if trivial else ""
    console.print(f"{_count(experts)} experts pass, {on_trivial}{_count(talk)} replies without work score 0")
    for one in results:
        if not one.as_expected:
            console.print(untrusted(f"{one.task} {one.what}: {one.said}"))


def _count(results: Sequence[Validation]) -> str:
    return f"{sum(r.as_expected for r in results)} of {len(results)}"


def _cells(grade: Grade | None) -> tuple[str, str, str, str]:
    """Verdict, build time, worst error, speedup."""
    if grade is None:
        return ("-",) * 4
    build = "-" if grade.build is None or grade.build.compiler_s is None else f"{grade.build.compiler_s:.1f}"
    checks = grade.check.workloads if grade.check else ()
    errors = [w.worst_error for w in checks if w.worst_error is not None]
    timed = grade.timing is not None and bool(grade.timing.workloads)
    speedup = ratio_text(grade.timing.speedup) if grade.timing is not None and timed else "not measured"
    return str(grade.verdict), build, f"{max(errors):.3g}" if errors else "-", speedup
