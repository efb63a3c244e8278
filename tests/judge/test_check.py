"""The check stage, with a worker that is a thread: which calls are made, and what is concluded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.judge.adversarial import INTEGERS
from harness.judge.check import cases, check, hidden_workloads
from harness.judge.keystream import Seed
from harness.judge.protocol import CHECK_SIZES
from harness.judge.verifier import repeatable
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace
from harness.outcome import Cause
from harness.records import CheckResult, Hidden
from harness.suite.catalogue import LoadedTask, all_tasks
from tests.fakes.overlays import Replaced, throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox

PROJECT = Source("project", Path(__file__), "scale", "scale")


def plain() -> LoadedTask:
    loaded = throw_away_task("scale")
    return LoadedTask(loaded.task.model_copy(update={"values": ()}), loaded.directory)


def run_check(act: Callable[..., None], loaded: LoadedTask | None = None) -> tuple[CheckResult, HonestWorker]:
    worker = HonestWorker(act)
    with WorkerClient(PROJECT, ThreadSandbox(worker), WorkerPlace(()), wall_s=60) as client:
        client.load()
        return check(client, loaded or plain(), "cpu"), worker


def right(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.mul(x, alpha, out=out)


def test_correct_project() -> None:
    """Every workload is checked on two sets of inputs, and reported in the task's order."""
    result, _ = run_check(right)
    assert result.finding is None
    assert [(w.workload, w.calls) for w in result.workloads] == [("square", 2), ("odd", 2)]
    assert all(w.worst_error is not None and w.worst_error <= 1.0 for w in result.workloads)
    assert result.not_run == ()


def test_truth_is_computed_after_the_outputs_are_in() -> None:
    """For every workload all calls come first; only then does an expected value exist anywhere."""
    events: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def noting(*arguments: Any, **named: Any) -> Any:
            events.append(name)
            return function(*arguments, **named)

        return noting

    task = plain()
    module = task.reference_module()
    functions = {name: noted(name, getattr(module, name)) for name in ("make_inputs", "reference")}
    run_check(noted("called", right), Replaced(task.task, task.directory, functions))
    one = ["make_inputs", *["called"] * 2, "make_inputs", *["called"] * 2, "reference", "reference"]
    assert events == one * 2


def test_worker_is_told_nothing_but_what_is_documented() -> None:
    """Messages hold the documented keys only: no expected value, no stage, no name."""
    _, worker = run_check(right)
    keys = {
        "load": {"op", "kind", "path", "module", "function", "namespace", "compiled"},
        "plan": {"op", "set_bytes", "sets", "operands", "scalars", "device", "transport"},
        "call": {"op", "sets", "size", "rounds", "mode"},
        "hide": {"op"},
        "flags": {"op"},
    }
    assert {m["op"] for m in worker.messages} == set(keys)
    for message in worker.messages:
        assert set(message) == keys[message["op"]]
        for operand in message.get("operands", []):
            assert set(operand) == {"name", "role", "dtype", "shape", "offset"}
    assert "square" not in str(worker.messages)


def test_calls_see_fresh_memory_and_poison() -> None:
    """Inputs A over 0xFF, A over 0x00, fresh inputs B, and A once more, each in memory of its own."""
    seen: list[tuple[torch.Tensor, torch.Tensor]] = []

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        seen.append((out.clone().view(torch.uint8), x.clone()))
        right(out, x, alpha=alpha)

    _, worker = run_check(act)
    assert len(seen) == len(set(worker.arenas)) == 8
    assert [poison.unique().tolist() for poison, _ in seen] == [[0xFF], [0x00], [0xFF], [0xFF]] * 2
    for first, second, third, fourth in (seen[:4], seen[4:]):
        assert torch.equal(first[1], second[1]) and torch.equal(first[1], fourth[1])
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


def test_a_seed_gives_the_same_shapes_order_and_inputs() -> None:
    """With the seed of a check's record all of its calls are made again; without it, others."""

    def calls(seed: Seed | None) -> tuple[str | None, list[tuple[tuple[int, ...], float]]]:
        seen: list[tuple[tuple[int, ...], float]] = []

        def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
            seen.append((tuple(x.shape), float(x.nan_to_num().double().sum())))
            right(out, x, alpha=alpha)

        with WorkerClient(PROJECT, ThreadSandbox(HonestWorker(act)), WorkerPlace(()), wall_s=60) as client:
            client.load()
            result = check(client, throw_away_task("scale_hidden"), "cpu", seed=seed)
        return result.seed, seen

    drawn, seen = calls(None)
    assert drawn is not None
    assert calls(Seed(bytes.fromhex(drawn))) == (drawn, seen)
    other, different = calls(None)
    assert other != drawn and not set(different) & set(seen)


def _unwritten(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.mul(x[1:], alpha, out=out[1:])


def _writes_nan(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    out.fill_(float("nan"))


def _drifts_after_other_values() -> Callable[..., None]:
    state: dict[tuple[int, ...], tuple[float, int]] = {}

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        seen, others = state.get(tuple(x.shape), (float(x.flatten()[0]), 0))
        others += float(x.flatten()[0]) != seen
        state[tuple(x.shape)] = (seen, others)
        torch.mul(x, alpha * (1 + 2e-7 * others), out=out)

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
        (_drifts_after_other_values(), Cause.NONDETERMINISTIC, "differ between two calls"),
        (_replay(), Cause.WRONG_VALUES, "times the allowed error"),
        (lambda out, x, *, alpha: out.copy_(x), Cause.WRONG_VALUES, "out of tolerance"),
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


def test_a_declared_bound_lets_repeats_differ() -> None:
    """Within the task's bound equal inputs may give other bytes, beyond it not."""

    def noisy(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        torch.mul(x, alpha * (1 + 1e-6 * float(torch.rand(()))), out=out)

    loaded = plain()
    bounds = {1e-5: None, 1e-8: Cause.NONDETERMINISTIC}
    for bound, cause in bounds.items():
        task = loaded.task.model_copy(update={"nondeterminism": bound})
        finding = run_check(noisy, LoadedTask(task, loaded.directory))[0].finding
        assert (finding.cause if finding else None) is cause


def test_exact_lane_finds_what_tolerance_forgives() -> None:
    """On -1, 0 and 1 every sum is representable, so an answer within tolerance that is not equal is wrong."""

    def nearly(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        torch.matmul(a, b, out=out)
        out.mul_(1 + 2e-7)

    def exactly(out: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> None:
        torch.matmul(a, b, out=out)

    loaded = throw_away_task("matmul")
    assert run_check(exactly, loaded)[0].finding is None
    result, _ = run_check(nearly, loaded)
    wrong = [w for w in result.workloads if w.finding is not None]
    assert [(w.values, w.output) for w in wrong] == [("integers", "out")]
    assert wrong[0].finding is not None and "not equal to the truth" in wrong[0].finding.message


def test_promised_layouts_and_values() -> None:
    """Strides are honoured end to end, and a project that ignores them is found."""
    loaded = throw_away_task("strided_scale")
    result, worker = run_check(right, loaded)
    assert result.finding is None
    assert {w.layout for w in result.workloads} == set(loaded.task.layouts)
    assert {"nan", "inf", "denormal", "negative_zero"} <= {w.values for w in result.workloads}
    assert any("strides" in o for m in worker.messages for o in m.get("operands", []))

    def ignores_strides(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        torch.mul(x.as_strided(x.shape, (x.shape[1], 1)), alpha, out=out)

    failed = {w.layout for w in run_check(ignores_strides, loaded)[0].workloads if w.finding is not None}
    assert failed == {"transposed", "stepped", "expanded"}


def test_values_beyond_the_dtype_are_not_judged() -> None:
    """Where adversarial values make a truth that the output cannot hold, the case says so and no more."""
    loaded = throw_away_task("scale")
    huge = tuple(w.model_copy(update={"scalars": {"alpha": 1e37}}) for w in loaded.task.workloads)
    task = loaded.task.model_copy(update={"values": ("large",), "workloads": huge})
    result, _ = run_check(right, LoadedTask(task, loaded.directory))
    (large,) = [w for w in result.workloads if w.values == "large"]
    assert result.finding is None and large.worst_error is None
    assert large.skipped is not None and "float32 cannot hold" in large.skipped


@pytest.mark.parametrize("loaded", all_tasks(), ids=lambda loaded: loaded.task.name)
def test_quick_is_small_and_full_is_all(loaded: LoadedTask) -> None:
    """`quick` tries each kind once, `full` on every workload that is small enough; hidden shapes in both."""
    task = loaded.task
    expected = [*task.values, *([INTEGERS] if task.exact else [])]
    quick = cases(loaded, "cuda")
    assert Counter(c.values for c in quick if c.values != "task") == Counter(expected)
    assert sum(c.problem.hidden for c in quick) == 2
    full = cases(loaded, "cuda", "full")
    kinds = Counter(c.values for c in full if c.values != "task")
    assert set(kinds) == set(expected)
    assert min(kinds.values()) >= len(task.dtypes["cuda"])
    assert sum(c.problem.hidden for c in full) == CHECK_SIZES["full"].hidden * len(task.dtypes["cuda"])
    assert len({c.label for c in full}) == len(full)


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(st.integers(0, 5), st.integers(5, 400), st.integers(1, 7)),
    st.tuples(st.integers(1, 3), st.integers(3, 400)),
)
def test_hidden_shapes_keep_to_their_ranges(rows: tuple[int, int, int], cols: tuple[int, int]) -> None:
    """Every drawn size lies within its range, on its step."""
    loaded = throw_away_task("scale")
    hidden = Hidden(dims={"rows": rows, "cols": cols})
    ranged = LoadedTask(loaded.task.model_copy(update={"hidden": hidden}), loaded.directory)
    for workload in hidden_workloads(ranged, "cpu", 6, 1 << 30, Random()):
        low, high, step = rows
        assert low <= workload.dims["rows"] <= high and (workload.dims["rows"] - low) % step == 0
        assert cols[0] <= workload.dims["cols"] <= cols[1]
        assert workload.scalars in [w.scalars for w in loaded.task.workloads]


def test_hidden_shapes_are_secret_and_awkward() -> None:
    """Every check draws others; the first is odd, prime, 1, or a power of two give or take one."""
    powers, drawn = {2**k + d for k in range(12) for d in (-1, 1)}, set()
    for _ in range(30):
        first, second = hidden_workloads(throw_away_task("scale_hidden"), "cpu", 2, 1 << 20, Random())
        assert any(n % 2 == 1 or n == 2 or n in powers for n in first.dims.values())
        drawn |= {tuple(sorted(one.dims.items())) for one in (first, second)}
    assert len(drawn) > 30
