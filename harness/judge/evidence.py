"""Own-kernel evidence: what one call of a correct project dispatches and launches.

A worker's account is parsed, bounded and labelled as a claim; it can cost a project a flag or a reason,
never earn it anything. The worker that is traced is never one that is timed.
"""

from __future__ import annotations

from typing import Any, Final

from harness.builder.binary.call_classes import classify_operator
from harness.builder.binary.cubins import MAX_KERNELS, MAX_NAME
from harness.judge.arena import Arena, Layout
from harness.judge.check import Verifier
from harness.judge.problem import Problem
from harness.judge.worker_client import Failed, WorkerClient
from harness.records import BuildResult, Evidence, OperatorCalls, TracedKernel
from harness.records.evidence import OperatorKind

_MOST_ROWS: Final = 100
_NAME_CHARS: Final = 300
_MOST_CALLS: Final = 10**9
_MOST_NS: Final = 10**12
# Bookkeeping of PyTorch's own, beside call_classes' list of `aten` operators that are harmless.
_HARMLESS_SPACES: Final = frozenset({"prim", "profiler", "debugprims"})


def gather(contender: WorkerClient, problem: Problem, build: BuildResult, namespace: str) -> Evidence:
    """Trace one call on fresh inputs, after one that lets the project set itself up.

    `contender` is loaded, and good for nothing else afterwards; `namespace` is where its library registers
    operators. Never raises for a project's fault: that is `trouble`.
    """
    layout = Layout(problem)
    doing = f"while traced on {problem.label}"
    try:
        contender.plan(layout, 1, dict(problem.workload.scalars))
        first = Arena(layout, [problem.make_inputs()], 0xFF, contender.transport)
        try:
            contender.call(first, 1, doing)
        finally:
            first.close()
        inputs = problem.make_inputs()
        arena = Arena(layout, [inputs], 0xFF, contender.transport)
        try:
            snapshot, said = contender.trace(arena, doing)
        finally:
            arena.close()
    except Failed as failure:
        return untraced(problem, failure.finding.message)
    result = arena.results(snapshot)[0]
    verifier = Verifier(problem)
    wrong = verifier.integrity(result) or verifier.values(inputs, result.outputs)
    return read_trace(said, problem, build, namespace, right=wrong is None)


def untraced(problem: Problem, trouble: str) -> Evidence:
    """The record where there is no trace, and why."""
    return Evidence(
        workload=problem.workload.name, dtype=problem.dtype, operators=None, trouble=_text(trouble)
    )


# --- what a worker says ----------------------------------------------------------------------


def read_trace(
    said: dict[str, Any], problem: Problem, build: BuildResult, namespace: str, *, right: bool
) -> Evidence:
    """The record of a trace. `said` is untrusted: whatever is not well formed is no trace."""
    operators, loads = _operators(said.get("operators"), namespace), _loads(said.get("loads"))
    if operators is None or loads is None:
        return untraced(problem, "the process gave no well-formed account of its call")
    notes = [_left_out(said.get("operators_left_out"), "operators")]
    notes.append(_left_out(said.get("loads_left_out"), "loads"))
    notes.append(_left_out(said.get("kernels_left_out"), "kernels"))
    kernels = None
    if said.get("kernels") is not None:
        kernels = _kernels(said["kernels"], build)
        notes.append("" if kernels is not None else "kernels not measured: no well-formed account")
    if isinstance(said.get("note"), str):
        notes.append(f"kernels not measured: {_text(said['note'])}")
    return Evidence(
        workload=problem.workload.name,
        dtype=problem.dtype,
        operators=operators,
        kernels=kernels,
        loads=loads,
        traced_right=right,
        notes=tuple(note for note in notes if note),
    )


def _text(said: str) -> str:
    """Bounded, and without a lone surrogate, which no record can hold."""
    return said[:_NAME_CHARS].encode(errors="replace").decode()


def _left_out(count: object, what: str) -> str:
    return f"{count} more {what} not kept" if type(count) is int and 0 < count < _MOST_CALLS else ""


def _rows(value: object, *kinds: type) -> list[list[Any]] | None:
    """Rows of exactly these types (bool is no int); None for anything else."""
    if not isinstance(value, list) or len(value) > _MOST_ROWS:
        return None
    for row in value:
        if not isinstance(row, list) or [type(cell) for cell in row] != list(kinds):
            return None
    return value


def _operators(value: object, namespace: str) -> tuple[OperatorCalls, ...] | None:
    rows = _rows(value, str, int)
    if rows is None or not all(0 < calls <= _MOST_CALLS for _, calls in rows):
        return None
    return tuple(
        OperatorCalls(name=_text(name), calls=calls, kind=operator_kind(name, namespace))
        for name, calls in rows
    )


def _loads(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) > _MOST_ROWS or not all(type(n) is str for n in value):
        return None
    return tuple(_text(name) for name in value)


def operator_kind(name: str, namespace: str) -> OperatorKind:
    """`aten::mm` computes; so does every namespace that is neither the project's nor bookkeeping."""
    space = name.partition("::")[0]
    if namespace and space == namespace:
        return "own"
    if space in _HARMLESS_SPACES:
        return "harmless"
    return "harmless" if classify_operator(name) == "tensor" else "compute"


def _kernels(value: object, build: BuildResult) -> tuple[TracedKernel, ...] | None:
    rows = _rows(value, str, int, int, bool)
    if rows is None or not all(0 < n <= _MOST_CALLS and 0 <= ns <= _MOST_NS for _, n, ns, _ in rows):
        return None
    own = OwnKernels(build)
    return tuple(
        TracedKernel(
            name=_text(name),
            launches=launches,
            device_us=nanoseconds / 1000,
            own=None if copies else own.has(name),
            copy_or_fill=copies,
        )
        for name, launches, nanoseconds, copies in rows
    )


class OwnKernels:
    """The kernels of a project's library, by name."""

    def __init__(self, build: BuildResult) -> None:
        self._names = None if build.kernels is None else {_plain(k.name) for k in build.kernels}
        # The reader keeps the longest 256: then a name that is not there may still be the project's.
        self._complete = build.kernels is not None and len(build.kernels) < MAX_KERNELS

    def has(self, name: str) -> bool | None:
        """Whether it has a kernel of that name; None where its kernels are not (all) known.

        Both sides are demangled by the same rules; a name that was cut off is compared as far as it goes.
        """
        if self._names is None:
            return None
        if _plain(name) in self._names:
            return True
        return False if self._complete else None


def _plain(name: str) -> str:
    """Without blanks; a long name as far as the reader of the library keeps it (its last 3 are dots)."""
    return "".join((name if len(name) < MAX_NAME else name[: MAX_NAME - 3]).split())
