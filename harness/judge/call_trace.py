"""What one call of a correct project dispatches and launches, and what that means for its grade.

A worker's account is a bounded claim: it can cost a project a flag or a reason, never earn it anything. The
worker that is traced is never timed. Where a task forbids library calls, an untraced call is refused.
"""

from __future__ import annotations

from typing import Any, Final

from harness.builder.cubins import MAX_KERNELS, MAX_NAME
from harness.builder.symbol_classes import classify_operator
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.problem import Problem
from harness.judge.verifier import Verifier
from harness.judge.worker_client import Failed, WorkerClient
from harness.outcome import Cause
from harness.records import BuildResult, Evidence, Finding, Task
from harness.records.grade import OperatorCalls, OperatorKind, TracedKernel

_MAX_ROWS: Final = 100
_NAME_CHARS: Final = 300
_MAX_CALLS: Final = 10**9
_MAX_NS: Final = 10**12
_NAMED: Final = 4
# PyTorch's own bookkeeping, beside the `aten` operators that are harmless.
_HARMLESS_SPACES: Final = frozenset({"prim", "profiler", "debugprims"})


def gather(client: WorkerClient, problem: Problem, build: BuildResult, namespace: str) -> Evidence:
    """Trace one call on fresh inputs, after one that lets the project set itself up; `client` is loaded, and
    used up afterwards. A failure of the project is recorded as `trouble`."""
    layout = Layout(problem)
    doing = f"while traced on {problem.label}"
    try:
        client.plan(layout)
        with Arena(layout, [problem.make_inputs()], 0xFF, client.transport) as first:
            client.call(first, 1, doing)
        inputs = problem.make_inputs()
        with Arena(layout, [inputs], 0xFF, client.transport) as arena:
            snapshot, said = client.trace(arena, doing)
    except Failed as failure:
        return untraced(problem, failure.finding.message)
    result = arena.results(snapshot)[0]
    verifier = Verifier(problem)
    wrong = verifier.integrity(result) or verifier.values(inputs, result.outputs)
    return read_trace(said, problem, build, namespace, right=wrong is None)


def untraced(problem: Problem, trouble: str) -> Evidence:
    name, dtype = problem.workload.name, problem.dtype
    return Evidence(workload=name, dtype=dtype, operators=None, trouble=_text(trouble))


def read_trace(
    said: dict[str, Any], problem: Problem, build: BuildResult, namespace: str, *, right: bool
) -> Evidence:
    """The record of a trace. `said` is untrusted: whatever is not well formed is no trace."""
    operators, loads = _operators(said.get("operators"), namespace), _loads(said.get("loads"))
    if operators is None or loads is None:
        return untraced(problem, "the process gave no well-formed account of its call")
    kernels, notes = None, list[str]()
    if said.get("kernels") is not None:
        kernels = _kernels(said["kernels"], build)
        notes += ["kernels not measured: no well-formed account"] if kernels is None else []
    if isinstance(said.get("note"), str):
        notes.append(f"kernels not measured: {_text(said['note'])}")
    return Evidence(
        workload=problem.workload.name,
        dtype=problem.dtype,
        operators=operators,
        kernels=kernels,
        loads=loads,
        traced_right=right,
        notes=tuple(notes),
    )


def _text(said: str) -> str:
    return said[:_NAME_CHARS].encode(errors="replace").decode()


def _rows(value: object, *kinds: type) -> list[list[Any]] | None:
    """Rows of exactly these types (bool is no int); None for anything else."""
    if not isinstance(value, list) or len(value) > _MAX_ROWS:
        return None
    exact = (isinstance(row, list) and [type(cell) for cell in row] == list(kinds) for row in value)
    return value if all(exact) else None


def _operators(value: object, namespace: str) -> tuple[OperatorCalls, ...] | None:
    rows = _rows(value, str, int)
    if rows is None or not all(0 < calls <= _MAX_CALLS for _, calls in rows):
        return None
    return tuple(OperatorCalls(name=_text(n), calls=c, kind=operator_kind(n, namespace)) for n, c in rows)


def _loads(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, list) or len(value) > _MAX_ROWS or not all(type(n) is str for n in value):
        return None
    return tuple(_text(name) for name in value)


def operator_kind(name: str, namespace: str) -> OperatorKind:
    """`aten::mm` computes; so does every namespace that is neither the project's nor bookkeeping."""
    space = name.partition("::")[0]
    if namespace and space == namespace:
        return "own"
    harmless = space in _HARMLESS_SPACES or classify_operator(name) == "tensor"
    return "harmless" if harmless else "compute"


def _kernels(value: object, build: BuildResult) -> tuple[TracedKernel, ...] | None:
    rows = _rows(value, str, int, int, bool)
    if rows is None or not all(0 < n <= _MAX_CALLS and 0 <= ns <= _MAX_NS for _, n, ns, _ in rows):
        return None
    return tuple(
        TracedKernel(
            name=_text(name),
            launches=launches,
            device_us=nanoseconds / 1000,
            own=None if copies else has_kernel(build, name),
            copy_or_fill=copies,
        )
        for name, launches, nanoseconds, copies in rows
    )


def has_kernel(build: BuildResult, name: str) -> bool | None:
    """Whether the library has a kernel of that name; None where its kernels are not (all) known."""
    kernels = build.kernels or ()
    if _plain(name) in {_plain(kernel.name) for kernel in kernels}:
        return True
    # The reader keeps the longest 256: then a name that is not there may still be the project's.
    return None if build.kernels is None or len(kernels) >= MAX_KERNELS else False


def _plain(name: str) -> str:
    return "".join((name if len(name) < MAX_NAME else name[: MAX_NAME - 3]).split())


def trace_flags(evidence: Evidence | None, task: Task) -> tuple[str, ...]:
    return () if evidence is None or task.library_calls == "allow" else evidence.flags


def forbidden_work(evidence: Evidence | None, task: Task) -> Finding | None:
    if evidence is None or task.library_calls != "forbid":
        return None
    lines = []
    if evidence.trouble is not None:
        lines = [f"the task forbids library calls, and the call could not be traced: {evidence.trouble}"]
    if evidence.computing:
        doing = f"what the call on {evidence.workload} does: it dispatches PyTorch operators"
        lines += [f"the task forbids {doing}", *_named(evidence.computing)]
    if evidence.loads:
        doing = "what the package's Python does: it loads code at run time"
        lines += [f"the task forbids {doing}", *_named(evidence.loads)]
    return Finding(cause=Cause.LIBRARY_CALLS, message="\n".join(lines)) if lines else None


def _named(names: tuple[str, ...]) -> list[str]:
    more = [f"  and {len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return [*(f"  {name}" for name in names[:_NAMED]), *more]
