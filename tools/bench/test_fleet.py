"""What a fleet costs and yields (`make bench`): stages of a grade, and how well many graders are kept busy.

Devices are simulated by sleeping, so that scaling can be measured on few cores: no figure is a GPU's.
"""

from __future__ import annotations

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
from harness.fleet.opening import open_pool
from harness.fleet.pool import GraderPool, Place
from harness.records import Project, ProjectFile
from harness.suite.catalogue import expert_project, load_task, select_tasks
from tests.fakes.overlays import TASKS
from tests.fleet.members import DRIVER, FakeMember, with_gpu

DEVICE_S = 0.1
"""Of a simulated grade; a real one takes seconds, and hides more."""
ROUNDS = 20


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
    setup = open_pool(spec, lambda one: [Place("here", partial(HostProcess, one), 1)], lambda line: None)
    with closing(setup):
        stages = {"uncached": _timed(setup.grader.grade, project, loaded)}
        stages["cached"] = benchmark.pedantic(lambda: _timed(setup.grader.grade, project, loaded), rounds=1)
    benchmark.extra_info["stages_s"] = stages
    benchmark.extra_info["samples_per_hour"] = {k: 3600 / sum(v.values()) for k, v in stages.items()}
