"""`liftbench grade`, `validate` and `tasks check`: grading without a model."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from harness.cli.card import plain_table, print_card, ratio_text, untrusted
from harness.cli.options import (
    CacheOption,
    GradingOptions,
    JsonOption,
    SandboxOption,
    SanitizeOption,
    TargetOption,
    TasksRootOption,
    TimedOption,
    make_grading_setup,
)
from harness.cli.tasks import chosen_tasks
from harness.errors import DeviceLost, InfraError, UsageError
from harness.files import write_atomically
from harness.grading.admission import RULES, Admitted, admit, cell
from harness.grading.validation import Validation, validate_task
from harness.interop.order_book import Rewards
from harness.kernelbench.conversion import convert_pattern, read_submission, select_with_problems, wrapped
from harness.kernelbench.problems import is_pattern
from harness.outcome import Cause
from harness.records import Finding, Grade, Project
from harness.records.task import Admission
from harness.report.experts import result_of, write_results
from harness.study.executor import LocalExecutor
from harness.suite.catalogue import LoadedTask, all_tasks, expert_project, read_project
from harness.suite.sizes import refuse_too_large

if TYPE_CHECKING:  # torch
    from harness.grading.opening import LocalGradingSetup

TasksArgument = Annotated[list[str] | None, typer.Argument(help="Tasks (default: all).")]


def grade(
    directory: Annotated[
        Path, typer.Argument(help="A folder with build.toml, or a KernelBench answer (FILE.py).")
    ],
    task: Annotated[str, typer.Option(help="Such as l1/rms_norm, or kernelbench:PATH/level1/FILE.")],
    *,
    sanitize: SanitizeOption = False,
    timed: TimedOption = True,
    json_output: JsonOption = False,
    rewards: Annotated[
        Path | None, typer.Option(help="JSON file for named rewards; a folder without a project gets 0.")
    ] = None,
    build_log: Annotated[Path | None, typer.Option(help="Keep the build log in this file.")] = None,
    seed: Annotated[
        str | None, typer.Option(help="`check.seed` of an earlier grade, to check the same inputs again.")
    ] = None,
    grading: GradingOptions,
) -> None:
    """Exit code 0 whenever a grade was produced, whatever it is."""
    found = chosen_tasks([task], grading)
    if len(found) != 1:
        raise UsageError(f"--task {task} matches {len(found)} tasks; name one")
    if seed is not None and re.fullmatch("[0-9a-f]{64}", seed) is None:
        raise UsageError(f"--seed {seed}: a seed has 64 of the digits 0 to 9 and a to f")
    if directory.is_file():
        project: Project | Finding = _submission(directory, task, found[0], grading.cache)
    else:
        project = _read(directory, refuse=rewards is None)
    with closing(make_grading_setup(grading, sanitize=sanitize, timed=timed)) as setup:
        refuse_too_large(found, grading.target, setup.grader.device_bytes)
        result = _grade(project, found[0], setup, build_log, None if seed is None else bytes.fromhex(seed))
    if json_output:
        print(result.model_dump_json(indent=1))
    else:
        print_card(result, Console(), f"{directory.name} on {found[0].task.id}, {grading.target}")
    if rewards is not None:
        if result.correct is None:
            raise InfraError(f"no rewards: {result.finding.message}")
        write_atomically(rewards, Rewards.of(result).model_dump_json(exclude_none=True) + "\n")


def _read(directory: Path, *, refuse: bool) -> Project | Finding:
    """The project; or why there is none, which is the student's failure unless it is to be refused."""
    try:
        return read_project(directory)
    except UsageError as error:
        if refuse:
            raise
        return Finding(cause=Cause.NO_FILES, message=f"{error}")


def _grade(
    project: Project | Finding,
    loaded: LoadedTask,
    setup: LocalGradingSetup,
    build_log: Path | None,
    seed: bytes | None,
) -> Grade:
    """The grade, with the current stage on stderr; tried once more if the device is lost."""
    errors = Console(stderr=True)
    with errors.status("") as status:

        def observer(stage: str) -> None:
            status.update(f"{stage} ...")

        if isinstance(project, Finding):
            return setup.grader.no_project(project, loaded)
        try:
            return setup.grader.grade(project, loaded, log=build_log, observer=observer, seed=seed)
        except DeviceLost as error:
            errors.print(f"{error}; trying once more, the second attempt counts", markup=False)
            return setup.grader.grade(project, loaded, log=build_log, observer=observer, seed=seed)


def _submission(file: Path, pattern: str, loaded: LoadedTask, cache: Path | None) -> Project:
    """The project that wraps a file with `ModelNew` as an answer to `loaded`. Raises UsageError."""
    if not is_pattern(pattern):
        raise UsageError(f"{file} is one file: only KernelBench problems (--task kernelbench:...) take that")
    # The pattern may name others that are not admitted.
    converted = next(one for one in convert_pattern(pattern, cache) if one.problem.id == loaded.task.id)
    return wrapped(read_submission(file), converted)


def validate(
    pattern: TasksArgument = None,
    *,
    sanitize: SanitizeOption = False,
    timed: TimedOption = False,
    record: Annotated[Path | None, typer.Option(help="JSON file for the experts' figures.")] = None,
    grading: GradingOptions,
    json_output: JsonOption = False,
) -> int:
    """Exit code 3 if a result is unexpected."""
    tasks = chosen_tasks(pattern or [], grading)
    with closing(make_grading_setup(grading, sanitize=sanitize, timed=timed)) as setup:
        refuse_too_large(tasks, grading.target, setup.grader.device_bytes)
        results = _validate(tasks, setup)
    if record is not None:
        graded = [r.grade for r in results if r.what == "expert" and r.grade is not None]
        write_results(record, [result_of(grade, setup.machine) for grade in graded])
    if json_output:
        print(json.dumps([r.model_dump(mode="json") for r in results], indent=1))
    else:
        _print_validation(results)
    return 0 if all(r.as_expected for r in results) else 3


def _validate(tasks: Sequence[LoadedTask], setup: LocalGradingSetup) -> list[Validation]:
    """In the order of tasks, with progress on stderr. Raises InfraError."""
    found: dict[str, list[Validation]] = {}
    executor = LocalExecutor(os.cpu_count() or 1)
    for results in executor.map(lambda one: validate_task(one, setup.grader), tasks):
        task = results[0].task
        found[task] = results
        note = "" if all(one.as_expected for one in results) else ": UNEXPECTED"
        print(f"{len(found)}/{len(tasks)} {task}{note}", file=sys.stderr, flush=True)
    return [one for loaded in tasks for one in found[loaded.task.id]]


def _print_validation(results: Sequence[Validation]) -> None:
    """One line for each expert and for each unexpected result."""
    figures = ("what", "verdict", "emulated", "build s", "worst error", "speedup, 95% CI", "")
    table = plain_table("task", *figures, whole=("task",))
    for one in results:
        if one.what == "expert" or not one.as_expected:
            table.add_row(one.task, one.what, *_cells(one.grade), "" if one.as_expected else "UNEXPECTED")
    console = Console()
    console.print(table)
    experts = [r for r in results if r.what == "expert"]
    trivial = [r for r in results if r.what == "trivial outputs"]
    empty = [r for r in results if r not in experts and r not in trivial]
    on_trivial = f"trivial outputs fail on {_count(trivial)} tasks, " if trivial else ""
    console.print(f"{_count(experts)} experts pass, {on_trivial}{_count(empty)} replies without work score 0")
    for one in results:
        if not one.as_expected:
            console.print(untrusted(f"{one.task} {one.what}: {one.said}"))


def _count(results: Sequence[Validation]) -> str:
    return f"{sum(r.as_expected for r in results)} of {len(results)}"


def _cells(grade: Grade | None) -> tuple[str, str, str, str, str]:
    """Verdict, outcome on the emulated GPU, build time, worst error, speedup."""
    if grade is None:
        return ("-",) * 5
    build = "-" if grade.build is None or grade.build.compiler_s is None else f"{grade.build.compiler_s:.1f}"
    emulated = "-" if grade.emulated is None else grade.emulated.outcome
    check = grade.check if grade.emulated is None else grade.emulated.check
    checks = check.workloads if check else ()
    errors = [w.worst_error for w in checks if w.worst_error is not None]
    timed = grade.timing is not None and bool(grade.timing.workloads)
    speedup = ratio_text(grade.timing.speedup) if grade.timing is not None and timed else "not measured"
    return str(grade.verdict), emulated, build, f"{max(errors):.3g}" if errors else "-", speedup


def check_tasks(
    pattern: TasksArgument = None,
    target: TargetOption = "cpu",
    timed: TimedOption = False,
    mutants: Annotated[int, typer.Option(help="Maximum off-by-one mutants of each expert.")] = 8,
    record: Annotated[Path | None, typer.Option(help="JSON file; what it holds is not tried again.")] = None,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Exit code 3 if one is broken."""
    # References run in 16 bits in this process, too: on virtual machines whose AMX is listed but traps,
    # oneDNN would end it (SIGILL, seen with torch 2.13).
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    kept = None if record is None else Admitted(record)
    done: list[Admission] = []
    owed: list[LoadedTask] = []
    for loaded in select_with_problems(pattern or [], tasks_root):
        found = None if kept is None else kept.entry(loaded.task, expert_project(loaded.task))
        if found is None or not found.admitted:
            owed.append(loaded)
        else:
            done.append(found)
    if owed:
        grading = GradingOptions(target=target, sandbox=sandbox, cache=cache)
        with closing(make_grading_setup(grading, timed=timed)) as setup:
            done += _admit(owed, setup, mutants, kept)
    if kept is not None and tasks_root is None:
        kept.keep([one.task for one in all_tasks()])
    done.sort(key=lambda entry: entry.task)
    if json_output:
        print(json.dumps([entry.model_dump(mode="json") for entry in done], indent=1))
    else:
        _print_admissions(done)
    return 0 if all(entry.admitted for entry in done) else 3


def _admit(
    tasks: list[LoadedTask], setup: LocalGradingSetup, mutants: int, kept: Admitted | None
) -> list[Admission]:
    """Try tasks, with progress on stderr; each outcome is kept at once."""
    done = []
    executor = LocalExecutor(os.cpu_count() or 1)
    for entry in executor.map(lambda one: admit(one, setup.grader, mutants), tasks):
        print(f"{entry.task}: {'admitted' if entry.admitted else 'NOT admitted'}", file=sys.stderr)
        done.append(entry)
        if kept is not None:
            kept.add(entry)
    return done


def _print_admissions(entries: list[Admission]) -> None:
    table = plain_table("task", *RULES, whole=("task",))
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
