"""`liftbench tasks list|show`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.setup import CacheOption, JsonOption, TargetOption, TasksRootOption, parse_target

if TYPE_CHECKING:
    from rich.table import Table

    from harness.records import Target, Task

app = typer.Typer(help="The kernels that students are asked for.", no_args_is_help=True)


@app.command("list")
def list_tasks(
    pattern: Annotated[
        list[str] | None, typer.Argument(help="Globs, such as 'l1/*', or kernelbench:PATH[/level1][/GLOB].")
    ] = None,
    target: TargetOption = "cuda",
    workloads: Annotated[
        bool,
        typer.Option("--workloads", help="A line for every workload: its bytes, and the model it is of."),
    ] = False,
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> None:
    """List tasks: id, family, sizes.

    KernelBench problems: sizes, and whether they are admitted for --target.
    """
    import json

    from rich.console import Console
    from rich.table import Table

    from harness.errors import UsageError
    from harness.kernelbench.conversion import select_with_problems
    from harness.kernelbench.problems import is_pattern

    if any(map(is_pattern, pattern or [])):
        from harness.cli.kernelbench_view import list_problems

        if not all(map(is_pattern, pattern or [])):
            raise UsageError("tasks list: KernelBench problems and other tasks are listed apart")
        list_problems(pattern or [], target, cache, json_output=json_output)
        return
    tasks = [loaded.task for loaded in select_with_problems(pattern or [], tasks_root)]
    if json_output:
        print(json.dumps([task.model_dump(mode="json") for task in tasks], indent=1))
        return
    if workloads:
        Console().print(_workloads_table(tasks))
        return
    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    table.add_column("task", no_wrap=True, min_width=max((len(task.id) for task in tasks), default=0))
    for name, width in (("sizes", 5), ("timed", 5), ("largest cpu", 11), ("cuda", 8)):
        table.add_column(name, justify="right", no_wrap=True, min_width=width)
    table.add_column("family: title", no_wrap=True, overflow="ellipsis", ratio=1, min_width=12)
    for task in tasks:
        table.add_row(
            task.id,
            str(len(task.workloads)),
            str(sum(w.timed for w in task.workloads)),
            _largest(task, "cpu"),
            _largest(task, "cuda"),
            f"{task.family}: {task.title}",
        )
    Console().print(table)
    print(f"{len(tasks)} tasks in {len({task.family for task in tasks})} families")


def _largest(task: Task, target: Target) -> str:
    """Bytes of the operands of the largest workload."""
    from harness.suite.sizes import gib, sizes

    found = [size.operands_bytes for size in sizes(task, target)]
    return gib(max(found)) if found else "-"


def _workloads_table(tasks: Sequence[Task]) -> Table:
    """Every workload in every dtype: what it takes, and the model that its sizes come from."""
    from rich.table import Table

    from harness.suite.sizes import gib, sizes

    table = Table(box=None, pad_edge=False, header_style="dim", expand=True)
    for name in ("task", "workload", "target", "timed"):
        table.add_column(name, no_wrap=True)
    for name in ("operands", "judged in"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("sizes of", overflow="ellipsis", no_wrap=True, ratio=1, min_width=8)
    for task in tasks:
        by_name = {workload.name: workload for workload in task.workloads}
        for target in task.dtypes:
            for size in sizes(task, target):
                workload = by_name[size.workload]
                took = (gib(size.operands_bytes), gib(size.judged_bytes))
                timed = "yes" if workload.timed else "no"
                table.add_row(task.id, size.label, target, timed, *took, workload.source or "")
    return table


@app.command("show")
def show_task(
    task: Annotated[str, typer.Argument(help="The task, such as l1/rms_norm.")],
    target: TargetOption = "cuda",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
) -> None:
    """Print a task as the student reads it."""
    from harness.errors import UsageError
    from harness.kernelbench.conversion import select_with_problems
    from harness.student.prompts import task_text

    found = select_with_problems([task], tasks_root)
    if len(found) != 1:
        raise UsageError(f"{task} matches {len(found)} tasks; name one")
    loaded = found[0]
    if json_output:
        print(loaded.task.model_dump_json(indent=1))
    else:
        print(task_text(loaded.task, parse_target(target)))
