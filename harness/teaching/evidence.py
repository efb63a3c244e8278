"""What students made of a skill, for its teacher: failures and slow shapes, grouped and counted.

Pure; the most frequent group comes first; what is left out is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness.outcome import Verdict
from harness.records import Grade, TrialRecord
from harness.text import clean, estimate_tokens, first_line, message_of

_EXAMPLES: Final = 2
"""Of one group that are told whole."""
_MESSAGE_LIMIT: Final = 1_200
_SLOWEST: Final = 12
_GOOD: Final = 5

Sources = Mapping[tuple[str, str], str]
"""Text of a student's file by project digest and path."""


def evidence(
    with_skill: Sequence[TrialRecord], without: Sequence[TrialRecord], sources: Sources, budget_tokens: int
) -> str:
    """Markdown of at most `budget_tokens` (estimated)."""
    sections = [
        _verdicts(with_skill, without),
        *_failures(with_skill, without, sources),
        _speeds(with_skill),
    ]
    told: list[str] = []
    left_out = 0
    room = budget_tokens - 20  # for the last line
    for section in filter(None, sections):
        cost = estimate_tokens(section + "\n\n")
        if cost <= room:
            told.append(section)
            room -= cost
        else:
            left_out += 1
    if left_out:
        told.append(f"({left_out} more groups are left out for length.)")
    return "\n\n".join(told)


def _graded(trials: Iterable[TrialRecord]) -> list[tuple[TrialRecord, Grade]]:
    return [(t, t.grade) for t in trials if t.grade is not None and t.verdict is not Verdict.INFRA]


def _verdicts(with_skill: Sequence[TrialRecord], without: Sequence[TrialRecord]) -> str:
    """How trials ended, with and without the skill."""
    lines = ["## How trials ended", "", "| verdict | with the skill | without any |", "|---|---|---|"]
    sides = [[grade.verdict for _, grade in _graded(trials)] for trials in (with_skill, without)]
    for verdict in Verdict:
        counts = [side.count(verdict) for side in sides]
        if any(counts):
            cells = [
                f"{n} of {len(side)}" if side else "not measured"
                for n, side in zip(counts, sides, strict=True)
            ]
            lines.append(f"| {verdict.value} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def _failures(
    with_skill: Sequence[TrialRecord], without: Sequence[TrialRecord], sources: Sources
) -> Iterable[str]:
    """One section a group of failures, the most frequent first."""
    groups: dict[str, list[tuple[TrialRecord, Grade]]] = defaultdict(list)
    for trial, grade in _graded(with_skill):
        if grade.verdict not in (Verdict.CORRECT, Verdict.NOT_MEASURED):
            groups[_kind(grade)].append((trial, grade))
    before = [_kind(grade) for _, grade in _graded(without)]
    for kind, members in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        tasks = sorted({trial.key.task for trial, _ in members})
        lines = [
            f"## {kind}: {len(members)} with the skill, {before.count(kind)} without",
            "",
            f"Tasks: {', '.join(tasks)}",
        ]
        for trial, grade in members[:_EXAMPLES]:
            lines += ["", f"In {trial.key.task}:", "", *_example(grade, sources)]
        yield "\n".join(lines)


def _kind(grade: Grade) -> str:
    """The name of a group: the cause, and for builds the kind of the first error."""
    if grade.build is not None and grade.build.diagnostics:
        return f"{grade.finding.cause.value} ({grade.build.diagnostics[0].kind})"
    return grade.finding.cause.value


def _example(grade: Grade, sources: Sources) -> Iterable[str]:
    if grade.build is not None and grade.build.diagnostics:
        for one in grade.build.diagnostics[:_EXAMPLES]:
            place = ":".join(str(part) for part in (one.file, one.line) if part is not None)
            yield f"- {clean(place)}: {clean(one.message)}" if place else f"- {clean(one.message)}"
            yield from _excerpt(sources.get((grade.project or "", one.file or "")), one.line)
        return
    yield f"- {clean(message_of(grade.finding.message))[:_MESSAGE_LIMIT]}"
    if grade.check is None:
        return
    for case in grade.check.workloads:
        if case.finding is not None and not case.hidden:
            dims = ", ".join(f"{name} = {size}" for name, size in (case.dims or {}).items())
            yield (
                f"- workload {case.workload} {case.dtype} ({dims}), values {case.values}, {case.layout}: "
                f"{clean(first_line(case.finding.message))}"
            )
    hidden = [case for case in grade.check.workloads if case.hidden]
    if wrong := sum(case.finding is not None for case in hidden):
        yield f"- {wrong} of {len(hidden)} cases of undisclosed shapes are wrong"


def _excerpt(text: str | None, line: int | None) -> Iterable[str]:
    """The line at fault and its neighbours."""
    if text is None or line is None:
        return
    lines = text.splitlines()
    for number in range(max(1, line - 2), min(len(lines), line + 2) + 1):
        mark = ">" if number == line else " "
        yield f"    {mark}{number:4} {clean(lines[number - 1])[:160]}"


def _speeds(trials: Sequence[TrialRecord]) -> str:
    """The slowest timed shapes of correct projects, then the best."""
    shapes = []
    for trial, grade in _graded(trials):
        for timed in grade.timing.workloads if grade.correct and grade.timing else ():
            fastest = min((r.score_us for r in timed.references), default=None)
            shapes.append((timed.speedup.value, trial.key.task, timed, fastest))
    if not shapes:
        return ""
    shapes.sort(key=lambda shape: shape[0])
    lines = [
        f"## Speed of correct projects, slowest first ({len(shapes)} shapes timed)",
        "",
        "| task | shape | dtype | speedup over the reference | project, us | reference, us |",
        "|---|---|---|---|---|---|",
    ]
    chosen = shapes if len(shapes) <= _SLOWEST + _GOOD else [*shapes[:_SLOWEST], *shapes[-_GOOD:]]
    for value, task, timed, fastest in chosen:
        reference = "-" if fastest is None else f"{fastest:.1f}"
        lines.append(
            f"| {task} | {clean(timed.workload)} | {timed.dtype} | {value:.2f}x | "
            f"{timed.student.score_us:.1f} | {reference} |"
        )
    return "\n".join(lines)
