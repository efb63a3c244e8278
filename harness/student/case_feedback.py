"""What may be told of a check, case by case.

Of a case with a drawn shape nothing is told but that it is one of so many that pass or fail; of a public
shape with values made hard, the kind and how far it is off, and of what the case's own message says no
number.
"""

from __future__ import annotations

from typing import Final, Literal

from harness.outcome import Cause, Verdict
from harness.records import CheckResult, Finding, Grade, WorkloadCheck
from harness.student.excerpts import one_line, quotation

_CASES_TOKENS: Final = 1_000
_PLAIN: Final = ("task", "integers")
"""Values that hold no secret place: the task's own, and -1, 0 and 1."""

_WORDS: Final[dict[Cause, str]] = {
    Cause.WRONG_VALUES: "values are wrong",
    Cause.UNWRITTEN_OUTPUT: "elements were never written",
    Cause.MUTATED_INPUT: "an operand that is read only was written to",
    Cause.WROTE_OUTSIDE: "memory outside of an operand was written to",
    Cause.NONDETERMINISTIC: "equal inputs gave different outputs",
    Cause.CHANGED_GLOBALS: "a global setting of torch was changed and not put back",
    Cause.OP_RAISED: "the operator raised an exception",
    Cause.SIGNAL: "the process was killed by a signal",
    Cause.EXITED_EARLY: "the process exited by itself",
    Cause.OUT_OF_MEMORY: "it used more memory than allowed",
    Cause.WALL_TIMEOUT: "there was no answer in time",
}


def told_of(grade: Grade) -> Literal["all", "words", "nothing"]:
    """What of a failure's message may be told: by the case that it is of, if it is of one.

    `words`: without any number, since an exception may quote what it was given.
    """
    if grade.check is None or grade.check.finding is None or grade.finding != grade.check.finding:
        return "all"
    cases = [case for case in grade.check.workloads if case.finding == grade.finding]
    if any(_open(case) for case in cases):
        return "all"
    return "nothing" if all(case.hidden for case in cases) else "words"


def check_lines(check: CheckResult) -> str:
    """How many cases pass, and which public ones do not."""
    public = [case for case in check.workloads if not case.hidden]
    hidden = [case for case in check.workloads if case.hidden]
    failing = [_failing(case, case.finding) for case in public if case.finding is not None]
    lines = [f"Cases with shapes that you know: {len(public) - len(failing)} of {len(public)} pass."]
    if hidden:
        passing = sum(case.finding is None for case in hidden)
        lines.append(f"Hidden cases (shapes drawn for this check): {passing} of {len(hidden)} pass.")
    if check.not_run:
        lines.append(f"Cases not run after that: {len(check.not_run)}.")
    text = " ".join(lines)
    return text + ("\n\n" + quotation(failing, _CASES_TOKENS) if failing else "")


def _open(case: WorkloadCheck) -> bool:
    return not case.hidden and case.values in _PLAIN


def _failing(case: WorkloadCheck, finding: Finding) -> str:
    """One public case that failed, in one line."""
    name = f"{case.workload} {case.dtype}"
    if case.values != "task":
        name += f", values {case.values}"
    if case.layout != "contiguous":
        name += f", {case.layout}"
    if _open(case) and finding.verdict is Verdict.WRONG_RESULT:
        # Ours: it holds counts, an index and a multiple of what is allowed, and no value.
        said = finding.message.removeprefix(f"{name}: ")
        return f"{name}: {one_line(said)}"
    return f"{name}: {_WORDS.get(finding.cause, str(finding.cause).replace('_', ' '))}{_far(case)}"


def _far(case: WorkloadCheck) -> str:
    worst, allowed = case.worst_error, case.allowed_error
    if worst is None or not allowed or worst <= allowed:
        return ""
    return f"; the largest error is {worst / allowed:.3g} times what is allowed"
