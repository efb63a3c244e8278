"""A workload made concrete."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import HarnessBug
from harness.judge.check import _check_case
from harness.judge.clock import lanes
from harness.judge.compare import sampled_rows
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.keystream import SecretGenerator, Seed
from harness.judge.problem import Problem, Tensors, treats_rows_apart
from harness.judge.protocol import Numbers
from harness.judge.reveals import Sampler
from harness.judge.shared_memory import HostTransport
from harness.judge.verifier import Case, Verifier
from harness.judge.worker_client import Failed, Source, WorkerClient, WorkerPlace
from harness.outcome import Cause
from harness.records import Task, Workload
from harness.records.task import Parts
from tests.fakes.overlays import Replaced, throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox


def problem_of(name: str, **functions: Any) -> Problem:
    loaded = throw_away_task(name)
    replaced = Replaced(loaded.task, loaded.directory, functions)
    return Problem(replaced, loaded.task.workloads[0], "float32")


def test_truth_is_float64_of_what_the_project_received() -> None:
    """The truth is computed in double precision from the inputs as they were rounded."""
    problem = problem_of("scale")
    inputs = problem.make_inputs()
    (truth,) = problem.truth(inputs)
    assert truth.dtype == torch.float64
    assert torch.equal(truth, inputs["x"].double() * 1.7)
    assert problem.reference(inputs)[0].dtype == torch.float32


def test_integers_stay_integers() -> None:
    """Integer outputs are not turned into doubles, and boolean inputs stay boolean."""
    for name, dtype in (("argmax", torch.int64), ("masked_scale", torch.float64)):
        problem = problem_of(name)
        assert problem.truth(problem.make_inputs())[0].dtype == dtype


def test_references_cannot_change_the_inputs() -> None:
    """A reference that writes to its arguments writes to copies."""

    def careless(inputs: dict[str, Any]) -> tuple[torch.Tensor, ...]:
        return (inputs["x"].mul_(inputs["alpha"]),)

    problem = problem_of("scale", reference=careless)
    inputs = problem.make_inputs()
    before = inputs["x"].clone()
    problem.truth(inputs)
    problem.reference(inputs)
    assert torch.equal(inputs["x"], before)


@pytest.mark.parametrize(
    ("name", "returned", "said"),
    [
        ("make_inputs", {}, "make_inputs gave no x"),
        ("make_inputs", {"x": torch.zeros(3, 3)}, "make_inputs gave no x"),
        ("make_inputs", {"x": torch.zeros(256, 256, dtype=torch.float64)}, "make_inputs gave no x"),
        ("reference", torch.zeros(2), "did not return outputs"),
        ("reference", (torch.zeros(2),), "did not return outputs"),
    ],
    ids=["missing", "shape", "dtype", "bare", "output shape"],
)
def test_a_wrong_reference_file_is_our_bug(name: str, returned: Any, said: str) -> None:
    """What does not keep to the signature is a bug of ours, never a student's failure."""
    problem = problem_of("scale", **{name: lambda *arguments: returned})
    with pytest.raises(HarnessBug, match=said):
        problem.truth(problem.make_inputs())


def test_bytes_moved() -> None:
    """Operands that are read and written count twice."""
    size = 128 * 256
    assert problem_of("axpy").bytes_moved == 3 * 4 * size
    assert problem_of("masked_scale").bytes_moved == 3 * 4 * size + size
    assert problem_of("scale").flops == 256 * 256
    assert problem_of("axpy").flops is None


COSTLY = "500000000 * rows"
"""So many operations that a timed call is compared on 10 rows."""
Op = Callable[[torch.Tensor], torch.Tensor]


def apart(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, -1) * x.shape[-1]


def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def large(op: Op = apart, flops: str | None = None) -> Problem:
    """A problem of (64, 96) that is judged in parts."""

    def draw(generator: SecretGenerator, dtype: torch.dtype, rows: int) -> Tensors:
        return {"x": generator.normal((rows, 96)).to(dtype)}

    loaded = throw_away_task("scale")
    workload = Workload(name="w", dims={"rows": 64, "cols": 96}, scalars={"alpha": 1.0}, timed=True)
    changed = {"parts": Parts(rows=("x",)), "flops": flops, "values": (), "workloads": (workload,)}
    functions = {"draw": draw, "reference": lambda inputs: (op(inputs["x"]),)}
    replaced = Replaced(loaded.task.model_copy(update=changed), loaded.directory, functions)
    return Problem(replaced, workload, "float32", whole_bytes=0)


@pytest.mark.parametrize(
    ("op", "by_rows"),
    [
        (apart, True),
        (lambda x: x.cumsum(0), False),
        (lambda x: x / x.shape[0], False),
        (torch.triu, False),
        (lambda x: x if x.shape[0] > 3 else x.reshape(-1, 5000), False),
    ],
    ids=["apart", "other rows", "their number", "their place", "some numbers only"],
)
def test_only_ops_that_treat_rows_apart_are_judged_by_rows(op: Op, by_rows: bool) -> None:
    """What depends on other rows, on their number or on a row's place is not; each in 10 proofs of 10."""
    for _ in range(10):
        assert large(op).rows_apart is by_rows


def test_a_reference_that_runs_out_of_memory_proves_nothing() -> None:
    """It is told, and not taken for an op whose rows are not apart."""
    calls = []

    def truth(inputs: dict[str, torch.Tensor]) -> tuple[torch.Tensor, ...]:
        calls.append(1)
        if len(calls) > 1:
            raise torch.OutOfMemoryError("device")
        return (inputs["x"],)

    with pytest.raises(torch.OutOfMemoryError):
        treats_rows_apart(lambda n: {"x": torch.ones(n, 2)}, truth, ["x"])


def right(problem: Problem) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    inputs = problem.make_inputs()
    return inputs, problem.reference(inputs)[0]


@pytest.mark.parametrize("op", [apart, lambda x: x - x.mean(0)], ids=["by rows", "whole"])
def test_a_check_finds_one_wrong_element(op: Op) -> None:
    """Every row of a check is compared: by rows where they are apart, else against the whole truth."""
    problem = large(op)
    inputs, answer = right(problem)
    assert Verifier(problem, Case(problem)).values(inputs, (answer,)) is None
    answer[41, 7] += 1.0
    verifier = Verifier(problem, Case(problem))
    finding = verifier.values(inputs, (answer,))
    assert finding is not None and finding.cause is Cause.WRONG_VALUES
    assert "1 of 6144 elements of out" in finding.message and "[41, 7]" in finding.message
    assert verifier.record(finding).rows == ((64, 64) if op is apart else None)


def test_a_timed_call_is_sampled_in_secret_and_anew() -> None:
    """Few wrong rows are found as often as the stated chance says; more than are left out always."""
    problem = large(plus_one, COSTLY)
    assert sampled_rows(problem, timed=True) == (10, 64)
    assert sampled_rows(problem, timed=False) == (64, 64)
    inputs, answer = right(problem)
    answer[20:24] += 1.0
    chance, trials = 1 - math.comb(60, 10) / math.comb(64, 10), 60
    found = sum(Verifier(problem, timed=True).values(inputs, (answer,)) is not None for _ in range(trials))
    assert 0.4 < chance < 0.6
    # Six standard deviations.
    assert abs(found - trials * chance) < 6 * (trials * chance * (1 - chance)) ** 0.5
    answer[:55] += 1.0
    assert all(Verifier(problem, timed=True).values(inputs, (answer,)) is not None for _ in range(trials))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_no_answer_may_hold_is_found_wherever_it_is(value: float) -> None:
    """The whole of every output is looked at for it, in timed calls too."""
    problem = large(plus_one, COSTLY)
    inputs, answer = right(problem)
    answer[37, 5] = value
    for _ in range(20):
        finding = Verifier(problem, timed=True).values(inputs, (answer,))
        assert finding is not None and "[37, 5]" in finding.message


@pytest.mark.parametrize(("operand", "changed"), [("x", ("x",)), ("out", ())])
def test_a_snapshot_copies_outputs_alone_and_misses_nothing(operand: str, changed: tuple[str, ...]) -> None:
    """Inputs and guards are compared where they lie; what is written after the snapshot is in none."""
    problem = large()
    inputs = problem.make_inputs()
    layout = Layout(problem)
    arena = Arena(layout, [inputs], 0xFF)
    slot = next(s for s in layout.slots if s.operand.name == operand)
    arena._bytes[slot.offset + slot.size - 1] ^= 1
    snapshot = arena.snapshot()
    assert len(snapshot[0]) == layout.slots[0].offset + layout.slots[0].size < layout.set_bytes // 2 + 8192
    arena._bytes[-1] ^= 1
    (result,) = arena.results(snapshot)
    assert result.changed_inputs == changed and result.changed_guards == ()
    (late,) = arena.results(arena.snapshot())
    assert late.changed_guards == ("x",)
    arena.close()


def test_an_output_whose_tolerance_needs_all_of_it_is_not_judged_by_rows() -> None:
    """One axis: its RMS is that of all rows."""
    task = large().task
    with pytest.raises(ValueError, match="needs all of it"):
        fields = task.model_dump()
        for operand in fields["operands"]:
            operand["shape"] = ["rows"]
        Task.model_validate(fields)


_kept: list[torch.Tensor] = []


def _honest(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.add(x, 1, out=out)


def _off(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.add(x, 1.5, out=out)


def _replays(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    _kept.append(x + 1)
    out.copy_(_kept[0])


@contextmanager
def worker(act: Callable[..., None]) -> Iterator[WorkerClient]:
    source = Source("project", Path(__file__), "large", "op")
    with WorkerClient(source, ThreadSandbox(HonestWorker(act)), WorkerPlace(()), wall_s=60) as client:
        client.load()
        yield client


def test_a_large_problem_is_timed_one_set_at_a_time_and_verified_at_once() -> None:
    """A visit holds one set, and a wrong answer is reported by the reveal that has it."""
    numbers = Numbers(clean_blocks=1, most_blocks=1, fresh_processes=False, compiled=False, batch_sets=(8, 8))
    bench = Sampler(large(plus_one), numbers, HostTransport())
    with worker(_honest) as client:
        bench.plan(client, trusted=False)
        visit = bench.visit()
        assert [len(shown.inputs) for shown in visit] == [1]
        bench.reveal(client, visit, lanes(), 0, keep=True)
        assert bench._unverified == []
    with worker(_off) as client:
        bench.plan(client, trusted=False)
        with pytest.raises(Failed, match="elements of out are out of tolerance"):
            bench.reveal(client, bench.visit(), lanes(), 0, keep=True)
    bench.close()


@pytest.mark.parametrize(("act", "cause"), [(_honest, None), (_replays, Cause.WRONG_VALUES)])
def test_a_check_of_a_large_problem(act: Callable[..., None], cause: Cause | None) -> None:
    """All calls of a case, though one set of outputs is kept."""
    _kept.clear()
    with worker(act) as client:
        found = _check_case(client, Case(large(plus_one), seeds=2), Seed())
    assert (None if found.finding is None else found.finding.cause) is cause
    assert found.rows == (64, 64)
