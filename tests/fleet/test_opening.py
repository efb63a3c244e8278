"""Which GPUs a command uses, and a grader in a process of its own."""

from __future__ import annotations

import os
import signal
import time
from functools import partial
from pathlib import Path

import pytest

from harness.builder.cache import BuildCache
from harness.errors import HarnessBug, UsageError
from harness.fleet.host_process import HostProcess, MemberLost, clean_environment
from harness.fleet.messages import HostSpec, Order, TaskFiles
from harness.fleet.opening import chosen_gpus, open_pool
from harness.fleet.pool import Place
from harness.outcome import Cause
from harness.records import BuildResult, Finding
from harness.suite.catalogue import load_task
from sandboxes.nvml import Gpu, MigInstance
from tests.fakes.overlays import TASKS, zoo_project
from tests.fakes.processes import processes_naming

GPUS = [Gpu(n, f"GPU-{n}", "NVIDIA H100", n, (9, 0), False) for n in range(2)]
OTHER = Gpu(2, "GPU-2", "NVIDIA H200", 2, (9, 0), True, (MigInstance("MIG-1", 1, 0),))


@pytest.mark.parametrize(
    ("wanted", "uuids"), [("all", ["GPU-0", "GPU-1"]), ("1", ["GPU-0"]), ("GPU-1,GPU-0", ["GPU-1", "GPU-0"])]
)
def test_gpus_are_chosen_by_number_or_uuid(wanted: str, uuids: list[str]) -> None:
    """All of them, the first N, or those that are named."""
    assert [gpu.uuid for gpu in chosen_gpus(wanted, GPUS)] == uuids


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ("3", "this machine has 2"),
        ("0", "this machine has 2"),
        ("GPU-7", "known: GPU-0, GPU-1"),
        ("GPU-0,GPU-0", "each once"),
    ],
)
def test_wrong_names_of_gpus_are_refused(wanted: str, said: str) -> None:
    """With what there is."""
    with pytest.raises(UsageError, match=said):
        chosen_gpus(wanted, GPUS)


def test_two_models_and_parts_of_gpus_are_refused_by_name() -> None:
    """One run has one model of GPU; the message gives an option for each. A MIG slice is never timed."""
    with pytest.raises(UsageError, match=r"NVIDIA H100: --gpus GPU-0,GPU-1; NVIDIA H200: --gpus GPU-2"):
        chosen_gpus("all", [*GPUS, OTHER])
    with pytest.raises(UsageError, match="a part of a GPU cannot be timed"):
        chosen_gpus("MIG-1", [*GPUS, OTHER])


def test_no_key_reaches_a_grader_process() -> None:
    """API keys and what a scheduler sets for its workers stay behind."""
    given = {"OPENAI_API_KEY": "1", "HF_TOKEN": "1", "OMP_NUM_THREADS": "1", "PATH": "/bin"}
    assert clean_environment(given, CUDA_VISIBLE_DEVICES="GPU-0") == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "GPU-0",
    }


def test_a_build_travels_between_caches(tmp_path: Path) -> None:
    """A packed entry is unpacked under its own key only, and only whole."""
    one, two = BuildCache(tmp_path / "one"), BuildCache(tmp_path / "two")
    result = BuildResult(
        ok=True, finding=None, backend="cpu", key="ab" * 32, cache_hit=False, wall_s=1.0, compiler_s=1.0
    )
    with one.lock(result.key):
        one.store(result, {"build/x/__init__.py": b"ops = None\n"})
    packed = one.packed(result.key)
    assert packed is not None
    two.unpack(result.key, packed)
    entry = two.load(result.key)
    assert entry is not None
    assert (entry.path / "build/x/__init__.py").read_bytes() == b"ops = None\n"
    with pytest.raises(HarnessBug, match="another project"):
        two.unpack("cd" * 32, packed)
    with pytest.raises(HarnessBug, match="cannot be unpacked"):
        BuildCache(tmp_path / "three").unpack(result.key, packed[: len(packed) // 2])


@pytest.mark.slow
def test_a_grader_process_grades_and_leaves_nothing(tmp_path: Path) -> None:
    """Its grade names this node; killed in the middle it is replaced; nothing of it is left."""
    spec = HostSpec(target="cpu", protocol="quick", sandbox="auto,local", cache=str(tmp_path), timed=False)
    said: list[str] = []
    setup = open_pool(spec, lambda one: [Place("here", partial(HostProcess, one), 2)], said.append)
    loaded = load_task(TASKS / "t/scale")
    try:
        grade = setup.grader.grade(zoo_project("correct"), loaded, log=tmp_path / "log")
        assert (grade.verdict, grade.place and grade.place.node) == ("correct", os.uname().nodename)
        assert (tmp_path / "log").read_text()
        missing = Finding(cause=Cause.NO_FILES, message="none")
        assert setup.grader.no_project(missing, loaded).verdict == "no_project"
        member = setup.grader._places[0].member
        assert isinstance(member, HostProcess)
        os.kill(member.pid, signal.SIGKILL)
        order = Order(number=1, what="no_project", task=TaskFiles.of(loaded), finding=missing)
        with pytest.raises(MemberLost, match=r"signal 9"):
            while True:
                member.ask(order, print)
        assert setup.grader.grade(zoo_project("wrong_result"), loaded).verdict == "wrong_result"
    finally:
        setup.close()
    give_up = time.monotonic() + 20
    while (left := processes_naming(str(tmp_path))) and time.monotonic() < give_up:
        time.sleep(0.1)
    assert not left
