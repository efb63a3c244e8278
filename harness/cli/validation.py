"""What `liftbench validate` does: the experts must pass, and empty talk must not.

Owns: the self-test of tasks, judge and parser together. Does not own: grading.
Invariant: a task passes only if its expert project is correct (on a machine without a GPU: builds)
and an empty reply, an echo of the prompt and a copied prompt each score 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table

from harness.catalogue import LoadedTask, expert_directory, read_project
from harness.cli.card import ratio_text, untrusted
from harness.grade import Grader
from harness.outcome import Verdict
from harness.project import parse_reply
from harness.prompts import SYSTEM, task_text
from harness.records import Finding, Grade, Record, Reply, Target


class Validation(Record):
    """One thing that was tried on one task."""

    task: str
    what: str
    """`expert`, `empty reply`, `echo of the prompt` or `copied prompt`."""
    grade: Grade
    as_expected: bool


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


def validate_tasks(tasks: Sequence[LoadedTask], grader: Grader, progress: TextIO) -> list[Validation]:
    """Grade everything. Raises InfraError when something of ours fails."""
    results: list[Validation] = []
    for loaded in tasks:
        print(f"validating {loaded.task.id}", file=progress)
        directory = expert_directory(loaded.task)
        if directory is not None:
            grade = grader.grade(read_project(directory), loaded)
            fine = grade.verdict in (Verdict.CORRECT, Verdict.NOT_MEASURED)
            results.append(Validation(task=loaded.task.id, what="expert", grade=grade, as_expected=fine))
        for what, text in empty_talk(loaded, grader.target).items():
            grade = _grade_reply(text, loaded, grader)
            zero = grade.verdict in (Verdict.NO_PROJECT, Verdict.BUILD_FAILED)
            results.append(Validation(task=loaded.task.id, what=what, grade=grade, as_expected=zero))
    return results


def print_validation(results: Sequence[Validation]) -> None:
    """A table on stdout, one line for each expert and one for what surprised."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("task", no_wrap=True)
    for name in ("what", "verdict", "build s", "worst error", "speedup, 95% CI", ""):
        table.add_column(name)
    for one in results:
        if one.what != "expert" and one.as_expected:
            continue
        grade = one.grade
        build = (
            "-" if grade.build is None or grade.build.compiler_s is None else f"{grade.build.compiler_s:.1f}"
        )
        errors = (
            [w.worst_error for w in grade.check.workloads if w.worst_error is not None] if grade.check else []
        )
        table.add_row(
            one.task,
            one.what,
            str(grade.verdict),
            build,
            f"{max(errors):.3g}" if errors else "-",
            ratio_text(grade.timing.speedup) if grade.timing and grade.timing.workloads else "not measured",
            "" if one.as_expected else "UNEXPECTED",
        )
    console = Console()
    console.print(table)
    talk = [r for r in results if r.what != "expert"]
    console.print(f"{sum(r.as_expected for r in talk)} of {len(talk)} replies without work scored 0")
    for one in results:
        if not one.as_expected:
            console.print(untrusted(f"{one.task} {one.what}: {one.grade.finding.message}"))
