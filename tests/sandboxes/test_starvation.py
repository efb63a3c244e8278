"""Who had the cores while a job could have run: itself, nobody, or others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.job import Job, Limits
from sandboxes.local import LocalBackend
from sandboxes.pool import SandboxPool
from sandboxes.starvation import Sample, Starvation, starved_s

SECOND = 1.0


def second(
    *, cores: int = 2, ran: float, waited: float, others: float = 0.0, stolen: float = 0.0
) -> tuple[Sample, Sample]:
    """A second of `cores` cores in which the job's tasks ran and waited so long, and others ran so long."""
    idle = cores * SECOND - ran - others - stolen
    before = Sample(cores, 5.0, 5.0, 5.0, 5.0, {1: 5.0})
    after = Sample(cores, 5.0 + ran + others, 5.0 + idle, 5.0 + stolen, 5.0 + ran, {1: 5.0 + waited})
    return before, after


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"ran": 0.0, "waited": 0.0}, 0.0),  # it sleeps
        ({"ran": 0.0, "waited": 0.0, "others": 2.0}, 0.0),  # it sleeps on a busy machine
        ({"ran": 1.0, "waited": 0.0, "others": 1.0}, 0.0),  # it has what it wants
        ({"ran": 1.0, "waited": 31.0}, 0.0),  # 32 tasks on one core, though the other one is idle
        ({"ran": 0.3, "waited": 0.7, "others": 1.7}, 0.7),  # one task, and others on both cores
        ({"ran": 0.6, "waited": 9.4, "others": 1.4}, 0.7),  # ten: two could have run
        ({"cores": 1, "ran": 0.4, "waited": 0.0, "stolen": 0.6}, 0.6),  # by another virtual machine
        ({"ran": 0.0, "waited": 0.0, "stolen": 0.6}, 0.0),  # not from somebody who sleeps
        ({"cores": 16, "ran": 1.0, "waited": 15.0, "others": 7.0}, 7 / 16),  # on one core of 16, 8 idle
    ],
)
def test_only_what_others_had_counts(what: dict[str, float], expected: float) -> None:
    """Sleeping, competing with itself and crowding on one core are the job's own doing."""
    assert starved_s(*second(**what)) == pytest.approx(expected)  # type: ignore[arg-type]


def fake_proc(folder: Path, *, waited_ns: int, nice: int = 0, policy: int = 0, ticks: int = 0) -> Path:
    """A /proc with us, one process of a job (77), and two cores."""
    for pid, value, kind in ((os.getpid(), 0, 0), (77, nice, policy)):
        fields = ["S", *["0"] * 49]
        fields[11], fields[16], fields[38] = str(ticks), str(value), str(kind)
        places = [folder / f"{pid}", folder / f"{pid}/task/{pid}", folder / f"self/task/{pid}"]
        for place in places:
            place.mkdir(parents=True, exist_ok=True)
            (place / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
            (place / "schedstat").write_text(f"5 {waited_ns} 1\n")
    (folder / "self/schedstat").write_text("0 0 0\n")
    busy = waited_ns // 10_000_000
    (folder / "stat").write_text(
        f"cpu 9 9 9 9 9 9 9 9 0 0\ncpu0 {busy} 0 0 0 0 0 0 0 0 0\ncpu7 0 0 0 9 0 0 0 0 0 0\n"
    )
    return folder


@pytest.mark.parametrize(("nice", "policy", "counts"), [(0, 0, True), (10, 0, False), (0, 5, False)])
def test_the_kernels_accounts_are_read(tmp_path: Path, nice: int, policy: int, counts: bool) -> None:
    """Waiting is that of tasks with our priority: who gives way to all others has itself to blame."""
    starvation = Starvation({0}, fake_proc(tmp_path, waited_ns=0, nice=nice, policy=policy))
    starvation.poll([77, 78], 1.0)
    fake_proc(tmp_path, waited_ns=3_000_000_000, nice=nice, policy=policy)
    starvation.poll([77, 78], 1.0)
    assert starvation.seconds == pytest.approx(3.0 if counts else 0.0)


def test_without_a_control_group_the_processes_are_asked(tmp_path: Path) -> None:
    """What they and the children that they waited for have run is no time of others'."""
    starvation = Starvation({0}, fake_proc(tmp_path, waited_ns=0))
    starvation.poll([77], None)
    fake_proc(tmp_path, waited_ns=3_000_000_000, ticks=3 * os.sysconf("SC_CLK_TCK"))
    starvation.poll([77], None)
    assert starvation.seconds == 0.0


@pytest.mark.slow
def test_a_job_among_hogs_is_starved() -> None:
    """Six programs of others on its only core leave it a seventh; one that sleeps misses nothing."""
    core = min(os.sched_getaffinity(0))
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    hogs = [subprocess.Popen(spin, start_new_session=True) for _ in range(6)]
    sandbox = SandboxPool(LocalBackend())
    try:
        for hog in hogs:
            os.sched_setaffinity(hog.pid, {core})
        for code, starved in (("while True: pass", True), ("import time; time.sleep(60)", False)):
            argv = [sys.executable, "-I", "-S", "-c", code]
            job = Job(role="build", argv=argv, limits=Limits(wall_s=6.0), cpus=frozenset({core}))
            process = sandbox.start(job)
            facts = process.wait()
            process.close()
            assert facts is not None and facts.status == "wall_timeout" and facts.starved_s is not None
            assert (facts.starved_s > facts.wall_s / 2) == starved, facts
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
        sandbox.close()
