"""`liftbench grade` and `liftbench validate`: projects without a model.

`grade` exits 0 whenever a grade was produced, whatever it is; `validate` exits 3 when an expert project is
not correct.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.setup import (
    CacheOption,
    JsonOption,
    ProtocolOption,
    SandboxOption,
    SanitizeOption,
    TargetOption,
    TasksRootOption,
    TimedOption,
    make_bench,
)

if TYPE_CHECKING:
    from harness.records import Grade, Project
    from harness.suite.catalogue import LoadedTask


def grade(
    directory: Annotated[
        Path,
        typer.Argument(
            help="A kernel-builder project (a folder with build.toml), or a KernelBench answer (FILE.py)."
        ),
    ],
    task: Annotated[
        str, typer.Option(help="The task, such as l1/rms_norm, or kernelbench:PATH/level1/FILE.")
    ],
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    sanitize: SanitizeOption = False,
    timed: TimedOption = True,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    build_log: Annotated[Path | None, typer.Option(help="Keep the build log in this file.")] = None,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> None:
    """Build, check and time one project on one task."""
    from rich.console import Console

    from harness.cli.card import print_card
    from harness.cli.kernelbench_view import chosen_tasks
    from harness.errors import DeviceLost, UsageError
    from harness.suite.catalogue import read_project
    from harness.suite.sizes import refuse_too_large

    found = chosen_tasks([task], tasks_root, target, cache)
    if len(found) != 1:
        raise UsageError(f"--task {task} matches {len(found)} tasks; name one")
    project = (
        _submission(directory, task, found[0], cache) if directory.is_file() else read_project(directory)
    )
    bench = make_bench(target, protocol, sandbox, cache, sanitize=sanitize, timed=timed)
    errors = Console(stderr=True)
    try:
        refuse_too_large(found, bench.grader.target, bench.grader.device_bytes)
        with errors.status("") as status:

            def attempt() -> Grade:
                return bench.grader.grade(
                    project, found[0], log=build_log, observer=lambda stage: status.update(f"{stage} ...")
                )

            try:
                result = attempt()
            except DeviceLost as error:
                errors.print(f"{error}; once more, and the last attempt counts", markup=False)
                result = attempt()
    finally:
        bench.grader.close()
        bench.sandbox.stop()
    if json_output:
        print(result.model_dump_json(indent=1))
    else:
        print_card(result, Console(), f"{directory.name} on {found[0].task.id}, {target}")


def _submission(file: Path, pattern: str, loaded: LoadedTask, cache: Path | None) -> Project:
    """The project that a file with `ModelNew` is wrapped in, as an answer to `loaded`. Raises UsageError."""
    from harness.errors import UsageError
    from harness.kernelbench.conversion import convert_pattern, read_submission, wrapped
    from harness.kernelbench.problems import is_pattern

    if not is_pattern(pattern):
        raise UsageError(
            f"{file} is one file: that is how KernelBench's problems (--task kernelbench:...) are answered"
        )
    # The pattern may name others that are not admitted.
    converted = next(one for one in convert_pattern(pattern, cache) if one.problem.id == loaded.task.id)
    return wrapped(read_submission(file), converted)


def validate(
    pattern: Annotated[list[str] | None, typer.Argument(help="Tasks (default: all).")] = None,
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    sanitize: SanitizeOption = False,
    timed: TimedOption = False,
    record: Annotated[
        Path | None,
        typer.Option(help="Also keep the experts' figures in this JSON file (see `make status`)."),
    ] = None,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Grade our expert projects, and replies that must score 0.

    Exit code 3 if one surprises.
    """
    from harness.cli.kernelbench_view import chosen_tasks
    from harness.cli.validation_view import print_validation
    from harness.grading.validation import Validation, validate_task
    from harness.report.results import result_of, write_results
    from harness.study.executors import make_executor
    from harness.suite.sizes import refuse_too_large

    tasks = chosen_tasks(pattern or [], tasks_root, target, cache)
    bench = make_bench(target, protocol, sandbox, cache, sanitize=sanitize, timed=timed)
    try:
        refuse_too_large(tasks, bench.grader.target, bench.grader.device_bytes)
        executor = make_executor("local", os.cpu_count() or 1)
        found: dict[str, list[Validation]] = {}
        for made in executor.map(lambda one: validate_task(one, bench.grader), tasks):
            found[made[0].task] = made
            note = "" if all(one.as_expected for one in made) else ": UNEXPECTED"
            print(f"{len(found)}/{len(tasks)} {made[0].task}{note}", file=sys.stderr, flush=True)
        results = [one for loaded in tasks for one in found[loaded.task.id]]
    finally:
        bench.grader.close()
        bench.sandbox.stop()
    if record is not None:
        graded = [r.grade for r in results if r.what == "expert" and r.grade is not None]
        write_results(record, [result_of(grade, bench.machine) for grade in graded])
    if json_output:
        print(json.dumps([r.model_dump(mode="json") for r in results], indent=1))
    else:
        print_validation(results)
    return 0 if all(r.as_expected for r in results) else 3
