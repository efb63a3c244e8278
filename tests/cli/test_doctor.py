"""What `liftbench doctor` prints: the table of promises, and an A/A calibration."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from harness.cli.doctor import PromiseState, SandboxState, State, promise_table, timing_view
from harness.records import Ratio
from harness.records.timing import Calibration, FalseAlarms, HandShake, SizeFigures
from sandboxes.registry import PROMISES


def _state(name: str, state: State, **others: State) -> SandboxState:
    rows = tuple(
        PromiseState(promise=one, state=others.get(one, state), detail="refused") for one in PROMISES
    )
    return SandboxState(name=name, unavailable=None, promises=rows, seconds=0.5)


def _printed(*states: SandboxState) -> list[str]:
    sink = io.StringIO()
    Console(file=sink, width=140).print(promise_table(states))
    return sink.getvalue().splitlines()


@pytest.mark.parametrize(
    ("state", "cell"),
    [("held", "held"), ("held, not promised", "(held)"), ("open", "open"), ("broken", "BROKEN")],
)
def test_every_state_has_a_cell(state: State, cell: str) -> None:
    """Each promise is one row, and its cell says what came of it."""
    head, *rows = _printed(_state("docker", state))
    assert head.split() == ["promise", "docker"]
    assert [row.split()[-1] for row in rows] == [cell] * len(PROMISES)


def test_a_backend_that_is_not_there_shows_nothing_as_held() -> None:
    """The column of a backend that could not be probed has dashes only."""
    absent = SandboxState(name="docker", unavailable="no engine answers")
    rows = _printed(absent, _state("local", "open"))[1:]
    assert {tuple(row.split()[-2:]) for row in rows} == {("-", "open")}
    assert absent.summary is None


def test_the_summary_names_broken_promises() -> None:
    """A backend that breaks a promise is refused, and the promise is named."""
    assert _state("docker", "held", mounts="broken").summary == "refused: mounts does not hold"
    assert _state("docker", "held").summary == f"keeps all {len(PROMISES)} promises it makes"
    assert "no isolation" in str(_state("local", "open", descriptors="held").summary)


SIZE = SizeFigures(
    workload="8_rows",
    dtype="float32",
    bytes_moved=1 << 20,
    hand_shake=(HandShake(lane="call", reveals=20, c05_us=110.0, median_us=130.0, p95_us=180.0),),
    lane="batch",
    inside_us=50.0,
    outside_us=52.0,
    uncertainty_us=6.0,
    latency_us=100.0,
    ratio=Ratio(value=1.001, low=0.99, high=1.012, n=10),
    outside_ratio=Ratio(value=0.998, low=None, high=None, n=1),
    process_spread=0.013,
)


def shown(rate: float = 0.01, **figures: Any) -> str:
    """What is printed of a calibration."""
    usual: dict[str, Any] = {
        "task": "l1/softmax",
        "transport": "memfd",
        "sandbox": "local",
        "processes": 4,
        "sizes": (SIZE,),
        "false_alarms": (
            FalseAlarms(protocol="quick", clock="inside", comparisons=2000, rate=0.08, rate_with_gate=rate),
        ),
        "blocks": 10,
        "disturbed_blocks": 0,
        "disturbances": (),
        "noisy": False,
        "wall_s": 60.0,
    }
    text = io.StringIO()
    Console(width=120, file=text).print(timing_view(Calibration(**{**usual, **figures})))
    return text.getvalue()


def test_every_figure_is_shown() -> None:
    """The constant, u, L, the A/A interval, spread, and both rates."""
    text = shown()
    for figure in (
        "1 MiB",
        "110.0",
        "52.0",
        "12 ",
        "1.001 (0.990, 1.012)",
        "0.998 (n/a)",
        "1.3 %",
        "8.0 %",
        "1.0 %",
    ):
        assert figure in text
    assert "quiet host" in text
    assert "at most 1.0 %" in text


def test_too_many_false_alarms_are_told_with_what_to_do() -> None:
    """More than 5 % with the gate: rank by `full` only."""
    assert "rank by `full` only" in shown(rate=0.2)


def test_a_noisy_host_is_told_with_what_to_do() -> None:
    """The reason, and that nothing measured now is ranked."""
    text = shown(noisy=True, disturbed_blocks=7, disturbances=("9 threads want 2 cores",))
    assert "7 of 10 blocks were disturbed (9 threads want 2 cores)" in text
    assert "never ranked" in text
    assert "quiet host" not in text
