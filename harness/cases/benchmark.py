"""A run of test cases as skill-creator's benchmark.json, whose viewer reads these names exactly.

Source: github.com/anthropics/skills, skills/skill-creator/references/schemas.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, Final

from harness.cases.running import answers_of
from harness.cases.schema import AnswerKey, CaseAnswer, CasesRun, Worth

_NOTE: Final = "written by liftbench: a check is a string, file or command; no model grades"
_FIELDS: Final = ("pass_rate", "time_seconds", "tokens")


def benchmark(
    run: CasesRun, answers: Mapping[AnswerKey, CaseAnswer], worths: Sequence[Worth], model: str
) -> dict[str, Any]:
    """The answers of one model. What is not known (time, tokens) is null, and is in no mean.

    An answer whose command was not run is left out; `notes` name worthless cases.
    """
    config = run.config
    numbers = {case.id: number for number, case in enumerate(config.cases, start=1)}
    rows = []
    for key in answers_of(config):
        answer = answers.get(key)
        if key.model == model and answer is not None and all(o.passed is not None for o in answer.outcomes):
            rows.append(_row(run, answer, numbers[key.case]))
    kinds = ("with_skill", "without_skill")
    summary = {kind: _summary([r["result"] for r in rows if r["configuration"] == kind]) for kind in kinds}
    return {
        "metadata": {
            "skill_name": config.skill,
            "skill_path": "",
            "executor_model": model,
            "analyzer_model": "",
            "timestamp": run.created,
            "evals_run": sorted({row["eval_id"] for row in rows}),
            "runs_per_configuration": config.repeats,
        },
        "runs": rows,
        "run_summary": {**summary, "delta": _delta(summary["with_skill"], summary["without_skill"])},
        "notes": [_NOTE, *(f"{one.case}: {one.why}" for one in worths if one.worth == "none")],
    }


def _row(run: CasesRun, answer: CaseAnswer, number: int) -> dict[str, Any]:
    case = next(case for case in run.config.cases if case.id == answer.key.case)
    passed, total = sum(one.passed is True for one in answer.outcomes), len(answer.outcomes)
    usage = answer.reply.usage
    known = usage.input_tokens is not None and usage.output_tokens is not None
    return {
        "eval_id": number,
        "eval_name": case.id,
        "configuration": "without_skill" if answer.key.arm.startswith("without_skill") else "with_skill",
        "run_number": answer.key.repeat + 1,
        "result": {
            "pass_rate": passed / total,
            "passed": passed,
            "failed": total - passed,
            "total": total,
            "time_seconds": answer.reply.latency_s,
            "tokens": (usage.input_tokens or 0) + (usage.output_tokens or 0) if known else None,
            "tool_calls": 0,
            "errors": 0,
        },
        "expectations": [
            {"text": case.words(index), "passed": one.passed, "evidence": one.cause or "found in the reply"}
            for index, one in enumerate(answer.outcomes)
        ],
        "notes": [],
    }


def _summary(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """mean, stddev, min and max of each field."""
    found = {}
    for name in _FIELDS:
        known = [result[name] for result in results if result[name] is not None]
        spread = (0.0 if len(known) == 1 else stdev(known)) if known else None
        ends = (min(known), max(known)) if known else (None, None)
        found[name] = {"mean": mean(known) if known else None, "stddev": spread}
        found[name] |= {"min": ends[0], "max": ends[1]}
    return found


def _delta(
    treatment: Mapping[str, Mapping[str, float | None]], control: Mapping[str, Mapping[str, float | None]]
) -> dict[str, str | None]:
    """with_skill minus without_skill, as text with a sign."""
    digits = {"pass_rate": 2, "time_seconds": 1, "tokens": 0}
    found: dict[str, str | None] = {}
    for name in _FIELDS:
        one, other = treatment[name]["mean"], control[name]["mean"]
        found[name] = None if one is None or other is None else f"{one - other:+.{digits[name]}f}"
    return found
