"""A task as a script for `kernels benchmark`, which times a project beside the task's reference.

The script imports nothing of liftbench: it is the task's reference.py and what stands below.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from harness.errors import UsageError
from harness.expressions import evaluate
from harness.records import Target, Task
from harness.suite.catalogue import LoadedTask

_TEMPLATE: Final = Path(__file__).parent / "templates" / "kernels_benchmark.txt"
_METHODS: Final = """
    def setup_{method}(self):
        self.prepare("{method}")

    def benchmark_{method}(self):
        self.call()

    def verify_{method}(self):
        return self.refer()
"""
_ATOL: Final = 1e-2
"""That of `kernels benchmark`."""


def _table(rows: dict[str, dict[str, Any]]) -> str:
    return "{\n" + "".join(f"    {name!r}: {row!r},\n" for name, row in rows.items()) + "}"


def script_name(task: Task) -> str:
    """Where the script is in a project."""
    return f"benchmarks/benchmark_{task.name}.py"


def benchmark_script(loaded: LoadedTask, target: Target) -> str:
    """The script, with a method per timed workload and dtype. Raises UsageError for a target it has not."""
    task = loaded.task
    if target not in task.dtypes:
        raise UsageError(f"{task.id} is not for {target}")
    workloads: dict[str, dict[str, Any]] = {}
    for workload in (one for one in task.workloads_for(target) if one.timed):
        outs = {
            o.name: tuple(evaluate(axis, workload.dims) for axis in o.shape)
            for o in task.operands
            if o.role == "out"
        }
        for dtype in task.dtypes[target]:
            given = {"dims": workload.dims, "scalars": workload.scalars, "dtype": dtype, "outs": outs}
            workloads[f"{workload.name}_{dtype}"] = given
    operands = [(o.name, o.role, None if o.dtype == "$dtype" else o.dtype, o.keyword) for o in task.operands]
    head = _TEMPLATE.read_text().format(
        task=task.id,
        version=task.version,
        target=target,
        operands=repr(operands),
        workloads=_table(workloads),
        name="".join(word.capitalize() for word in task.name.split("_")),
        op=task.op,
        atol=_ATOL,
    )
    return loaded.reference_path.read_text() + head + "".join(_METHODS.format(method=m) for m in workloads)
