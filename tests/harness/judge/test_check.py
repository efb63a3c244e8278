"""The check stage, with a worker that is a thread: which calls are made, and what is concluded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.catalogue import LoadedTask
from harness.judge.check import check, problems, repeatable
from harness.judge.contender import Contender
from harness.judge.worker_job import Source, WorkerPlace
from harness.outcome import Cause
from harness.records import CheckResult
from tests.fakes.overlays import throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox

PROJECT = Source("project", Path(__file__), "scale", "scale")


def run_check(act: Callable[..., None], loaded: LoadedTask | None = None) -> tuple[CheckResult, HonestWorker]:
    """Check a project that is a Python function on `scale`, or on another task."""
    worker = HonestWorker(act)
    contender = Contender(PROJECT, ThreadSandbox(worker), WorkerPlace(()), wall_s=60)
    try:
        contender.load()
        return check(contender, loaded or throw_away_task("scale"), "cpu"), worker
    finally:
        contender.close()


def right(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    """The correct project."""
    torch.mul(x, alpha, out=out)


@dataclass(frozen=True)
class Recorded(LoadedTask):
    """A task whose reference.py notes its calls."""

    events: list[str] = field(default_factory=list)

    def reference_module(self) -> ModuleType:
        module = super().reference_module()
        for name in ("make_inputs", "reference"):
            setattr(module, name, self._noted(name, getattr(module, name)))
        return module

    def _noted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noted(*arguments: Any) -> Any:
            self.events.append(name)
            return function(*arguments)

        return noted


def test_correct_project() -> None:
    """Every workload is checked on two sets of inputs, and reported in the task's order."""
    result, _ = run_check(right)
    assert result.finding is None
    assert [(w.workload, w.calls) for w in result.workloads] == [("square", 2), ("odd", 2)]
    assert all(w.worst_error is not None and w.worst_error <= 1.0 for w in result.workloads)
    assert result.not_run == ()


def test_truth_is_computed_after_the_outputs_are_in() -> None:
    """For every workload the three calls come first; only then does an expected value exist anywhere."""
    task = throw_away_task("scale")
    recorded = Recorded(task.task, task.directory)

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        recorded.events.append("called")
        right(out, x, alpha=alpha)

    run_check(act, recorded)
    one = ["make_inputs", "called", "called", "make_inputs", "called", "reference", "reference"]
    assert recorded.events == one * 2


def test_worker_is_told_nothing_but_what_is_documented() -> None:
    """Messages hold the documented keys only: no expected value, no stage, no name."""
    _, worker = run_check(right)
    keys = {
        "load": {"op", "kind", "path", "module", "function", "namespace"},
        "plan": {"op", "set_bytes", "sets", "operands", "scalars"},
        "call": {"op", "sets", "size", "rounds"},
    }
    assert {m["op"] for m in worker.messages} == set(keys)
    for message in worker.messages:
        assert set(message) == keys[message["op"]]
        for operand in message.get("operands", []):
            assert set(operand) == {"name", "role", "dtype", "shape", "offset"}
    assert "square" not in str(worker.messages)


def test_calls_see_fresh_memory_and_poison() -> None:
    """Calls 1 and 2 have equal inputs over different poison, call 3 fresh ones; all have new memory."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        seen.append((out.clone().view(torch.uint8), x.clone()))
        right(out, x, alpha=alpha)

    _, worker = run_check(act)
    assert len(seen) == len(set(worker.arenas)) == 6
    assert [poison.unique().tolist() for poison, _ in seen] == [[0xFF], [0x00], [0xFF]] * 2
    for first, second, third in (seen[:3], seen[3:]):
        assert torch.equal(first[1], second[1])
        assert not (first[1] == third[1]).any(dim=1).all()


def test_order_of_workloads_is_secret() -> None:
    """The order in which workloads are checked changes from run to run."""
    first = set()
    for _ in range(40):
        rows: list[int] = []
        run_check(lambda out, x, *, alpha, rows=rows: rows.append(len(x)))
        first.add(rows[0])
        if first == {256, 7}:
            return
    pytest.fail(f"always the same workload first: {first}")


def _unwritten(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.mul(x[1:], alpha, out=out[1:])


def _writes_nan(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    out.fill_(float("nan"))


def _stateful() -> Callable[..., None]:
    calls: list[int] = []

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        calls.append(1)
        torch.mul(x, alpha * (1 + 2e-7 * len(calls)), out=out)

    return act


def _replay() -> Callable[..., None]:
    seen: dict[tuple[int, ...], torch.Tensor] = {}

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        out.copy_(seen.setdefault(tuple(x.shape), x * alpha))

    return act


@pytest.mark.parametrize(
    ("act", "cause", "message"),
    [
        (_unwritten, Cause.UNWRITTEN_OUTPUT, "256 elements were never written"),
        (_writes_nan, Cause.WRONG_VALUES, "65536 of 65536 elements of out are out of tolerance"),
        (_stateful(), Cause.NONDETERMINISTIC, "differ between two calls"),
        (_replay(), Cause.WRONG_VALUES, "times the allowed error"),
        (lambda out, x, *, alpha: out.copy_(x), Cause.WRONG_VALUES, "out of tolerance"),
        (lambda out, x, *, alpha: torch.mul(x, alpha, out=out).add_(1e-3), Cause.WRONG_VALUES, "out of"),
    ],
)
def test_wrong_projects(act: Callable[..., None], cause: Cause, message: str) -> None:
    """Each fault is found for its own reason, on every workload, and the check goes on to the end."""
    result, _ = run_check(act)
    assert result.finding is not None
    assert result.finding.cause is cause
    assert message in result.finding.message
    assert len(result.workloads) == 2


def test_dead_worker_ends_the_check() -> None:
    """After a worker is gone, the workloads that were not reached are named."""

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        raise OSError("gone")  # the thread ends: the judge sees a closed channel

    result, _ = run_check(act)
    assert result.finding is not None
    assert result.finding.cause is Cause.EXITED_EARLY
    assert {len(result.workloads), len(result.not_run)} == {1}


def test_repeatable_is_bitwise() -> None:
    """Equal inputs must give equal bytes: even zeros of different sign differ."""
    plus, minus = torch.zeros(3), -torch.zeros(3)
    assert repeatable("x", (plus,), (plus.clone(),)) is None
    finding = repeatable("x", (plus,), (minus,))
    assert finding is not None
    assert finding.cause is Cause.NONDETERMINISTIC


def test_problems_of_a_task() -> None:
    """All workloads are checked, and the timed ones are a part of them."""
    task = throw_away_task("scale")
    assert [p.label for p in problems(task, "cpu")] == ["square float32", "odd float32"]
    assert [p.label for p in problems(task, "cpu", timed_only=True)] == ["square float32"]
