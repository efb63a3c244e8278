"""`liftbench grade` and `liftbench validate`: projects without a model.

Owns: their options and output. Does not own: grading. Invariant: `grade` exits 0 whenever a grade
was produced, whatever it is; `validate` exits 3 when an expert project is not correct.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.setup import (
    CacheOption,
    JsonOption,
    ProtocolOption,
    SandboxOption,
    TargetOption,
    TasksRootOption,
    make_bench,
)


def grade(
    directory: Annotated[Path, typer.Argument(help="A kernel-builder project: a folder with build.toml.")],
    task: Annotated[str, typer.Option(help="The task, such as l1/rms_norm.")],
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    build_log: Annotated[Path | None, typer.Option(help="Keep the build log in this file.")] = None,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> None:
    """Build, check and time one project on one task."""
    from rich.console import Console

    from harness.catalogue import read_project, select_tasks
    from harness.cli.card import print_card
    from harness.errors import UsageError

    found = select_tasks([task], tasks_root)
    if len(found) != 1:
        raise UsageError(f"--task {task} matches {len(found)} tasks; name one")
    project = read_project(directory)
    bench = make_bench(target, protocol, sandbox, cache)
    errors = Console(stderr=True)
    try:
        with errors.status("") as status:
            result = bench.grader.grade(
                project, found[0], log=build_log, observer=lambda stage: status.update(f"{stage} ...")
            )
    finally:
        bench.grader.close()
        bench.sandbox.stop()
    if json_output:
        print(result.model_dump_json(indent=1))
    else:
        print_card(result, Console(), f"{directory.name} on {found[0].task.id}, {target}")


def validate(
    pattern: Annotated[list[str] | None, typer.Argument(help="Tasks (default: all).")] = None,
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Grade our expert projects, and replies that must score 0; exit 3 if one surprises."""
    from harness.catalogue import select_tasks
    from harness.cli.validation import print_validation, validate_tasks

    tasks = select_tasks(pattern or [], tasks_root)
    bench = make_bench(target, protocol, sandbox, cache)
    try:
        results = validate_tasks(tasks, bench.grader, progress=sys.stderr)
    finally:
        bench.grader.close()
        bench.sandbox.stop()
    if json_output:
        print(json.dumps([r.model_dump(mode="json") for r in results], indent=1))
    else:
        print_validation(results)
    return 0 if all(r.as_expected for r in results) else 3
