"""Validates a task: its expert is correct, trivial outputs fail the check, replies without work score 0."""

from __future__ import annotations

from harness.grading.grade import Grader
from harness.judge.check import problems
from harness.judge.trivial_answers import passing
from harness.outcome import Verdict
from harness.records import Finding, Grade, Record, Reply, Target
from harness.student.answer import parse_reply
from harness.student.prompts import SYSTEM, task_text
from harness.suite.catalogue import LoadedTask, expert_project


class Validation(Record):
    """Result of one trial of one task."""

    task: str
    what: str
    """`expert`, `trivial outputs`, `empty reply`, `echo of the prompt` or `copied prompt`."""
    grade: Grade | None
    as_expected: bool
    said: str


def _replies_without_work(loaded: LoadedTask, target: Target) -> dict[str, str]:
    # The prompt that has files in it, with the paths of a real project.
    prompt = task_text(loaded.task, target, "full")
    copied = "Here is the project.\n\n```toml build.toml\n" + prompt.replace("```", "'''") + "\n```\n"
    return {"empty reply": "", "echo of the prompt": f"{SYSTEM}\n\n{prompt}", "copied prompt": copied}


def _graded(what: str, grade: Grade, *expected: Verdict) -> Validation:
    emulated = grade.emulated
    wrong = emulated is not None and emulated.outcome != "correct"
    said = emulated.message if emulated is not None and wrong else grade.finding.message
    fine = grade.verdict in expected and not wrong
    return Validation(task=grade.task, what=what, grade=grade, as_expected=fine, said=said)


def validate_task(loaded: LoadedTask, grader: Grader) -> list[Validation]:
    """Run all validations of one task. Raises InfraError."""
    results = []
    expert = expert_project(loaded.task)
    if expert is not None:
        grade = grader.grade(expert, loaded)
        results.append(_graded("expert", grade, Verdict.CORRECT, Verdict.NOT_MEASURED))
    if grader.truth_device is not None:
        timed = problems(loaded, grader.target, timed_only=True, device=grader.truth_device)
        passed = [f"{problem.label}: {what} passes" for problem in timed for what in passing(problem)]
        said, what = "; ".join(passed) or "all fail", "trivial outputs"
        results.append(
            Validation(task=loaded.task.id, what=what, grade=None, as_expected=not passed, said=said)
        )
    for what, text in _replies_without_work(loaded, grader.target).items():
        reply = Reply(text=text, stop="end", model_label="echo", created="1970-01-01T00:00:00+00:00")
        found = parse_reply(reply)
        if isinstance(found, Finding):
            grade = grader.no_project(found, loaded)
        else:
            grade = grader.grade(found, loaded)
        results.append(_graded(what, grade, Verdict.NO_PROJECT, Verdict.BUILD_FAILED))
    return results
