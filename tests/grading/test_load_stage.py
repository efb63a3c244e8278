"""What follows from the evidence of a library and from an import."""

from __future__ import annotations

from typing import Any

from harness.grading.load import (
    call_flags,
    load_refusal,
    unresolved_symbols,
    why_not_imported,
    with_symbol_names,
)
from harness.outcome import Cause, Verdict
from harness.records import BinaryCalls, BuildResult, Finding
from tests.fakes.overlays import throw_away_task
from tests.fakes.trials import build_result

TASK = throw_away_task("scale").task


def build(calls: BinaryCalls | None, **changes: Any) -> BuildResult:
    """A successful build with this evidence."""
    return build_result(**({"backend": "cuda", "module": TASK.module, "calls": calls} | changes))


FORBIDS = TASK.model_copy(update={"library_calls": "forbid"})


def test_an_unreadable_library_is_not_innocent() -> None:
    """Flagged where calls are flagged, refused where they are forbidden; a universal project has none."""
    assert call_flags(build(None), TASK) == ("calls unknown",)
    assert load_refusal(build(None), FORBIDS) is not None
    assert call_flags(build(None, jit=True), TASK) == ()
    assert load_refusal(build(BinaryCalls(tensor=("at::_ops::empty::call",))), FORBIDS) is None


def test_an_unresolved_symbol_is_an_import_error() -> None:
    """Before any import; a clean library has none. A real import error gets the demangled name in front."""
    finding = unresolved_symbols(build(BinaryCalls(unresolved=tuple(f"f{i}(int)" for i in range(6)))))
    assert finding is not None and finding.verdict is Verdict.LOAD_FAILED
    assert finding.message.splitlines()[0] == "undefined symbol: f0(int)"
    assert "and 2 more undefined symbols" in finding.message
    assert unresolved_symbols(build(BinaryCalls(unproven=3))) is None
    assert unresolved_symbols(build(None)) is None
    raw = Finding(cause=Cause.IMPORT_ERROR, message="ImportError: a.so: undefined symbol: _Z1fi")
    calls = BinaryCalls(unresolved=("f(int): declared and called",))
    better = with_symbol_names(raw, build(calls))
    assert better.message == f"undefined symbol: f(int): declared and called\n{raw.message}"
    assert with_symbol_names(raw, build(BinaryCalls())) == raw
    other = Finding(cause=Cause.IMPORT_ERROR, message="NameError: x")
    assert with_symbol_names(other, build(calls)) == other


def test_what_a_cpu_only_torch_leaves_open_is_said() -> None:
    """In numbers; nothing is called proven."""
    assert "a CUDA build of torch can have: 15" in why_not_imported(build(BinaryCalls(unproven=15)))
    assert "all its symbols are there" in why_not_imported(build(BinaryCalls()))
    assert "could not be read" in why_not_imported(build(None))
