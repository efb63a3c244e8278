"""Which CPUs the graders of several GPUs get."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.device.machine import cores_of_gpu


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Eight CPUs: four cores with two threads each, n and n + 4."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def test_judge_and_workers_have_physical_cores_of_their_own(topology: Path) -> None:
    """One GPU of a machine with four cores gets the last two; builds get the others, siblings included."""
    cores = cores_of_gpu(0, 1, range(8), topology)
    assert cores == ({2}, {3}, {0, 1, 4, 5})


def test_gpus_share_where_there_are_too_few_cores(topology: Path) -> None:
    """Two GPUs would leave no core for builds, so nothing is set aside."""
    assert cores_of_gpu(0, 2, range(8), topology).others == set(range(8))
    assert cores_of_gpu(1, 2, range(8), topology) == cores_of_gpu(0, 2, range(8), topology)


def test_gpus_get_different_cores(topology: Path) -> None:
    """Three GPUs of a machine with eight cores without threads share no CPU."""
    alone = topology / "none"
    taken = [cores_of_gpu(index, 3, range(8), alone) for index in range(3)]
    used = [cpu for cores in taken for cpu in (*(cores.judge or ()), *(cores.workers or ()))]
    assert sorted(used) == [2, 3, 4, 5, 6, 7]
    assert {cores.others for cores in taken} == {frozenset({0, 1})}
