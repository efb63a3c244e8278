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
        self.told.append("mark")
        return len(self.told)

    def reached(self, mark: int) -> bool:
        return False

    def between_ns(self, start: int, end: int) -> int:
        return end - start

    def wait(self) -> None:
        self.told.append("wait" if self.operand[0] else "wait, touched")

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


@pytest.mark.parametrize("mode", ["eager", "queued"])
def test_the_stream_is_held_before_the_first_call(mode: str) -> None:
    """The device is idle, then held for at least 30 us; the claim lasts from the mark before the calls to the
    one after them, and ends when the device is idle."""
    clock = measured("project", mode)
    assert clock.told == ["wait", "hold", "mark", "call", "call", "mark", "wait"]
    assert min(clock.held_s) >= 30e-6


def test_the_null_project_touches_the_device_and_is_held_as_others_are() -> None:
    """Its tiny kernel is over before the stream is held, and it makes no calls."""
    clock = measured("null", "eager")
    assert clock.told == ["wait, touched", "hold", "mark", "mark", "wait, touched"]
    assert clock.operand.tolist() == [0.0, 1.0, 1.0, 1.0]
    assert min(clock.held_s) >= 30e-6
