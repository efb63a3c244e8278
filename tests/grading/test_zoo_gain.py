"""The table of what a forger can still gain: its attacks and its lines, without grading."""

from __future__ import annotations

from harness.outcome import Cause, Stage
from harness.records import ContenderTiming, Finding, Grade, Lane, Ratio, Spread, TimingResult, WorkloadTiming
from harness.suite.catalogue import read_project
from tests.fakes.overlays import ZOO
from tools.zoo.gain import KERNEL, PACKAGE, SIZES, Size, attacks, claims, line, skipping


def graded(score_us: float, speedup: float, cause: Cause = Cause.PASSED) -> Grade:
    """A timed grade, as far as the table looks."""
    lane = Lane(
        name="batch",
        calls=40,
        inside=Spread(n=40, mean_us=score_us, median_us=score_us, q1_us=score_us, q3_us=score_us),
        outside_us=score_us,
        constant_us=1.0,
        uncertainty_us=2.5,
        matched=True,
    )
    student = ContenderTiming(name="student", lanes=(lane,), lane="batch", score_us=score_us, latency_us=90.0)
    ratio = Ratio(value=speedup, low=None, high=None, n=5)
    workload = WorkloadTiming(
        workload="only", dtype="float32", student=student, references=(), speedup=ratio, bytes_moved=8
    )
    finding = Finding(cause=cause, message="said")
    return Grade.model_construct(
        verdict=finding.verdict,
        finding=finding,
        stage=Stage.TIME,
        timing=TimingResult(workloads=(workload,), speedup=ratio, flags=("outside_clock",)),
    )


def test_gain_is_the_ratio_of_scores() -> None:
    """A line shows score, a and u as shares, gain and bound; without a correct grade there is no score."""
    shown = line(Size(8, 4), "claims x0.5", graded(20.0, 3.0), graded(40.0, 2.0))
    assert shown == "| 8 x 4 | claims x0.5 | correct | 20.0 | 5.0 | 12 | x1.50 | x1.12 | outside_clock |"
    shown = line(Size(8, 4), "claims x0", graded(1e-3, 1e6, Cause.CLOCK), graded(40.0, 2.0))
    assert shown == "| 8 x 4 | claims x0 | cheated: clock | | | | none | | |"


def test_attacks_change_files_that_the_bases_have() -> None:
    """Every attack replaces files of every base that it is laid over, and claims are scaled as named."""
    for size in SIZES:
        paths = {file.path for file in read_project(ZOO / size.base).files}
        for attack in attacks():
            if attack.any_kernel or size.base == "base":
                assert set(attack.files) <= paths
    assert claims(0.9).files[PACKAGE].count("* 0.9)") == 2
    assert all(KERNEL not in attack.files for attack in attacks() if attack.any_kernel)
    assert "one in 50: x1.02, missed 0.36" in skipping(50)
