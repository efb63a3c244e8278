"""KernelBench problems on the command line: choosing the admitted ones, and the table of all."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from harness.cli.setup import cache_folder, parse_target

if TYPE_CHECKING:
    from harness.kernelbench.admission import Admission
    from harness.kernelbench.conversion import Converted
    from harness.suite.catalogue import LoadedTask


def chosen_tasks(
    patterns: Sequence[str], root: Path | None, target: str, cache: Path | None
) -> list[LoadedTask]:
    """What `--tasks` names: of KernelBench's problems those that are admitted, the others told on stderr.

    Raises UsageError where a pattern leaves nothing.
    """
    from harness.errors import UsageError
    from harness.kernelbench.problems import is_pattern
    from harness.suite.catalogue import select_tasks

    theirs = [pattern for pattern in patterns if is_pattern(pattern)]
    ours = [pattern for pattern in patterns if not is_pattern(pattern)]
    if not theirs:
        return select_tasks(ours, root)
    chosen = {loaded.task.id: loaded for loaded in (select_tasks(ours, root) if ours else [])}
    judged = _admitted(theirs, target, cache)
    left_out = [admission for _, admission in judged if not admission.admitted]
    for admission in left_out:
        print(f"not admitted: {admission.task}: {'; '.join(admission.reasons)}", file=sys.stderr)
    admitted = {a.task: one.task() for one, a in judged if a.admitted}
    if not admitted:
        why = "; ".join(left_out[0].reasons)
        raise UsageError(
            f"{', '.join(theirs)}: no problem is admitted on {target}; {left_out[0].task}: {why}"
        )
    return [task for _, task in sorted({**chosen, **admitted}.items())]


def _admitted(patterns: Sequence[str], target: str, cache: Path | None) -> list[tuple[Converted, Admission]]:
    """Every problem once, with progress on stderr."""
    from harness.kernelbench.admission import admit_all
    from harness.kernelbench.problems import find_problems

    problems = {problem.id: problem for pattern in patterns for problem in find_problems(pattern)}
    lock, steps = threading.Lock(), [0]

    def observer(step: str) -> None:
        with lock:
            steps[0] += 1
            if sys.stderr.isatty():
                print(f"\r\x1b[K{steps[0]}: {step}", end="", file=sys.stderr, flush=True)
            elif steps[0] % 25 == 0:
                print(f"{steps[0]} steps for {len(problems)} KernelBench problems", file=sys.stderr)

    try:
        return admit_all(list(problems.values()), parse_target(target), cache_folder(cache), observer)
    finally:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def list_problems(patterns: Sequence[str], target: str, cache: Path | None, *, json_output: bool) -> None:
    """Print which problems are admitted on `target`, and why the others are not."""
    admissions = [admission for _, admission in _admitted(patterns, target, cache)]
    if json_output:
        rows = [{**a.model_dump(mode="json"), "admitted": a.admitted} for a in admissions]
        print(json.dumps(rows, indent=1))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True, overflow="ellipsis", max_width=36)
    for name in ("MiB", "to judge"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(f"on {target}")
    for one in admissions:
        verdict = "admitted" if one.admitted else "no: " + "; ".join(one.reasons)
        if one.by != "whole":
            verdict += f", by {one.by}"
        table.add_row(
            one.task.removeprefix("kernelbench_"),
            "-" if one.size_bytes is None else f"{one.size_bytes / (1 << 20):,.0f}",
            "-" if one.judged_bytes is None else f"{one.judged_bytes / (1 << 30):.1f} GiB",
            "; ".join([verdict, *one.notes]),
        )
    console = Console()
    console.print(table, markup=False)
    admitted = sum(one.admitted for one in admissions)
    memory = admissions[0].memory_bytes / 1e9
    console.print(
        f"{admitted} of {len(admissions)} admitted on {target} (limits for {memory:.0f} GB; --json has more)"
    )
