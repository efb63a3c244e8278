"""What a fleet costs and yields (`make bench`): stages of a grade, and how well many graders are kept busy.

No figure is a GPU's: devices are emulated on the cores of this machine, or simulated by sleeping.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.errors import InfraError
from harness.fleet.host_process import HostProcess
from harness.fleet.messages import HostSpec, Order
from harness.fleet.opening import PoolSetup, open_pool
from harness.fleet.pool import GraderPool, Place
from harness.records import Project, ProjectFile
from harness.suite.catalogue import expert_project, load_task, select_tasks
from tests.fakes.overlays import TASKS, ZOO, overlaid
from tests.fleet.members import DRIVER, FakeMember, with_gpu

DEVICE_S = 0.1
"""Of a simulated grade; a real one takes seconds, and hides more."""
ROUNDS = 20
SAMPLES = 4
"""Per grader process."""


def _sleeps(order: Order) -> InfraError | None:
    time.sleep(DEVICE_S)


@pytest.mark.parametrize("graders", [1, 4, 8, 64])
def test_dispatch(benchmark: Any, graders: int) -> None:
    """Orders per second of simulated graders, and the share of their time in which they work."""
    loaded = load_task(TASKS / "t/scale")
    projects = [Project(files=(ProjectFile(path="x", text=str(n)),)) for n in range(graders * ROUNDS)]

    def opened(number: int) -> FakeMember:
        return FakeMember(with_gpu(f"GPU-{number}"), _sleeps)

    places = [Place(f"GPU {n}", partial(opened, n), at_once=1) for n in range(graders)]
    pool = GraderPool(places, DRIVER, lambda line: None)
    with closing(pool), ThreadPoolExecutor(2 * graders) as many:
        while len(pool._open_graders()) < graders:
            time.sleep(0.01)
        start = time.monotonic()
        benchmark.pedantic(lambda: list(many.map(lambda p: pool.grade(p, loaded), projects)), rounds=1)
        wall_s = time.monotonic() - start
    benchmark.extra_info["orders_per_s"] = len(projects) / wall_s
    benchmark.extra_info["busy_share"] = ROUNDS * DEVICE_S / wall_s


def _cpu_s(pid: int) -> float:
    """Of a grader process and of those that it started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _opened(spec: HostSpec, graders: int) -> PoolSetup:
    """Grader processes of this machine, all of them ready."""
    places = [Place(f"grader {n}", partial(HostProcess, spec), 1) for n in range(graders)]
    setup = open_pool(spec, lambda one: places, lambda line: None)
    while any(place.member is None for place in places):
        time.sleep(0.1)
    return setup


def _pids(setup: PoolSetup) -> list[int]:
    return [member.pid for place in setup.grader._places if isinstance(member := place.member, HostProcess)]


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> tuple[HostSpec, list[float]]:
    """Emulated GPUs with a cache of their own, and samples per hour of one of them."""
    cache = str(tmp_path_factory.mktemp("emulated"))
    return HostSpec(target="cuda", protocol="quick", sandbox="auto", cache=cache, timed=False), []


@pytest.mark.parametrize("graders", [1, 2, 4])
def test_scaling(benchmark: Any, emulated: tuple[HostSpec, list[float]], graders: int) -> None:
    """Samples per hour of real grader processes with emulated GPUs, builds and kernels cached. Each takes a
    core and more, so that efficiency is also given beside what the cores of this machine allow."""
    spec, rates = emulated
    loaded, project = load_task(TASKS / "t/scale"), overlaid(ZOO / "base_cuda", {})
    with closing(_opened(spec, graders)) as setup, ThreadPoolExecutor(graders) as many:
        assert setup.grader.grade(project, loaded).emulated is not None  # fills the cache
        before, start = sum(map(_cpu_s, _pids(setup))), time.monotonic()
        given = [project] * (SAMPLES * graders)
        benchmark.pedantic(lambda: list(many.map(lambda p: setup.grader.grade(p, loaded), given)), rounds=1)
        wall_s, cpu_s = time.monotonic() - start, sum(map(_cpu_s, _pids(setup))) - before
    rates.append(len(given) / wall_s * 3600)
    cores = len(os.sched_getaffinity(0))
    benchmark.extra_info |= {
        "samples_per_hour": rates[-1],
        "cpu_s_per_sample": cpu_s / len(given),
        "samples_per_core_hour": len(given) / cpu_s * 3600,
        "efficiency": rates[-1] / rates[0] / graders,
        "of_what_cores_allow": rates[-1] / rates[0] / min(graders, cores),
        "cores": cores,
        "cores_used": cpu_s / wall_s,
    }


def _timed(grade: Callable[..., Any], *words: Any) -> dict[str, float]:
    """Seconds of each stage."""
    marks: list[tuple[str, float]] = []
    grade(*words, observer=lambda stage: marks.append((stage, time.monotonic())))
    ends = [at for _, at in marks[1:]] + [time.monotonic()]
    return {stage: end - at for (stage, at), end in zip(marks, ends, strict=True)}


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_stages(benchmark: Any, tmp_path: Path, target: Any) -> None:
    """Seconds per stage of an expert project in a grader process, built and from the cache; samples per hour.

    `cuda` without a GPU ends with the build.
    """
    [loaded] = select_tasks(["l1/rms_norm"])
    project = expert_project(loaded.task)
    assert project is not None
    spec = HostSpec(target=target, protocol="quick", sandbox="auto", cache=str(tmp_path), emulate=False)
    stages, cpu_s = {}, {}
    with closing(_opened(spec, 1)) as setup:
        [pid] = _pids(setup)
        for name in ("uncached", "cached"):
            before = _cpu_s(pid)
            stages[name] = _timed(setup.grader.grade, project, loaded)
            cpu_s[name] = _cpu_s(pid) - before
        benchmark.pedantic(lambda: setup.grader.grade(project, loaded), rounds=1)
    benchmark.extra_info |= {
        "stages_s": stages,
        "samples_per_hour": {name: 3600 / sum(of.values()) for name, of in stages.items()},
        "cpu_s_per_sample": cpu_s,
        "samples_per_core_hour": {name: 3600 / used for name, used in cpu_s.items()},
    }
