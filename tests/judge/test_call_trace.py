"""Traced calls: what the worker's side sees, and what the judge's side believes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any, Final

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import _disable_current_modes

from harness.judge.call_trace import forbidden_work, operator_kind, read_trace, trace_flags
from harness.judge.check import problems
from harness.outcome import Cause
from harness.records import BuildResult, DeviceKernel, Evidence, SanitizerRun
from harness.worker.tracer import on_copies, trace
from tests.fakes.overlays import throw_away_task

LOADED: Final = throw_away_task("scale")
SPACE: Final = "_evidence_test"
FORBIDS: Final = LOADED.task.model_copy(update={"library_calls": "forbid"})


def built(*kernels: str, known: bool = True) -> BuildResult:
    records = tuple(
        DeviceKernel(name=n, architecture="sm_90", registers=8, shared_bytes=0, stack_bytes=0)
        for n in kernels
    )
    fields = {"ok": True, "finding": None, "backend": "cuda", "key": "k", "cache_hit": False, "wall_s": 0.0}
    return BuildResult.model_validate({**fields, "compiler_s": None, "kernels": records if known else None})


def read(said: dict[str, Any], build: BuildResult | None = None, *, right: bool = True) -> Evidence:
    problem = problems(LOADED, "cpu")[0]
    return read_trace({"loads": [], **said}, problem, build or built(), SPACE, right=right)


def _squared(out: torch.Tensor, x: torch.Tensor) -> None:
    out.copy_(torch.mm(x, x))


def _exponential(out: torch.Tensor, x: torch.Tensor) -> None:
    out.copy_(x.exp())


@pytest.fixture(scope="module")
def library() -> Iterator[torch.library.Library]:
    made = torch.library.Library(SPACE, "DEF")
    made.define("backend(Tensor! out, Tensor x) -> ()")
    made.define("anywhere(Tensor! out, Tensor x) -> ()")
    made.define("alone(Tensor! out, Tensor x) -> ()")
    made.impl("backend", _squared, "CPU")
    made.impl("anywhere", _exponential, "CompositeExplicitAutograd")
    made.impl("alone", lambda out, x: None, "CPU")
    yield made
    made._destroy()


def _working(found: dict[str, Any]) -> dict[str, int]:
    return {name: n for name, n in found["operators"] if operator_kind(name, SPACE) != "harmless"}


def _moving(found: dict[str, Any]) -> dict[str, int]:
    return {name: n for name, n in found["operators"] if name == "aten::copy_"}


@pytest.mark.parametrize(
    ("operator", "inside"),
    [
        ("backend", {"aten::mm": 1, "aten::copy_": 1}),
        ("anywhere", {"aten::exp": 1, "aten::copy_": 1}),
        ("alone", {}),
    ],
)
def test_what_an_operator_of_the_project_dispatches_is_seen(
    library: torch.library.Library, operator: str, inside: dict[str, int]
) -> None:
    """The project's own operator is counted, and so is what it calls in turn; the result is the same."""
    x, out = torch.eye(4) * 2, torch.zeros(4, 4)
    with torch.no_grad():
        found = trace(lambda: getattr(getattr(torch.ops, SPACE), operator)(out, x), SPACE, "cpu")
    assert _working(found) | _moving(found) == {f"{SPACE}::{operator}": 1, **inside}
    assert found["kernels"] is None
    expected = {"backend": x @ x, "anywhere": x.exp(), "alone": torch.zeros(4, 4)}[operator]
    assert torch.equal(out, expected)


def _multiplied(times: int) -> None:
    for _ in range(times):
        torch.mul(torch.ones(4), torch.ones(4))


def _without_modes() -> None:
    _multiplied(3)
    with _disable_current_modes():
        _multiplied(2)


def _without_the_profiler() -> None:
    torch._C._autograd._enable_record_function(False)
    _multiplied(5)
    torch._C._autograd._enable_record_function(True)


def _in_a_thread() -> None:
    _multiplied(3)
    thread = Thread(target=_multiplied, args=(2,))
    thread.start()
    thread.join()


@pytest.mark.parametrize("call", [_without_modes, _without_the_profiler, _in_a_thread])
def test_an_operator_is_counted_once_whatever_is_switched_off(call: Callable[[], None]) -> None:
    """The dispatch mode sees what is not recorded; the profiler sees other threads and code without modes."""
    assert _working(trace(call, SPACE, "cpu")) == {"aten::mul": 5}


def test_an_account_fits_one_message(library: torch.library.Library) -> None:
    """However many operators a call dispatches, what is said of it stays under the size of a message."""
    names = [f"o{index}_{'n' * 500}" for index in range(150)]
    for name in names:
        library.define(f"{name}(Tensor x) -> ()")
        library.impl(name, lambda x: None, "CPU")
    x = torch.ones(1)

    def call() -> None:
        for name in names:
            getattr(getattr(torch.ops, SPACE), name)(x)

    found = trace(call, SPACE, "cpu")
    assert len(json.dumps(found)) < 1 << 16
    assert 0 < len(found["operators"]) < 150


def test_copies_are_worked_on_and_written_back() -> None:
    """Under a tool that watches memory the project gets memory of the worker's own; results come back."""
    operands = [torch.zeros(4), torch.arange(4.0)]
    shared = list(operands)

    def call() -> None:
        assert all(a.data_ptr() != b.data_ptr() for a, b in zip(operands, shared, strict=True))
        operands[0].copy_(operands[1] * 2)

    on_copies(call, operands)
    assert [a is b for a, b in zip(operands, shared, strict=True)] == [True, True]
    assert torch.equal(shared[0], torch.arange(4.0) * 2)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{SPACE}::scale", "own"),
        ("aten::copy_", "harmless"),
        ("profiler::_record_function_enter_new", "harmless"),
        ("aten::mm", "compute"),
        ("another_project::scale", "compute"),
        ("nonsense", "compute"),
    ],
)
def test_operators_have_kinds(name: str, kind: str) -> None:
    """An operator computes unless it is the project's own or known to be harmless."""
    assert operator_kind(name, SPACE) == kind


def test_a_trace_becomes_a_record() -> None:
    """Counts and kinds; nothing is flagged that only allocates."""
    evidence = read({"operators": [[f"{SPACE}::scale", 1], ["aten::empty", 2]]})
    assert [(o.calls, o.kind) for o in evidence.operators or ()] == [(1, "own"), (2, "harmless")]
    assert (evidence.flags, evidence.notes) == ((), ())
    assert (evidence.kernels, evidence.launches, evidence.own_share) == (None, None, None)


def test_share_of_device_time_in_own_kernels() -> None:
    """Names are compared without blanks; copies count in the time, and are nobody's kernel."""
    said = {
        "operators": [],
        "kernels": [
            ["void (anonymous namespace)::fill<float, 4>(float*, long)", 2, 3000, False],
            ["ampere_sgemm_128x64_nn", 1, 6000, False],
            ["Memcpy DtoD (Device -> Device)", 1, 1000, True],
        ],
    }
    evidence = read(said, built("void (anonymous namespace)::fill<float,4>(float *, long)"))
    assert [k.own for k in evidence.kernels or ()] == [True, False, None]
    assert (evidence.launches, evidence.own_share) == (3, pytest.approx(0.3))
    assert evidence.flags == ("little device time in its own kernels",)
    # The reader of a library keeps 256 kernels: one that is missing there may still be the project's.
    for build in (built(known=False), built(*(f"k{index}()" for index in range(256)))):
        unknown = read(said, build)
        assert (unknown.own_share, unknown.flags) == (None, ())


def test_a_wrong_traced_call_is_flagged() -> None:
    """A project that computes something else when it is traced is flagged, not condemned."""
    evidence = read({"operators": []}, right=False)
    assert (evidence.flags, forbidden_work(evidence, FORBIDS)) == (("differs when traced",), None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("aten::\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
rows = st.lists(st.lists(json_values, max_size=4) | st.tuples(st.text(), st.integers()).map(list), max_size=4)


@given(
    operators=json_values | rows,
    kernels=json_values | rows,
    note=json_values,
    loads=json_values | st.lists(st.text(max_size=8)),
)
def test_any_account_is_a_record(operators: Any, kernels: Any, note: Any, loads: Any) -> None:
    """Whatever a worker says, there is a record that can be written down, and never an exception."""
    evidence = read({"operators": operators, "kernels": kernels, "note": note, "loads": loads})
    assert Evidence.model_validate_json(evidence.model_dump_json()) == evidence
    assert (evidence.operators is None) == (evidence.flags[-1:] == ("not traced",))


@pytest.mark.parametrize(
    "operators",
    [None, "aten::mm", [["aten::mm", True]], [["aten::mm", 0]], [["aten::mm", 1.0]], [["a", 1]] * 101],
)
def test_a_malformed_account_is_no_trace(operators: object) -> None:
    """Nothing is taken from an account that is not well formed; where calls are forbidden, it is refused."""
    evidence = read({"operators": operators})
    assert evidence.operators is None
    assert evidence.flags == ("not traced",)
    finding = forbidden_work(evidence, FORBIDS)
    assert finding is not None
    assert finding.cause is Cause.LIBRARY_CALLS
    assert "could not be traced" in finding.message


def test_what_a_task_says_of_borrowed_work() -> None:
    """`forbid` is the failure and names operators and loaded code, `flag` a flag, `allow` nothing."""
    operators = [[f"aten::op{index}", 1] for index in range(6)]
    evidence = read({"operators": operators, "loads": ["ctypes: cos of libm.so.6", "x" * 999]})
    assert evidence.loads == ("ctypes: cos of libm.so.6", "x" * 300)
    finding = forbidden_work(evidence, FORBIDS)
    assert finding is not None
    assert finding.cause is Cause.LIBRARY_CALLS
    assert "aten::op0" in finding.message and "and 2 more" in finding.message
    assert "loads code at run time\n  ctypes: cos of libm.so.6" in finding.message
    alone = forbidden_work(read({"operators": [], "loads": ["ctypes: libm.so.6"]}), FORBIDS)
    assert alone is not None and "dispatches" not in alone.message
    flags = ("dispatches PyTorch operators", "loads code at run time")
    allowed = LOADED.task.model_copy(update={"library_calls": "allow"})
    for one, task, expected in ((evidence, LOADED.task, flags), (evidence, allowed, ()), (None, FORBIDS, ())):
        assert trace_flags(one, task) == expected
        assert forbidden_work(one, task) is None


def test_records_refuse_what_cannot_be() -> None:
    """No trace without a reason, no clean run with findings, no missing tool without its reason."""
    with pytest.raises(ValueError, match="says why there is none"):
        Evidence(workload="w", dtype="float32", operators=None)
    with pytest.raises(ValueError, match="has no findings"):
        SanitizerRun.model_validate(
            {"tool": "memcheck", "status": "clean", "findings": [{"message": "Invalid read"}]}
        )
