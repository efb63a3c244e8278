"""A run's figures in the two YAML files of the Hugging Face Hub: `.eval_results/*.yaml` and `eval.yaml`.

Ids of the Hub's tasks contain the board's division, so figures of two devices, protocols or suites share no
leaderboard there either.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml

from harness.board.entries import Entry, entries_of
from harness.board.runs import BoardRun, Division, Figure
from harness.errors import UsageError
from harness.records import ModelSpec
from harness.report.figures import plural

_DESCRIPTION: Final = (
    "Kernels that models write as kernel-builder projects: built in a sandbox, checked against PyTorch on "
    "secret inputs, timed by an outside clock. Every task below is one metric on one device."
)


def hub_files(one: BoardRun, dataset: str) -> dict[str, str]:
    """Texts by path: `dataset/` is for the dataset's repository, `models/MODEL/` for that of each model.

    `dataset`: its id on the Hub. Raises UsageError for a malformed id, and for a run without figures.
    """
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", dataset, re.ASCII):
        raise UsageError(f"--dataset {dataset}: write OWNER/NAME, its id on the Hub")
    entries = [entry for entry in entries_of(one) if entry.figures]
    if not entries:
        raise UsageError(f"{one.run.run_id} has no figures: a metric needs every trial of an arm finished")
    files, tasks = {}, dict[str, str]()
    for entry in entries:
        for metric in entry.figures:
            tasks[_task_id(entry.division, metric)] = f"{metric} ({entry.division.label})"
        path = f"models/{ModelSpec(name=entry.model).slug}/.eval_results/liftbench-{_slug(entry.arm)}.yaml"
        files[path] = _yaml([_result(entry, m, f, dataset) for m, f in entry.figures.items()])
    files["dataset/eval.yaml"] = _yaml(
        {
            "name": "liftbench",
            "description": f"{_DESCRIPTION} {'; '.join(f'{key}: {what}' for key, what in tasks.items())}",
            "evaluation_framework": "harbor",
            "tasks": [{"id": key, "config": "default", "split": "test"} for key in tasks],
        }
    )
    return files


def _result(entry: Entry, metric: str, figure: Figure, dataset: str) -> dict[str, Any]:
    interval = "no interval" if figure.low is None else f"95% interval {figure.low:.4g} to {figure.high:.4g}"
    division = entry.division
    notes = [
        f"{metric} on {division.label}",
        entry.skill if entry.arm == "without_skill" else f"skill {entry.skill}",
        f"{interval}; {plural(entry.families, 'family')}, {plural(entry.tasks, 'task')}, "
        f"{plural(entry.repeats, 'reply')} per task",
        f"protocol {division.protocol}, briefing {division.briefing}, run {entry.run_id}",
        *(f"not ranked: {why}" for why in entry.not_ranked),
    ]
    return {
        "dataset": {"id": dataset, "task_id": _task_id(division, metric)},
        "value": figure.value,
        "date": entry.created,
        "notes": "; ".join(notes),
    }


def _task_id(division: Division, metric: str) -> str:
    device = {
        "gpu": division.device,
        "cpu": f"cpu {division.device}",
        "emulated": "emulated",
        "built": "built",
    }
    return f"{_slug(device[division.kind])}-{division.protocol}-{division.slug}-{metric}"


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110)
