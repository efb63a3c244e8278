"""kernels_ref/STATUS.md: what is known of every expert, and on which machine.

Pure; what nobody measured is called so, and a goal counts only experts that were measured.

The goals are those that the suite has for an H100 or H200.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.records import Task
from harness.records.task import Admission
from harness.report.results import Result

NOT_YET = "not measured yet"
_BOUND_BY_ARITHMETIC = frozenset({"gemm", "gemm_fp8", "attention", "mlp", "moe", "convolution"})
_LEAST_OF_COPY = 0.8
_WITHIN = 1.5


def status_page(tasks: Sequence[Task], admissions: Sequence[Admission], results: Sequence[Result]) -> str:
    """Markdown. `results`: oldest first; the newest of a task, device and kind counts."""
    checked = {entry.task: entry for entry in admissions}
    on_cpu = {one.task: one for one in results if one.target == "cpu"}
    on_gpu = [one for one in results if one.target == "cuda"]
    correct = {one.task: one for one in on_gpu}
    timed = {one.task: one for one in on_gpu if one.speedup is not None}
    lines = [
        "# The expert kernels: what is measured",
        "",
        "Made by `make status` from `results/` and `tasks/ADMISSION.json`. A speedup is over the fastest of "
        "the references that were timed: eager, the fused library op, with `full` torch.compile. `of copy` "
        "is the share of the speed of light with the largest copy of that session in place of the "
        "datasheet's bandwidth, for ops that memory binds. All experts compile for sm_90 in CI.",
        "",
        *_goals(tasks, timed),
        "",
        "| task | family | CPU: correct | CPU: speedup | GPU: correct | GPU: speedup | of copy | GPU, day |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for task in tasks:
        cells = [task.id, task.family, _admitted(checked.get(task.id)), _speedup(on_cpu.get(task.id))]
        cells += [_correct(correct.get(task.id)), _speedup(timed.get(task.id))]
        cells += [
            "-" if task.family in _BOUND_BY_ARITHMETIC else _copy(timed.get(task.id)),
            _where(correct.get(task.id)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    machines = sorted({f"{one.device} ({one.target})" for one in results})
    lines += ["", f"Machines: {'; '.join(machines) or 'none'}."]
    return "\n".join(lines) + "\n"


def _goals(tasks: Sequence[Task], timed: dict[str, Result]) -> list[str]:
    """The goals on a GPU, each with how many experts were measured."""
    small = [t for t in tasks if t.level in ("l1", "l2") and t.id in timed]
    bound = [t for t in tasks if t.family not in _BOUND_BY_ARITHMETIC and t.id in timed]
    heavy = [t for t in tasks if t.family in ("gemm", "gemm_fp8", "attention") and t.id in timed]
    fast = sum((timed[t.id].speedup or 0.0) >= 1.0 for t in small)
    light = sum((timed[t.id].of_copy or 0.0) >= _LEAST_OF_COPY for t in bound)
    near = sum((timed[t.id].speedup or 0.0) >= 1.0 / _WITHIN for t in heavy)
    return [
        f"- at least as fast as the fastest reference on 3 of 4 tasks of l1 and l2: {_of(fast, len(small))}",
        f"- memory-bound ones at 80 % of the measured copy bandwidth: {_of(light, len(bound))}",
        f"- gemm and attention within 1.5x of the library: {_of(near, len(heavy))}",
    ]


def _of(count: int, measured: int) -> str:
    return f"{count} of {measured} measured" if measured else NOT_YET


def _admitted(entry: Admission | None) -> str:
    rule = None if entry is None else next((r for r in entry.rules if r.name == "expert"), None)
    if rule is None or rule.status == "not_measured":
        return NOT_YET
    return "yes" if rule.status == "holds" else "NO"


def _correct(result: Result | None) -> str:
    return NOT_YET if result is None else "yes" if result.correct else "NO"


def _speedup(result: Result | None) -> str:
    if result is None or result.speedup is None:
        return NOT_YET
    interval = "" if result.low is None or result.high is None else f" ({result.low:.2f}, {result.high:.2f})"
    noisy = ", noisy host" if "noisy host" in result.flags else ""
    return f"{result.speedup:.2f}x{interval}, {result.protocol}, beside {result.reference}{noisy}"


def _copy(result: Result | None) -> str:
    return "-" if result is None or result.of_copy is None else f"{result.of_copy:.0%}"


def _where(result: Result | None) -> str:
    return "-" if result is None else f"{result.device}, {result.measured_at[:10]}"
