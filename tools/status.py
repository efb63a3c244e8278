"""Writes docs/generated/status.md and admission.md: `make status`.

The figures come from `results/` and `tasks/ADMISSION.json`; what was not measured is called so, never 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from jinja2 import Environment, FileSystemLoader
from pydantic import TypeAdapter, ValidationError

from harness.errors import UsageError
from harness.files import write_atomically
from harness.grading.admission import FILE_NAME, RULES, Admitted, cell
from harness.judge.physical_limits import BOARDS
from harness.records import Admission, Task
from harness.records.grade import GRADER_VERSION
from harness.records.reasons import reason_of
from harness.records.timing import NOISY
from harness.report.experts import ExpertResult, ExpertResults
from harness.suite.catalogue import all_tasks
from tools.gpu_results import Contents, Entry

ROOT = Path(__file__).resolve().parent.parent
NOT_YET = "not measured yet"
_BOUND_BY_ARITHMETIC = frozenset({"gemm", "gemm_fp8", "attention", "mlp", "moe", "convolution"})
_SHARE_OF_COPY = 0.8
_OF_LIBRARY = 1.5
_YES = {True: "yes", False: "NO"}


def read_results(folder: Path) -> list[ExpertResult]:
    """Everything in the JSON files of `results/`, oldest first. Raises UsageError for a broken file."""
    file: TypeAdapter[ExpertResults | Contents] = TypeAdapter(ExpertResults | Contents)
    found: list[ExpertResult] = []
    for path in sorted(folder.glob("*.json")):
        try:
            contents = file.validate_json(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValidationError) as error:
            raise UsageError(f"{path} is no file of results: {reason_of(error)}; move it away") from error
        found += contents.results if isinstance(contents, ExpertResults) else _of_ledger(contents)
    return sorted(found, key=lambda one: one.measured_at)


def _of_ledger(contents: Contents) -> Iterator[ExpertResult]:
    """The items `expert/TASK`, `time/TASK` and `full/TASK` that were asked on a GPU."""
    ceilings = next((entry.facts for entry in contents.entries if entry.name == "ceilings/copy"), {})
    copy_gb_s = ceilings.get("copy_gb_s")
    board = BOARDS.get(contents.gpu)
    share = board.bandwidth_gb_s / copy_gb_s if board and isinstance(copy_gb_s, float) else None
    for entry in contents.entries:
        found = re.fullmatch(r"(expert|time|full)/(.+)", entry.name)
        if found is not None and entry.status in ("passed", "failed"):
            facts = {"task": found[2], "device": contents.gpu, "target": "cuda"}
            yield ExpertResult.model_validate(facts | _measured(entry, share))


def _measured(entry: Entry, share: float | None) -> dict[str, object]:
    """share: of the datasheet's bandwidth over the largest copy of that session."""
    facts = entry.facts
    light = facts.get("of_speed_of_light")
    same = ("speedup", "low", "high", "workload", "student_us", "reference_us")
    found: dict[str, object] = {name: facts.get(name) for name in same}
    return found | {
        "reference": facts.get("fastest_reference"),
        "protocol": str(facts.get("protocol", "quick")),
        "correct": entry.status == "passed",
        "flags": str(facts.get("flags", "-")).removeprefix("-"),
        "of_light": light,
        "of_copy": light * share if isinstance(light, float) and share is not None else None,
        "measured_at": entry.measured_at,
    }


def status_page(
    tasks: Sequence[Task], admissions: Sequence[Admission], results: Sequence[ExpertResult]
) -> str:
    """docs/generated/status.md. results: oldest first; the newest of a task and device type counts."""
    checked = {entry.task: entry for entry in admissions}
    on_cpu = {one.task: one for one in results if one.target == "cpu"}
    on_gpu = {one.task: one for one in results if one.target == "cuda"}
    timed = {one.task: one for one in results if one.target == "cuda" and one.speedup is not None}
    rows = []
    for task in tasks:
        gpu, speed = on_gpu.get(task.id), timed.get(task.id)
        rows.append([
            task.id, task.family, _admitted(checked.get(task.id)), _speedup(on_cpu.get(task.id)),
            NOT_YET if gpu is None else _YES[gpu.correct], _speedup(speed),
            "-" if task.family in _BOUND_BY_ARITHMETIC or speed is None or speed.of_copy is None
            else f"{speed.of_copy:.0%}",
            "-" if gpu is None else f"{gpu.device}, {gpu.measured_at[:10]}",
        ])  # fmt: skip
    machines = sorted({f"{one.device} ({one.target})" for one in results})
    made = Environment(loader=FileSystemLoader(ROOT), keep_trailing_newline=True, trim_blocks=True)
    template = made.get_template("tools/status.md.j2")
    return template.render(goals=_goals(tasks, timed), rows=rows, machines="; ".join(machines) or "none")


def _goals(tasks: Sequence[Task], timed: Mapping[str, ExpertResult]) -> dict[str, str]:
    """How many of the measured experts reach each goal."""
    small = [timed[t.id] for t in tasks if t.level in ("l1", "l2") and t.id in timed]
    bound = [timed[t.id] for t in tasks if t.family not in _BOUND_BY_ARITHMETIC and t.id in timed]
    heavy = [timed[t.id] for t in tasks if t.family in ("gemm", "gemm_fp8", "attention") and t.id in timed]
    reached = {
        "reference": [(one.speedup or 0.0) >= 1.0 for one in small],
        "bandwidth": [(one.of_copy or 0.0) >= _SHARE_OF_COPY for one in bound],
        "library": [(one.speedup or 0.0) >= 1.0 / _OF_LIBRARY for one in heavy],
    }
    return {k: f"{sum(v)} of {len(v)} measured" if v else NOT_YET for k, v in reached.items()}


def _admitted(entry: Admission | None) -> str:
    rule = None if entry is None else next((r for r in entry.rules if r.name == "expert"), None)
    if rule is None or rule.status == "not_measured":
        return NOT_YET
    return _YES[rule.status == "holds"]


def _speedup(result: ExpertResult | None) -> str:
    if result is None or result.speedup is None:
        return NOT_YET
    interval = "" if result.low is None or result.high is None else f" ({result.low:.2f}, {result.high:.2f})"
    noisy = f", {NOISY}" if NOISY in result.flags else ""
    return f"{result.speedup:.2f}x{interval}, {result.protocol}, beside {result.reference}{noisy}"


def admission_page(entries: Sequence[Admission]) -> str:
    """docs/generated/admission.md: one row per task."""
    lines = [
        "# Admission of every task",
        "",
        "Made by `make status` from `tasks/ADMISSION.json`; the rules are in docs/tasks.md. "
        f"{sum(entry.admitted for entry in entries)} of {len(entries)} tasks break none. Tried by grader "
        f"version {GRADER_VERSION}: {sum(entry.grader_version == GRADER_VERSION for entry in entries)}. "
        "`-` is not measured.",
        "",
        f"| task | version | {' | '.join(RULES)} |",
        "|---" * (len(RULES) + 2) + "|",
    ]
    for entry in entries:
        rules = {rule.name: rule for rule in entry.rules}
        cells = [cell(rules[name]) if name in rules else "-" for name in RULES]
        lines.append(f"| {entry.task} | {entry.version} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def pages(results: Path = ROOT / "results") -> dict[str, str]:
    """Name and text of each page below docs/generated/."""
    entries = Admitted(ROOT / "tasks" / FILE_NAME).entries
    tasks = [loaded.task for loaded in all_tasks()]
    status = status_page(tasks, entries, read_results(results))
    return {"status.md": status, "admission.md": admission_page(entries)}


if __name__ == "__main__":
    for name, text in pages().items():
        write_atomically(ROOT / "docs" / "generated" / name, text)
        print(f"docs/generated/{name}")
