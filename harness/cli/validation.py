"""What `liftbench validate` does: the experts must pass, and what took no work must not.

A task passes only if its expert project is correct (on a machine without a GPU: builds), trivial outputs
(zeros, an input, ...) fail the check, and an empty reply, an echo of the prompt and a copied prompt each
score 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.table import Table

from harness.cli.card import ratio_text, untrusted
from harness.grading.grade import Grader
from harness.outcome import Verdict
from harness.records import Finding, Grade, Record, Reply, Target
from harness.student.prompts import SYSTEM, task_text
from harness.student.reply_parsing import parse_reply
from harness.study.executors import Executor
from harness.suite.catalogue import LoadedTask, expert_directory, read_project

if TYPE_CHECKING:
    import torch


class Validation(Record):
    """One thing that was tried on one task."""

    task: str
    what: str
    """`expert`, `trivial outputs`, `empty reply`, `echo of the prompt` or `copied prompt`."""
    grade: Grade | None
    """None for trivial outputs: the check has them without any project."""
    as_expected: bool
    said: str
    """What surprised, or the verdict's message."""


def empty_talk(loaded: LoadedTask, target: Target) -> dict[str, str]:
    """Replies without any work in them."""
    prompt = task_text(loaded.task, target)
    copied = "Here is the project.\n\n```toml build.toml\n" + prompt.replace("```", "'''") + "\n```\n"
    return {"empty reply": "", "echo of the prompt": f"{SYSTEM}\n\n{prompt}", "copied prompt": copied}


def _grade_reply(text: str, loaded: LoadedTask, grader: Grader) -> Grade:
    reply = Reply(text=text, stop="end", model_label="echo", created="1970-01-01T00:00:00+00:00")
    found = parse_reply(reply)
    if isinstance(found, Finding):
        return grader.no_project(found, loaded)
    return grader.grade(found, loaded)


def _expert(loaded: LoadedTask, grader: Grader) -> list[Validation]:
    directory = expert_directory(loaded.task)
    if directory is None:
        return []
    grade = grader.grade(read_project(directory), loaded)
    fine = grade.verdict in (Verdict.CORRECT, Verdict.NOT_MEASURED)
    return [_graded(loaded, "expert", grade, fine)]


def _graded(loaded: LoadedTask, what: str, grade: Grade, fine: bool) -> Validation:
    return Validation(
        task=loaded.task.id, what=what, grade=grade, as_expected=fine, said=grade.finding.message
    )


def _trivial(loaded: LoadedTask, target: Target, device: torch.device) -> Validation:
    """On the timed workloads of the target, where inputs and truth are made."""
    from harness.grading.trivial import passing
    from harness.judge.cases import problems

    timed = problems(loaded, target, timed_only=True, device=device)
    passed = [f"{problem.label}: {what} passes" for problem in timed for what in passing(problem)]
    return Validation(
        task=loaded.task.id,
        what="trivial outputs",
        grade=None,
        as_expected=not passed,
        said="; ".join(passed) or "all fail",
    )


def validate_task(loaded: LoadedTask, grader: Grader) -> list[Validation]:
    """Try everything on one task. Raises InfraError when something of ours fails."""
    results = _expert(loaded, grader)
    if grader.truth_device is not None:
        results.append(_trivial(loaded, grader.target, grader.truth_device))
    for what, text in empty_talk(loaded, grader.target).items():
        grade = _grade_reply(text, loaded, grader)
        zero = grade.verdict in (Verdict.NO_PROJECT, Verdict.BUILD_FAILED)
        results.append(_graded(loaded, what, grade, zero))
    return results


def validate_tasks(
    tasks: Sequence[LoadedTask], grader: Grader, executor: Executor, progress: TextIO
) -> list[Validation]:
    """Try everything on all tasks, some at a time, in the order of tasks. Raises InfraError."""
    found: dict[str, list[Validation]] = {}
    for results in executor.map(lambda one: validate_task(one, grader), tasks):
        task = results[0].task
        found[task] = results
        fine = all(one.as_expected for one in results)
        print(f"{len(found)}/{len(tasks)} {task}{'' if fine else ': UNEXPECTED'}", file=progress, flush=True)
    return [one for loaded in tasks for one in found[loaded.task.id]]


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
