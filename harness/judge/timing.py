"""The timing stage: how fast is a correct project against its references, over all timed workloads?"""

from __future__ import annotations

import ctypes

import torch

from harness.device.machine import pinned
from harness.judge.candidates import Candidates
from harness.judge.measurement import Measurement, Session, ratio
from harness.judge.problem import Problem
from harness.judge.worker_client import Failed
from harness.records import Finding, Ratio, TimingResult, WorkloadTiming

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3


def settle_judge() -> None:
    """Have malloc reuse large blocks, whose page faults would take most of the judge's time, and have torch
    use one thread: others would spin for a while on a candidate's core."""
    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    libc.mallopt(_M_MMAP_THRESHOLD, 32 << 20)  # its maximum
    libc.mallopt(_M_TRIM_THRESHOLD, 1 << 30)


def time_project(candidates: Candidates, timed: list[Problem], session: Session) -> TimingResult:
    """Time every timed workload, until the first failure; the caller holds the machine's lock. Kills the
    student's process."""
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
                measurements.append(Measurement(problem, candidates, session))
                measurements[-1].measure()
            candidates.dismiss()
            all_measured = [measurement.finish() for measurement in measurements]
        except Failed as failure:
            finding, all_measured = failure.finding, []
        finally:
            candidates.dismiss()
    for measured in all_measured:
        results.append(measured.timing)
        ratios.append(measured.logs)
        flags |= {*measured.flags, *measured.timing.student.flags}
        flags |= set(measured.timing.physics.flags if measured.timing.physics else ())
        notes += [note for note in measured.notes if note not in notes]
    nothing = Ratio(value=1.0, low=None, high=None, n=0)
    return TimingResult(
        workloads=tuple(results),
        speedup=nothing if finding else ratio(_paired(ratios), session.numbers.unit),
        flags=tuple(sorted(flags)),
        notes=tuple(notes),
        transport=session.transport.name,
        transport_facts=session.transport.facts(),
        finding=finding,
    )


def _paired(ratios: list[list[float]]) -> list[float]:
    """One mean log ratio per block over the workloads; blocks that some workload lacks are left out."""
    length = min(len(r) for r in ratios)
    return [sum(r[i] for r in ratios) / len(ratios) for i in range(length)]
