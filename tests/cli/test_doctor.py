"""What `liftbench doctor` prints: the table of promises, and an A/A calibration."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from harness.cli.doctor import PromiseState, SandboxState, State, promise_table, timing_lines
from harness.records import Ratio
from harness.records.timing import Calibration, CalibrationPair, HandShake
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


def pair(truth: float, value: float, half: float = 0.01) -> CalibrationPair:
    ratio = Ratio(value=value, low=value * (1 - half), high=value * (1 + half), n=9)
    figures = {"bytes_moved": 1 << 20, "outside_us": 52.0, "uncertainty_us": 2.0}
    return CalibrationPair(workload="8_rows", truth=truth, ratio=ratio, clock="inside", **figures)


def shown(false_alarms: int = 0, **figures: Any) -> str:
    """What is printed of a calibration."""
    equal = [pair(1.0, 1.05 if i < false_alarms else 1.005) for i in range(30)]
    shake = {"bytes_moved": 1 << 20, "reveals": 20, "c05_us": 110.0, "median_us": 130.0, "p95_us": 180.0}
    usual: dict[str, Any] = {
        "task": "l1/softmax",
        "transport": "memfd",
        "sandbox": "local",
        "pairs": (*equal, *(pair(2.0, 1.98, half=0.03) for _ in range(30))),
        "hand_shake": (HandShake(lane="call", per_set_us=0.5, **shake),),
        "timed_share": 0.2,
        "blocks": 10,
        "disturbed_blocks": 0,
        "disturbances": (),
        "noisy": False,
        "wall_s": 60.0,
    }
    return "\n".join(timing_lines(Calibration(**{**usual, **figures})))


def test_what_the_docs_promise_is_shown() -> None:
    """The cost of an empty reveal, errors and intervals of known ratios, false alarms, the share in calls."""
    text = shown(false_alarms=1)
    for figure in (
        "1 MiB moved, call: empty reveal 130.0 us (95 %: 180.0), 0.50 us for each input set",
        "true ratio 1.00: 30 pairs, median error 0.5%, worst 5.0%, half-width of the interval 1.0%; "
        "false alarms: 1; 0 by the outside clock alone",
        "true ratio 2.00: 30 pairs, median error 1.0%, worst 1.0%, half-width of the interval 3.0%",
        "20.0% of the time was in timed calls",
        "quiet host: 0 of 10 blocks",
    ):
        assert figure in text
    assert "rank by `full` only" not in text
    assert "rank by `full` only" in shown(false_alarms=4)


def test_a_noisy_host_is_told_with_what_to_do() -> None:
    """The reason, and that nothing measured now is ranked."""
    text = shown(noisy=True, disturbed_blocks=7, disturbances=("9 threads want 2 cores",))
    assert "7 of 10 blocks were disturbed (9 threads want 2 cores)" in text
    assert "never ranked" in text and "quiet host" not in text
