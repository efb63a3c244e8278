"""The order in which a worker on a device waits, holds the stream, marks and calls, with a clock that writes
it down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.worker.cuda_calls import DevicePool

PLAN = {"device": "cpu", "transport": "cuda-vmm", "set_bytes": 64, "sets": 2, "operands": [{}]}


class Recording:
    """Writes down what it is told, and whether the first operand was touched by then."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.held_s: list[float] = []
        self.operand = torch.ones(4)

    def mark(self) -> int:
        self._write("mark")
        return len(self.told)

    def _write(self, what: str) -> None:
        self.told.append(what if self.operand[0] else f"{what}, touched")

    def reached(self, mark: int) -> bool:
        return False

    def between_ns(self, start: int, end: int) -> int:
        return end - start

    def wait(self) -> None:
        self._write("wait")

    def hold(self, seconds: float) -> None:
        self.told.append("hold")
        self.held_s.append(seconds)


def measured(kind: str, mode: str) -> Recording:
    """Two calls of a null project, or of a project that says when it is called."""
    clock = Recording()
    window = SimpleNamespace(show=lambda *_: None, address=4096)
    driver: Any = SimpleNamespace(Driver=lambda: None, Window=lambda *_: window)
    signature = SimpleNamespace(arguments=lambda kind, operands: (operands, {}), writes=[0])
    pool = DevicePool(PLAN, signature, lambda *_: clock.operand, None, driver)
    pool._clock = clock
    pool.show(-1, {"sets": 2})
    subject = SimpleNamespace(kind=kind, function=lambda operand: clock.told.append("call"))
    answer = pool.measure(subject, {"rounds": 1, "sets": 2, "mode": mode})
    assert (answer["calls"], answer["mode"]) == (2, mode)
    return clock


@pytest.mark.parametrize(("mode", "hold"), [("eager", []), ("queued", ["hold"])])
def test_a_claim_lasts_from_before_the_first_launch_to_an_idle_device(mode: str, hold: list[str]) -> None:
    """The device is idle before; only in the mode `queued` is the stream held while calls are enqueued."""
    clock = measured("project", mode)
    assert clock.told == ["wait", *hold, "mark", "call", "call", "mark", "wait"]
    assert all(seconds >= 200e-6 for seconds in clock.held_s)


def test_the_null_project_launches_one_tiny_kernel() -> None:
    """Where a project's first call would be; it makes no other."""
    clock = measured("null", "eager")
    assert clock.told == ["wait", "mark", "mark, touched", "wait, touched"]
    assert clock.operand.tolist() == [0.0, 1.0, 1.0, 1.0]
