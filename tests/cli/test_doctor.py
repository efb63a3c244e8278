"""What `liftbench doctor` prints: the table of promises, and an A/A calibration."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from harness.cli.doctor import PromiseState, SandboxState, State, promise_table, timing_lines
from harness.records import Ratio
from harness.records.timing import Calibration, FalseAlarms, HandShake, SizeFigures
from sandboxes.registry import PROMISES


def _state(name: str, state: State, **others: State) -> SandboxState:
    rows = tuple(
        PromiseState(promise=one, state=others.get(one, state), detail="refused") for one in PROMISES
    )
    return SandboxState(name=name, unavailable=None, promises=rows, seconds=0.5)


@pytest.mark.parametrize(
    ("state", "cell"),
    [("held", "held"), ("held, not promised", "(held)"), ("open", "open"), ("broken", "BROKEN")],
)
def test_every_state_has_a_cell(state: State, cell: str) -> None:
    """Each promise is one row; a backend that could not be probed has dashes only."""
    absent = SandboxState(name="docker", unavailable="no engine answers")
    sink = io.StringIO()
    Console(file=sink, width=140).print(promise_table((absent, _state("local", state))))
    head, *rows = sink.getvalue().splitlines()
    assert head.split() == ["promise", "docker", "local"]
    assert [row.split()[-2:] for row in rows] == [["-", cell]] * len(PROMISES)


def test_the_summary_names_broken_promises() -> None:
    """A backend that breaks a promise is refused, and the promise is named."""
    assert SandboxState(name="docker", unavailable="no engine answers").summary is None
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
    alarms = FalseAlarms(protocol="quick", clock="inside", comparisons=2000, rate=0.08, rate_with_gate=rate)
    usual: dict[str, Any] = {
        "task": "l1/softmax",
        "transport": "memfd",
        "sandbox": "local",
        "processes": 4,
        "sizes": (SIZE,),
        "false_alarms": (alarms,),
        "blocks": 10,
        "disturbed_blocks": 0,
        "disturbances": (),
        "noisy": False,
        "wall_s": 60.0,
    }
    return "\n".join(timing_lines(Calibration(**{**usual, **figures})))


def test_what_the_docs_promise_is_shown() -> None:
    """The cost of an empty reveal, u of each size, equal processes with their interval, false alarms."""
    text = shown()
    for figure in (
        "1 MiB moved: empty reveal 130.0 us",
        "u 6.0 us (12%): over 5 %, so no claim is used",
        "1.001 (0.990, 1.012) by own clocks, 0.998 (n/a) by the outside clock",
        "false alarm in 1.0% of 2,000 comparisons",
        "quiet host: 0 of 10 blocks",
    ):
        assert figure in text
    assert "rank by `full` only" in shown(rate=0.2)


def test_a_noisy_host_is_told_with_what_to_do() -> None:
    """The reason, and that nothing measured now is ranked."""
    text = shown(noisy=True, disturbed_blocks=7, disturbances=("9 threads want 2 cores",))
    assert "7 of 10 blocks were disturbed (9 threads want 2 cores)" in text
    assert "never ranked" in text and "quiet host" not in text
