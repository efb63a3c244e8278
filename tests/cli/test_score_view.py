"""The lines under a timing."""

from __future__ import annotations

from harness.cli.card import score_lines
from harness.records import ContenderTiming, Lane, Ratio, Secondary, Spread, TimingResult, WorkloadTiming
from harness.records.timing import BlockTelemetry, Extent


def contender(name: str) -> ContenderTiming:
    """With one lane."""
    spread = Spread(n=8, mean_us=9.0, median_us=9.0, q1_us=9.0, q3_us=9.0)
    lane = Lane(
        name="call", calls=8, inside=spread, outside_us=9.0, constant_us=1.0, uncertainty_us=2.0, matched=True
    )
    return ContenderTiming(name=name, lanes=(lane,), lane="call", score_us=9.0, latency_us=30.0)


def timing() -> TimingResult:
    """One workload."""
    speedup = Ratio(value=2.0, low=1.9, high=2.1, n=5)
    workload = WorkloadTiming(
        workload="rows",
        dtype="float16",
        student=contender("student"),
        references=(contender("eager"),),
        speedup=speedup,
        bytes_moved=1,
    )
    return TimingResult(workloads=(workload,), speedup=speedup)


def block(number: int, **changes: object) -> BlockTelemetry:
    """One block of which nothing is known but what is given."""
    nothing = {"disturbed": (), "runnable_most": None, "steal_s": None, "cpu_wait_s": None, "cpu_mhz": None}
    return BlockTelemetry.model_validate({"block": number, **nothing, **changes})


def lines_of(result: TimingResult, **changes: object) -> list[str]:
    """With these changes to its first workload."""
    first = result.workloads[0].model_copy(update=changes)
    return score_lines(result.model_copy(update={"workloads": (first,)}))


def test_transport_and_notes_are_told() -> None:
    """How memory was shared, and what could not be measured, stand under the figures."""
    result = timing().model_copy(
        update={"transport": "cuda-ipc", "transport_facts": {"why": "refused"}, "notes": ("no compiler",)}
    )
    lines = score_lines(result)
    assert lines[0] == "memory shared by cuda-ipc (why refused)"
    assert lines[-1] == "note: no compiler"


def test_conditions_are_told() -> None:
    """Disturbed blocks, stolen time and the extents of the GPU's sensors over all blocks."""
    blocks = (
        block(0, sm_mhz=Extent(low=1700, high=1980), held_down_by=("power cap",), steal_s=0.02),
        block(1, sm_mhz=Extent(low=1650, high=1900), disturbed=("a neighbour",), steal_s=0.01),
    )
    told = lines_of(timing(), telemetry=blocks)[1]
    assert told.endswith(
        "2 blocks, 1 of them disturbed, 0.03 s taken by the hypervisor, SM clock 1650 to 1980 MHz, "
        "clocks held down by power cap"
    )
    assert lines_of(timing(), telemetry=(block(0),))[1].endswith(": 1 blocks")


def test_secondary_figures_are_the_process_s_own_account() -> None:
    """Graph, queued and warm figures are named as claims."""
    result = timing()
    student = result.workloads[0].student.model_copy(
        update={"secondary": (Secondary(mode="graph", claimed_us=3.14, calls=64),)}
    )
    assert "student by its own account, never ranked: graph 3.1 us" in lines_of(result, student=student)[-1]
