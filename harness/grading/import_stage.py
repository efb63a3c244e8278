"""How far a project for CUDA gets on a machine that cannot run it.

What could not be checked is said; it is neither a pass nor a failure.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from harness.builder.build import Built
from harness.builder.toolchain import Toolchain
from harness.grading.load import (
    cannot_run_cuda,
    explained,
    no_operators,
    not_imported,
    unmeasured,
    unresolved_symbols,
    wants_gpu,
)
from harness.grading.workers import Workers, project_source
from harness.outcome import Stage
from harness.records import Finding, MachineFacts, Task


@dataclass(frozen=True)
class ImportStage:
    """Imports libraries, where torch allows it without a GPU."""

    workers: Workers
    toolchain: Toolchain
    machine: MachineFacts
    no_device: str | None
    """Why this machine's GPU cannot be used, where it has one."""
    working: Callable[[], AbstractContextManager[None]]
    """Held while a worker runs."""

    def end(
        self, built: Built, task: Task, observer: Callable[[str], None], repeatable: bool = False
    ) -> tuple[Stage, Finding]:
        """Where a project ends here, and why. Raises InfraError and its kinds, and Killed where that is
        `repeatable`."""
        result = built.result
        cannot = cannot_run_cuda(self.machine, result, self.no_device)
        if result.jit:
            return Stage.LOAD, cannot
        failure = unresolved_symbols(result)
        if failure is None and self.toolchain.torch_is_cpu_only:
            return Stage.LOAD, unmeasured(cannot, not_imported(result))
        if failure is None:
            observer("load")
            failure = self._import(built, task, repeatable)
        if failure is None:
            return Stage.CHECK, unmeasured(cannot, "it imports, and its operators are registered")
        if wants_gpu(failure):
            return Stage.LOAD, unmeasured(cannot, f"its import asks for one: {failure.message}")
        return Stage.LOAD, failure

    def _import(self, built: Built, task: Task, repeatable: bool) -> Finding | None:
        """Import the package in a worker that is then ended; why that failed."""
        from harness.judge.worker_client import Failed

        source = replace(project_source(built, task), repeatable=repeatable)
        with self.working():
            worker = self.workers.start(source)
            try:
                worker.load()
            except Failed as failure:
                return explained(failure.finding, built.result)
            finally:
                worker.close()
        return None if worker.operators else no_operators(source.namespace)
