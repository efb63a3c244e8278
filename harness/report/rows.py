"""Trial rows, task rows and failure groups. Text of a student is cleaned here."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, TypeVar

from harness.outcome import Stage, Verdict
from harness.records import (
    Arm,
    Diagnostic,
    Finding,
    Grade,
    RunConfig,
    TrialRecord,
    WorkloadCheck,
    WorkloadTiming,
)
from harness.report.evidence import emulated_lines, evidence_lines
from harness.report.metrics import compiled, usage_of
from harness.report.schema import (
    ArmCount,
    BuildFailureGroup,
    FailureGroup,
    TaskCell,
    TaskRow,
    TrialRow,
    WorkloadRow,
)
from harness.text import clean, first_error, first_line, message_of

K = TypeVar("K", bound=str)


def _finding(trial: TrialRecord) -> Finding:
    if trial.verdict is Verdict.INFRA or trial.grade is None:
        last = trial.failures[-1]
        return Finding(cause=last.cause, message=last.message)
    return trial.grade.finding


def trial_row(trial: TrialRecord, families: Mapping[str, str]) -> TrialRow:
    key, finding = trial.key, _finding(trial)
    grade = None if trial.verdict is Verdict.INFRA else trial.grade
    build = grade.build if grade else None
    timing = grade.timing if grade else None
    emulated = grade.emulated if grade else None
    ratio = timing.speedup if grade and grade.correct and timing else None
    usage = usage_of(trial.turns)
    checks = grade.check.workloads if grade and grade.check else ()
    errors = [one.worst_error for one in checks if one.worst_error is not None]
    flagged = grade is not None and grade.flags_of_work
    flags = () if grade is None else (*grade.flags, *(timing.flags if timing else ()))  # as older records do
    return TrialRow(
        task=key.task,
        family=families[key.task],
        model=key.model,
        arm=key.arm,
        repeat=key.repeat,
        verdict=trial.verdict,
        emulated=emulated.outcome if emulated else None,
        stage=grade.stage if grade else None,
        cause=finding.cause,
        headline=first_line(finding.message),
        message=message_of(finding.message),
        diagnostics=tuple(_cleaned(one) for one in build.diagnostics) if build else (),
        build_wall_s=build.wall_s if build else None,
        compiler_s=build.compiler_s if build else None,
        cache_hit=build.cache_hit if build else None,
        jit=build is not None and build.jit,
        calls=tuple(map(clean, build.calls.borrowed)) if build and build.calls and flagged else (),
        kernels=build.kernels if build else None,
        evidence=(*emulated_lines(emulated), *evidence_lines(grade)) if grade else (),
        worst_error=max(errors, default=None),
        speedup=ratio.value if ratio else None,
        speedup_low=ratio.low if ratio else None,
        speedup_high=ratio.high if ratio else None,
        flags=tuple(map(clean, dict.fromkeys(flags))),
        workloads=workload_rows(grade) if grade else (),
        tokens=usage.tokens if trial.turns else None,
        cost_usd=usage.cost_usd if trial.turns else None,
        folder=key.folder,
    )


def workload_rows(grade: Grade) -> tuple[WorkloadRow, ...]:
    """What every workload and dtype of a grade showed."""
    check = grade.check or (grade.emulated.check if grade.emulated else None)
    cases: dict[tuple[str, str], list[WorkloadCheck]] = defaultdict(list)
    for case in check.workloads if check else ():
        cases[case.workload, case.dtype].append(case)
    timed = {(t.workload, t.dtype): t for t in (grade.timing.workloads if grade.timing else ())}
    return tuple(
        WorkloadRow.model_validate(
            {"workload": clean(key[0]), "dtype": clean(key[1])} | _errors(cases[key]) | _times(timed.get(key))
        )
        for key in dict.fromkeys((*cases, *timed))
    )


def _errors(cases: Sequence[WorkloadCheck]) -> dict[str, object]:
    ran = [case for case in cases if case.skipped is None]
    failed = [case.finding.message for case in ran if case.finding is not None]
    said = [*failed, *(case.skipped for case in cases if case.skipped is not None)]
    allowed = [case.allowed_error for case in ran if case.allowed_error is not None]
    return {
        "cases": len(ran),
        "failed": len(failed),
        "worst_error": max((c.worst_error for c in ran if c.worst_error is not None), default=None),
        "allowed_error": max(allowed, default=None),
        "headline": first_line(said[0]) if said else None,
    }


def _times(timing: WorkloadTiming | None) -> dict[str, object]:
    if timing is None:
        return {}
    fastest = min(timing.references, key=lambda one: one.score_us, default=None)
    return {
        "student_us": timing.student.score_us,
        "reference": fastest.name if fastest else None,
        "reference_us": fastest.score_us if fastest else None,
        "speedup": timing.speedup.value,
        "speedup_low": timing.speedup.low,
        "speedup_high": timing.speedup.high,
        "flags": tuple(map(clean, timing.student.flags)),
    }


def _cleaned(one: Diagnostic) -> Diagnostic:
    texts = {name: getattr(one, name) for name in ("message", "file", "source", "advice")}
    return one.model_copy(update={name: text and clean(text) for name, text in texts.items()})


def _cell(
    arm: str, members: Sequence[tuple[int, TrialRow, bool | None]], built: bool, checked: bool
) -> TaskCell:
    scored = [(row, ok) for _, row, ok in members if row.verdict is not Verdict.INFRA]
    correct = [row for row, _ in scored if row.verdict is Verdict.CORRECT]
    speedups = [row.speedup for row in correct if row.speedup is not None]
    return TaskCell(
        arm=arm,
        n=len(scored),
        compiled=sum(bool(ok) for _, ok in scored) if built else None,
        correct=len(correct) if checked else None,
        median_speedup=median(speedups) if speedups and checked else None,
        verdicts=dict(Counter(row.verdict.value for _, row, _ in members)),
        trials=tuple(position for position, _, _ in members),
    )


def task_rows(
    config: RunConfig,
    families: Mapping[str, str],
    trials: Sequence[tuple[TrialRow, TrialRecord]],
    leaked: Container[str],
    *,
    built: bool,
    checked: bool,
) -> tuple[TaskRow, ...]:
    """Every planned task and model, by family, with a cell per arm."""
    cells: dict[tuple[str, str, str], list[tuple[int, TrialRow, bool | None]]] = defaultdict(list)
    for position, (row, trial) in enumerate(trials):
        passed = compiled(trial.grade) if trial.grade else None
        cells[row.task, row.model, row.arm].append((position, row, passed))
    return tuple(
        TaskRow(
            task=task,
            family=families[task],
            model=model.name,
            cells=tuple(_cell(a.id, cells[task, model.name, a.id], built, checked) for a in config.arms),
            leaked=task in leaked,
        )
        for model in config.models
        for task in sorted(config.tasks, key=lambda t: (families[t], t))
    )


def failure_groups(rows: Sequence[TrialRow], arms: Sequence[Arm]) -> tuple[FailureGroup, ...]:
    """Causes of everything that did not pass, most frequent first; what was not measured is no failure."""
    failed = [row for row in rows if row.verdict not in (Verdict.CORRECT, Verdict.NOT_MEASURED)]
    return tuple(
        FailureGroup(cause=cause, verdict=cause.verdict, example=first_error(found[0].message), **shared)
        for cause, found, shared in _grouped(failed, arms, lambda row: row.cause)
    )


# Names of a project in compilers' and loaders' messages: "x", 'x', ‘x’, `x`.
_NAME = re.compile(r""""[^"\n]{1,200}"|'[^'\n]{1,200}'|‘[^’\n]{1,200}’|`[^`\n]{1,200}`|\d+""")
_BY_NAME: Final = frozenset({"build_toml", "layout", "flag_refused", "missing_header"})
"""In messages of these kinds names are the cause: keys, flags, headers."""


def build_failure_groups(rows: Sequence[TrialRow], arms: Sequence[Arm]) -> tuple[BuildFailureGroup, ...]:
    """Failed builds by their first error, most frequent first."""
    failed = [row for row in rows if row.stage is Stage.BUILD and row.verdict is not Verdict.NOT_MEASURED]

    def same(row: TrialRow) -> str:
        if not row.diagnostics:
            return f"other\n{row.headline}"
        first = row.diagnostics[0]
        return f"{first.kind}\n{first.message if first.kind in _BY_NAME else _NAME.sub('_', first.message)}"

    return tuple(
        BuildFailureGroup.model_validate(
            {"kind": key.partition("\n")[0], "example": _example(found[0])} | shared
        )
        for key, found, shared in _grouped(failed, arms, same)
    )


def _grouped(
    rows: Sequence[TrialRow], arms: Sequence[Arm], key: Callable[[TrialRow], K]
) -> Iterable[tuple[K, list[TrialRow], dict[str, Any]]]:
    """Key, trials, and the fields of FailedTrials but the example."""
    groups: dict[K, list[TrialRow]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    for name, found in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        counts = Counter(row.arm for row in found)
        by_arm = tuple(ArmCount(arm=arm.id, count=counts[arm.id]) for arm in arms)
        yield name, found, {"counts": by_arm, "total": len(found), "example_task": found[0].task}


def _example(row: TrialRow) -> str:
    """Such as `build.toml:6: unknown key 'capabilities'`."""
    if not row.diagnostics:
        return row.headline
    first = row.diagnostics[0]
    place = ":".join(str(part) for part in (first.file, first.line) if part is not None)
    if first.file is not None and first.message.startswith(f"{first.file}:"):
        return first_line(first.message)
    return first_line(f"{place}: {first.message}" if place else first.message)
