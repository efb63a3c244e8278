"""`liftbench tasks list|show`, and the choice of tasks for other commands."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from harness.cli.card import plain_table
from harness.cli.options import (
    CacheOption,
    GradingOptions,
    JsonOption,
    TargetOption,
    TasksRootOption,
    cache_folder,
)
from harness.errors import UsageError
from harness.kernelbench.admission import Admission, admit_all
from harness.kernelbench.conversion import Converted, select_with_problems
from harness.kernelbench.problems import find_problems, is_pattern
from harness.records import Briefing, Target, Task
from harness.student.prompts import task_text
from harness.suite.catalogue import LoadedTask, select_tasks
from harness.suite.sizes import gib, sizes


def chosen_tasks(patterns: Sequence[str], grading: GradingOptions) -> list[LoadedTask]:
    """The tasks that patterns name; KernelBench problems that are not admitted are listed on stderr.

    Raises UsageError if a pattern leaves nothing.
    """
    theirs = [pattern for pattern in patterns if is_pattern(pattern)]
    ours = [pattern for pattern in patterns if not is_pattern(pattern)]
    root, target = grading.tasks_root, grading.target
    if not theirs:
        return select_tasks(ours, root)
    chosen = {loaded.task.id: loaded for loaded in (select_tasks(ours, root) if ours else [])}
    judged = _admitted(theirs, target, grading.cache)
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


def _admitted(
    patterns: Sequence[str], target: Target, cache: Path | None
) -> list[tuple[Converted, Admission]]:
    """Every problem once, with progress on stderr."""
    problems = {problem.id: problem for pattern in patterns for problem in find_problems(pattern)}
    lock, steps = threading.Lock(), itertools.count(1)

    def observer(step: str) -> None:
        with lock:
            done = next(steps)
            if done % 25 == 0:
                print(f"{done} steps for {len(problems)} KernelBench problems: {step}", file=sys.stderr)

    return admit_all(list(problems.values()), target, cache_folder(cache), observer)


def list_tasks(
    pattern: Annotated[
        list[str] | None, typer.Argument(help="Globs, such as 'l1/*', or kernelbench:PATH[/level1][/GLOB].")
    ] = None,
    target: TargetOption = "cuda",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> None:
    """KernelBench problems: sizes, and whether they are admitted for --target."""
    patterns = pattern or []
    if any(map(is_pattern, patterns)):
        if not all(map(is_pattern, patterns)):
            raise UsageError("tasks list: list KernelBench problems and other tasks separately")
        list_problems(patterns, target, cache, json_output=json_output)
        return
    tasks = [loaded.task for loaded in select_with_problems(patterns, tasks_root)]
    if json_output:
        print(json.dumps([task.model_dump(mode="json") for task in tasks], indent=1))
    else:
        Console().print(_tasks_table(tasks))
        print(f"{len(tasks)} tasks in {len({task.family for task in tasks})} families")


def _tasks_table(tasks: Sequence[Task]) -> Table:
    def largest(task: Task, target: Target) -> str:
        found = [size.operands_bytes for size in sizes(task, target)]
        return gib(max(found)) if found else "-"

    figures = ("sizes", "timed", "largest cpu", "cuda")
    table = plain_table("task", *figures, right=figures, whole=("task",))
    table.add_column("family: title", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    table.expand = True
    for task in tasks:
        table.add_row(
            task.id,
            str(len(task.workloads)),
            str(sum(w.timed for w in task.workloads)),
            largest(task, "cpu"),
            largest(task, "cuda"),
            f"{task.family}: {task.title}",
        )
    return table


def list_problems(patterns: Sequence[str], target: Target, cache: Path | None, *, json_output: bool) -> None:
    """Print which KernelBench problems are admitted on `target`, and why the others are not."""
    admissions = [admission for _, admission in _admitted(patterns, target, cache)]
    if json_output:
        rows = [{**a.model_dump(mode="json"), "admitted": a.admitted} for a in admissions]
        print(json.dumps(rows, indent=1))
        return
    table = plain_table("task", "MiB", "to judge", f"on {target}", right=("MiB", "to judge"))
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


def show_task(
    task: Annotated[str, typer.Argument(help="The task, such as l1/rms_norm.")],
    target: TargetOption = "cuda",
    briefing: Annotated[
        Briefing, typer.Option(help="full: with kernel-builder's format, as in `eval`.")
    ] = "contract",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
) -> None:
    found = select_with_problems([task], tasks_root)
    if len(found) != 1:
        raise UsageError(f"{task} matches {len(found)} tasks; name one")
    if json_output:
        print(found[0].task.model_dump_json(indent=1))
    else:
        print(task_text(found[0].task, target, briefing))
