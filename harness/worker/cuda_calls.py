"""Runs INSIDE the sandbox, beside __main__.py: operands in the judge's device memory, timed by the device.

Memory is mapped only during a reveal, which ends when the device is idle.

The null project launches one tiny kernel: what a context switch and a first launch cost is in its time too.

Modes: `eager`; `graph`: the call of each set is captured once, then replayed; `queued`: the stream is held
while all launches are enqueued; `warm`: every call is made twice on its set, and the second counts.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

import torch

_cuda: Any = torch.cuda
_EACH = 512
_MOST_GRAPHS = 256
"""A capture takes milliseconds, and a reveal has a deadline."""
_QUEUE_CALLS = 256
"""Enqueued while the stream is held: a stream takes about a thousand launches before it blocks."""
_HOLD_S, _MOST_HOLD_S = 200e-6, 20e-3
_CYCLES_PER_S = 1.98e9

Call = Callable[[], Any]
Results = dict[int, Any]
"""By set: the tensors that a reference returned."""


class _HostClock:
    """For the fake driver of the tests, whose device is this processor: there is nothing to wait for."""

    def mark(self) -> int:
        return time.perf_counter_ns()

    def reached(self, mark: int) -> bool:
        """Always: a call is over when it returns."""
        return True

    def between_ns(self, start: int, end: int) -> int:
        return end - start

    def wait(self) -> None: ...

    def hold(self, seconds: float) -> None: ...


class _DeviceClock:
    def mark(self) -> Any:
        event = _cuda.Event(enable_timing=True)
        event.record()
        return event

    def reached(self, mark: Any) -> bool:
        return bool(mark.query())

    def between_ns(self, start: Any, end: Any) -> int:
        return int(start.elapsed_time(end) * 1e6)

    def wait(self) -> None:
        _cuda.synchronize()

    def hold(self, seconds: float) -> None:
        """Keep the stream busy with a kernel that ends by itself: one that waited for the host could wait
        forever."""
        _cuda._sleep(int(seconds * _CYCLES_PER_S))


class DevicePool:
    resident = False
    """Work that a frozen process has started on a device continues: memory is mapped for each reveal."""

    def __init__(
        self, plan: dict[str, Any], signature: Any, tensor: Callable[..., torch.Tensor], at: Any, driver: Any
    ) -> None:
        """`tensor`, `at`: see __main__.py; `driver`: the module driver.py. RuntimeError when NVIDIA's driver
        refuses, OSError without one."""
        self._plan = plan
        self._arguments, self.writes = signature.arguments, signature.writes
        self._tensor = tensor
        self._on_gpu = plan["device"] == "cuda"
        self._at = at
        if self._on_gpu:
            _cuda.init()
            self._at = lambda address, size: torch.as_tensor(driver.Array(address, size), device="cuda")
        self._driver = driver.Driver()
        shared_by = driver.Window if plan["transport"] == "cuda-vmm" else driver.Shared
        self._window: Any = shared_by(self._driver, plan["set_bytes"] * plan["sets"])
        self._clock: Any = _DeviceClock() if self._on_gpu else _HostClock()
        self._based_at = 0
        self.operands: list[list[torch.Tensor]] = []
        self._calls: dict[int, Call] = {}
        self._graphs: dict[int, tuple[Any, Any]] = {}
        self._no_graph = False
        self._enqueue_s = _HOLD_S

    def show(self, descriptor: int, message: dict[str, Any]) -> None:
        """Map an arena. Tensors are made when their memory is first mapped: PyTorch asks where it lies."""
        self._window.show(descriptor, message)
        if self._based_at != self._window.address:
            self._based_at = self._window.address
            self.operands, self._calls, self._graphs = [], {}, {}
        for index in range(len(self.operands), message.get("sets", 1)):
            base = self._based_at + index * self._plan["set_bytes"]
            self.operands.append(
                [self._tensor(o, base, self._at, self._plan["device"]) for o in self._plan["operands"]]
            )

    def prepared(self, kind: str, index: int) -> tuple[list[Any], dict[str, Any]]:
        found: tuple[list[Any], dict[str, Any]] = self._arguments(kind, self.operands[index])
        return found

    def hide(self) -> None:
        self._window.hide()

    def release(self) -> None:
        self.operands, self._calls, self._graphs = [], {}, {}
        self._clock.wait()
        self._window.close()
        if self._on_gpu:
            _cuda.empty_cache()  # results of another size and dtype would not fit into it
        self._driver.call("cuDevicePrimaryCtxRelease_v2", self._driver.device.value)

    def measure(self, subject: Any, message: dict[str, Any]) -> dict[str, Any]:
        """Call every set `rounds` times; when this returns the device is idle. The claims of the answer; its
        `mode` is `eager` where the calls could not be made as requested."""
        indices = [index for _ in range(message["rounds"]) for index in range(message["sets"])]
        mode = message["mode"]
        if mode == "graph" and not self._capture(subject, set(indices)):
            mode = "eager"
        calls = [(index, self._call(subject, index, mode)) for index in indices]
        each: list[int] = []
        # What a project returns is dropped at once: its memory may be the next call's.
        results: Results | None = {} if subject.kind == "reference" else None
        if mode == "warm":
            each = self._warm(calls, results)
            total = sum(each)
        else:
            total, held = self._together(calls, results, hold=mode == "queued")
            mode = mode if held else "eager"
            each = [total] if len(calls) == 1 else []
        aside = self._store(results)
        answer = {"calls": len(calls), "total_ns": total, "ns": each[:_EACH], "aside_ns": aside}
        return {**answer, "mode": mode}

    def _touch(self) -> None:
        """One tiny kernel on memory of this reveal."""
        self.operands[0][self.writes[0]].view(-1)[:1].zero_()

    def _call(self, subject: Any, index: int, mode: str) -> Call:
        if subject.kind == "null":
            return _nothing if index else self._touch
        if mode == "graph":
            return functools.partial(_replay, *self._graphs[index])
        if index not in self._calls:
            positional, named = self.prepared(subject.kind, index)
            self._calls[index] = functools.partial(subject.function, *positional, **named)
        return self._calls[index]

    def _together(
        self, calls: list[tuple[int, Call]], results: Results | None, *, hold: bool
    ) -> tuple[int, bool]:
        groups = range(0, len(calls), _QUEUE_CALLS if hold else max(1, len(calls)))
        total, held = 0, True
        for first in groups:
            group = calls[first : first + groups.step]
            self._clock.wait()
            if hold:
                self._clock.hold(min(_MOST_HOLD_S, _HOLD_S + 2 * self._enqueue_s * len(group)))
            begun = time.perf_counter()
            start = self._clock.mark()
            _make(group, results)
            end = self._clock.mark()
            self._enqueue_s = (time.perf_counter() - begun) / len(group)
            held = held and (not hold or not self._clock.reached(start))
            self._clock.wait()
            total += self._clock.between_ns(start, end)
        return total, held

    def _warm(self, calls: list[tuple[int, Call]], results: Results | None) -> list[int]:
        marks = []
        for index, call in calls:
            call()
            start = self._clock.mark()
            _make([(index, call)], results)
            marks.append((start, self._clock.mark()))
        self._clock.wait()
        return [self._clock.between_ns(start, end) for start, end in marks]

    def _store(self, results: Results | None) -> int:
        if results is None:
            return 0
        start = self._clock.mark()
        for index, outputs in results.items():
            for i, output in zip(self.writes, outputs, strict=True):
                self.operands[index][i].copy_(output)
        end = self._clock.mark()
        self._clock.wait()
        return int(self._clock.between_ns(start, end))

    def _capture(self, subject: Any, indices: set[int]) -> bool:
        """Capture the call of every set that has no graph yet; whether that is possible."""
        if subject.kind == "null":
            return True
        if not self._on_gpu or len(indices) > _MOST_GRAPHS:
            return False
        for index in sorted(indices - set(self._graphs)):
            if self._no_graph:
                break
            call = self._call(subject, index, "eager")
            side = _cuda.Stream()
            side.wait_stream(_cuda.current_stream())
            with _cuda.stream(side):
                call()  # the set-up of a first call cannot be captured
            _cuda.synchronize()
            graph = _cuda.CUDAGraph()
            try:
                with _cuda.graph(graph):
                    results = call()
            except RuntimeError:
                self._no_graph = True
            else:
                self._graphs[index] = (graph, results)
        return not self._no_graph


def _make(calls: list[tuple[int, Call]], results: Results | None) -> None:
    if results is None:
        for _, call in calls:
            call()
        return
    for index, call in calls:
        results[index] = call()


def _nothing() -> None: ...


def _replay(graph: Any, results: Any) -> Any:
    graph.replay()
    return results
