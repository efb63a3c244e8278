"""`liftbench tasks check|freeze|status`: the suite as a whole.

`check` exits 3 when a task breaks a rule; `freeze` changes nothing when a task changed under its old
version.
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
    SandboxOption,
    TargetOption,
    TasksRootOption,
    TimedOption,
    make_bench,
)

if TYPE_CHECKING:
    from harness.records.task import Admission


def check_tasks(
    pattern: Annotated[list[str] | None, typer.Argument(help="Tasks (default: all).")] = None,
    target: TargetOption = "cpu",
    timed: TimedOption = False,
    mutants: Annotated[
        int, typer.Option(help="Off-by-one mistakes planted in each expert, at most; each is built.")
    ] = 8,
    record: Annotated[
        Path | None, typer.Option(help="Keep the outcome in this JSON file; what it has is not tried again.")
    ] = None,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Try every rule of admission on tasks.

    Exit code 3 if one is broken.
    """
    # References are tried in 16 bits on the CPU too, in this process: on virtual machines whose AMX is listed
    # and traps, oneDNN would end it (SIGILL, seen with torch 2.13).
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    from harness.grading.admission import admit
    from harness.grading.admitted import Admitted
    from harness.kernelbench.conversion import select_with_problems
    from harness.study.executors import make_executor
    from harness.suite.catalogue import LoadedTask, all_tasks, expert_directory, read_project

    kept = None if record is None else Admitted.open(record)
    done: list[Admission] = []
    owed: list[LoadedTask] = []
    for loaded in select_with_problems(pattern or [], tasks_root):
        directory = expert_directory(loaded.task)
        expert = None if directory is None else read_project(directory)
        found = None if kept is None else kept.entry(loaded.task, expert)
        if found is None or not found.admitted:
            owed.append(loaded)
        else:
            done.append(found)
    if owed:
        bench = make_bench(target, "quick", sandbox, cache, timed=timed)
        try:
            executor = make_executor("local", os.cpu_count() or 1)
            for entry in executor.map(lambda one: admit(one, bench.grader, mutants), owed):
                print(f"{entry.task}: {'admitted' if entry.admitted else 'NOT admitted'}", file=sys.stderr)
                done.append(entry)
                if kept is not None:
                    kept.add(entry)
        finally:
            bench.grader.close()
            bench.sandbox.stop()
    if kept is not None and tasks_root is None and kept.keep([one.task for one in all_tasks()]):
        kept.write()
    done.sort(key=lambda entry: entry.task)
    if json_output:
        print(json.dumps([entry.model_dump(mode="json") for entry in done], indent=1))
    else:
        _print(done)
    return 0 if all(entry.admitted for entry in done) else 3


def _print(entries: list[Admission]) -> None:
    from rich.console import Console
    from rich.table import Table

    from harness.cli.card import untrusted
    from harness.grading.admitted import RULES, cell

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True)
    for name in RULES:
        table.add_column(name)
    for entry in entries:
        rules = {rule.name: rule for rule in entry.rules}
        table.add_row(entry.task, *(cell(rules[name]) for name in RULES))
    console = Console()
    console.print(table)
    for entry in entries:
        for rule in entry.rules:
            if rule.status == "fails":
                console.print(untrusted(f"{entry.task} {rule.name}: {rule.said}"))
    admitted = sum(entry.admitted for entry in entries)
    console.print(f"{admitted} of {len(entries)} tasks break no rule; - is not measured here")


def freeze_tasks() -> None:
    """Write tasks/VERSION anew.

    It holds the suite's number, and the digest of every task's version.
    """
    from harness.files import data_directory, write_atomically
    from harness.suite.catalogue import all_tasks
    from harness.suite.frozen import FILE_NAME, Frozen

    path = data_directory("tasks") / FILE_NAME
    before = Frozen.parse(path.read_text(encoding="utf-8")) if path.exists() else Frozen()
    tasks = [loaded.task for loaded in all_tasks()]
    differences = before.differences(tasks)
    after = before.with_tasks(tasks)
    if after != before:
        write_atomically(path, after.text())
    for line in differences:
        print(line)
    print(f"suite {after.suite}: {len(after.tasks)} tasks{'' if differences else ', as frozen'}")


def status_text(results: Path) -> str:
    """What kernels_ref/STATUS.md should say, by the files in `results`. Raises UsageError."""
    from harness.files import data_directory
    from harness.grading.admitted import FILE_NAME, Admitted
    from harness.report.results import read_results
    from harness.report.status import status_page
    from harness.suite.catalogue import all_tasks

    tasks = [loaded.task for loaded in all_tasks()]
    admitted = Admitted.open(data_directory("tasks") / FILE_NAME)
    return status_page(tasks, admitted.entries, read_results(results))


def write_status(
    results: Annotated[
        Path | None, typer.Option(help="Folder with results (default: results/ of the checkout).")
    ] = None,
) -> None:
    """Write kernels_ref/STATUS.md anew.

    It says what is measured of every expert kernel, and where.
    """
    from harness.files import data_directory, write_atomically

    experts = data_directory("kernels_ref")
    write_atomically(experts / "STATUS.md", status_text(results or experts.parent / "results"))
    print(experts / "STATUS.md")
