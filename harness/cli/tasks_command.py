"""`liftbench tasks list|show`.

Owns: how tasks are shown. Does not own: finding them.
"""

from __future__ import annotations

from typing import Annotated

import typer

from harness.cli.setup import JsonOption, TargetOption, TasksRootOption, parse_target

app = typer.Typer(help="The kernels that students are asked for.", no_args_is_help=True)


@app.command("list")
def list_tasks(
    pattern: Annotated[list[str] | None, typer.Argument(help="Globs, such as 'l1/*'.")] = None,
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
) -> None:
    """List tasks: id, family, workloads, dtypes."""
    import json

    from rich.console import Console
    from rich.table import Table

    from harness.catalogue import expert_directory, select_tasks

    tasks = [loaded.task for loaded in select_tasks(pattern or [], tasks_root)]
    if json_output:
        print(json.dumps([task.model_dump(mode="json") for task in tasks], indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True)
    for name in ("family", "workloads", "timed", "cuda dtypes", "expert", "title"):
        table.add_column(name)
    for task in tasks:
        table.add_row(
            task.id,
            task.family,
            str(len(task.workloads)),
            str(sum(w.timed for w in task.workloads)),
            " ".join(task.dtypes.get("cuda", ())),
            "yes" if expert_directory(task) else "no",
            task.title,
        )
    Console().print(table)


@app.command("show")
def show_task(
    task: Annotated[str, typer.Argument(help="The task, such as l1/rms_norm.")],
    target: TargetOption = "cuda",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
) -> None:
    """Print a task as the student reads it."""
    from harness.catalogue import select_tasks
    from harness.errors import UsageError
    from harness.prompts import task_text

    found = select_tasks([task], tasks_root)
    if len(found) != 1:
        raise UsageError(f"{task} matches {len(found)} tasks; name one")
    loaded = found[0]
    if json_output:
        print(loaded.task.model_dump_json(indent=1))
    else:
        print(task_text(loaded.task, parse_target(target)))
