"""Which GPUs a command uses, and a grader in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.builder.cache import BuildCache
from harness.cli.options import FleetOptions, GradingOptions
from harness.cli.serve import serve
from harness.errors import DeviceError, HarnessBug, UsageError
from harness.fleet.host_process import HostProcess, MemberLost, clean_environment
from harness.fleet.messages import HostSpec, Order, TaskFiles
from harness.fleet.opening import chosen_gpus, open_fleet, open_pool
from harness.fleet.pool import Place
from harness.fleet.ray_places import Cluster, with_gpu
from harness.outcome import Cause
from harness.records import BuildResult, Finding
from harness.suite.catalogue import load_task
from sandboxes.nvml import Gpu, MigInstance
from tests.fakes.nvml import SLICED, SLICES, WHOLE, install_fake_nvml
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


@pytest.mark.parametrize(
    ("mode", "said"),
    [({"mig": True}, "MIG mode.* -mig 0"), ({"compute_mode": "EXCLUSIVE_PROCESS"}, "compute mode EXCLUSIVE")],
)
def test_gpus_in_a_mode_that_rules_them_out_are_refused(mode: dict[str, Any], said: str) -> None:
    """By name, with what to do, and with the others."""
    closed = replace(GPUS[1], **mode)
    with pytest.raises(UsageError, match=f"GPU-1: .*{said}.*; or --gpus GPU-0$"):
        chosen_gpus("all", [GPUS[0], closed])
    assert chosen_gpus("GPU-0", [GPUS[0], closed]) == [GPUS[0]]


def test_the_gpu_of_an_actor_is_found_or_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never another one: not where Ray offers none, a slice of one, or one that is not there."""
    spec = HostSpec(target="cuda", protocol="quick", sandbox="auto", cache="")
    assert with_gpu(spec, "") == spec  # no driver
    install_fake_nvml(monkeypatch, tmp_path)
    assert with_gpu(spec, "0").gpu == WHOLE
    assert with_gpu(spec.model_copy(update={"target": "cpu"}), "").gpu is None
    for visible, why in [
        ("", "offers none"),
        (SLICES[0], "a part of"),
        (SLICED, "MIG mode"),
        ("9", "no GPU '9'"),
    ]:
        with pytest.raises(DeviceError, match=why):
            with_gpu(spec, visible)


def test_what_a_fleet_does_not_take_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Client, a cluster without a token, and projects without isolation, there and behind a service."""
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    spec = HostSpec(target="cpu", protocol="quick", sandbox="local", cache="")
    with pytest.raises(UsageError, match="a sandbox that isolates"):
        open_fleet("local", spec, print)
    with pytest.raises(UsageError, match="a sandbox that isolates"):
        serve(grading=GradingOptions(target="cpu", sandbox="local"), several=FleetOptions())
    for address, why in [
        ("ray://head:10001", "Ray Client is not supported"),
        ("head:6379", "RAY_AUTH_MODE=token"),
    ]:
        with pytest.raises(UsageError, match=why):
            Cluster.connect(address, print)


def test_a_task_that_changed_on_its_way_is_not_graded(tmp_path: Path) -> None:
    """Its digest is compared with that of the files that arrived."""
    sent = TaskFiles.of(load_task(TASKS / "t/scale"))
    assert sent.load(tmp_path).task.digest == sent.digest
    changed = sent.files | {"reference.py": f"{sent.files['reference.py']}# more"}
    with pytest.raises(HarnessBug, match="t/scale changed on its way"):
        sent.model_copy(update={"files": changed}).load(tmp_path)


@pytest.mark.slow  # imports torch
def test_a_grader_process_is_killed_no_sooner_than_others() -> None:
    """Ray marks its workers for the kernel to kill first when memory is short; graders undo that."""
    mine = Path("/proc/self/oom_score_adj")
    marked = f"open({str(mine)!r}, 'w').write('700'); host._as_usual(); print(open({str(mine)!r}).read())"
    command = [sys.executable, "-c", f"from harness.fleet import host; {marked}"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "0"


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
