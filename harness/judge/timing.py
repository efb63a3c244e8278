"""The time stage: how fast is a correct project against its references, over all timed workloads?

The first failure ends it, and then there is no speedup.
"""

from __future__ import annotations

from harness.device.conditions import pinned, settle_judge
from harness.judge.candidates import Candidates
from harness.judge.measurement import Measurement, Session, ratio
from harness.judge.problem import Problem
from harness.judge.worker_client import Failed
from harness.records import Finding, Ratio, TimingResult, WorkloadTiming


def time_project(contenders: Candidates, timed: list[Problem], session: Session) -> TimingResult:
    """Time every timed workload; the caller holds the machine's lock. Ends the student's process."""
    results: list[WorkloadTiming] = []
    ratios: list[list[float]] = []
    flags: set[str] = set()
    notes: list[str] = []
    settle_judge()
    finding: Finding | None = None
    measurements: list[Measurement] = []
    with pinned(session.judge_cpus):
        try:
            for problem in timed:
                measurements.append(Measurement(problem, contenders, session))
                measurements[-1].measure()
            contenders.dismiss()
            all_measured = [measurement.finish() for measurement in measurements]
        except Failed as failure:
            finding, all_measured = failure.finding, []
        finally:
            contenders.dismiss()
        for measured in all_measured:
            results.append(measured.timing)
            ratios.append(measured.logs)
            flags |= {*measured.flags, *measured.timing.student.flags}
            flags |= set(measured.timing.physics.flags if measured.timing.physics else ())
            notes += [note for note in measured.notes if note not in notes]
    return TimingResult(
        workloads=tuple(results),
        speedup=Ratio(value=1.0, low=None, high=None, n=0)
        if finding
        else ratio(_paired(ratios), session.numbers.unit),
        flags=tuple(sorted(flags)),
        notes=tuple(notes),
        transport=session.transport.name,
        transport_facts=session.transport.facts(),
        finding=finding,
    )


def _paired(ratios: list[list[float]]) -> list[float]:
    """One mean log ratio per block over the workloads; blocks that not all have are left out."""
    length = min(len(r) for r in ratios)
    return [sum(r[i] for r in ratios) / len(ratios) for i in range(length)]
