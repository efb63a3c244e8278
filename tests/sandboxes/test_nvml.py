"""NVIDIA's management library, by real calls into a compiled stand-in with three made-up GPUs."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pytest

from harness.errors import DeviceError
from sandboxes.nvml import GpuMemory, GpuProcess, MigInstance, NvmlError, open_nvml
from sandboxes.nvml_sensors import GpuMemoryCells, GpuSensors, memory_cells, sensors
from sandboxes.xid import Xid, XidWatch, faulted, watch_gpu
from tests.fakes.nvml import OLD, SLICED, SLICES, WHOLE, compile_nvml

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of the stand-in."""
    return str(compile_nvml(tmp_path_factory.mktemp("nvml")))


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that says how the GPUs are."""
    monkeypatch.setenv("LIFTBENCH_FAKE_NVML", str(tmp_path))
    return tmp_path


def test_a_machine_without_the_library_has_none() -> None:
    """No library, no error: that is a machine without a GPU."""
    assert open_nvml("libnvidia-ml-that-is-not-there.so.1") is None
    assert watch_gpu(WHOLE, "libnvidia-ml-that-is-not-there.so.1") is None


def test_a_library_without_a_driver_is_none(library: str, state: Path) -> None:
    """An image may hold the library on a machine that has no GPU."""
    (state / "driver_absent").touch()
    assert open_nvml(library) is None


def test_a_library_of_something_else_is_an_error(tmp_path: Path) -> None:
    """A file of that name without the functions is named, not taken for no GPU."""
    with pytest.raises(NvmlError, match="nvmlInit_v2 failed: the installed driver is too old"):
        open_nvml("libc.so.6")


def test_gpus_are_told_with_what_identifies_them(library: str, state: Path) -> None:
    """UUID, name, minor number, compute capability, and the MIG instances with theirs."""
    nvml = open_nvml(library)
    assert nvml is not None
    with nvml:
        whole, sliced, old = nvml.gpus()
        assert nvml.driver_version() == "580.95.05"
        assert nvml.cuda_version() == "13.0"
    assert (whole.index, whole.uuid, whole.minor, whole.mig) == (0, WHOLE, 0, False)
    assert (whole.name, whole.capability, whole.instances) == ("Made-up H200", (9, 0), ())
    assert (sliced.uuid, sliced.minor, sliced.mig) == (SLICED, 3, True)
    assert sliced.instances == (MigInstance(SLICES[0], 9, 0), MigInstance(SLICES[1], 11, 0))
    assert (old.uuid, old.mig, old.capability) == (OLD, None, (7, 5))


def test_memory_processes_and_clocks_of_one_gpu(library: str, state: Path) -> None:
    """Figures come in bytes and MHz; what a process does not tell is None."""
    (state / "used_bytes").write_text("700000000")
    (state / "processes").write_text("4321 1048576\n99 -1\n")
    nvml = open_nvml(library)
    assert nvml is not None
    with nvml:
        assert nvml.memory(WHOLE) == GpuMemory(total_bytes=150_000_000_000, used_bytes=700_000_000)
        assert nvml.processes(WHOLE) == [GpuProcess(4321, 1048576), GpuProcess(99, None)]
        clocks = nvml.clocks(WHOLE)
        assert (clocks.sm_mhz, clocks.memory_mhz, clocks.max_sm_mhz) == (345, 3201, 1980)
        assert clocks.held_down_by == ("power cap",)


def test_more_processes_than_expected_are_all_told(library: str, state: Path) -> None:
    """The list grows until all fit."""
    (state / "processes").write_text("".join(f"{pid} 1\n" for pid in range(1, 201)))
    nvml = open_nvml(library)
    assert nvml is not None
    with nvml:
        assert [p.pid for p in nvml.processes(WHOLE)] == list(range(1, 201))


def test_what_a_gpu_does_not_support_is_none(library: str, state: Path) -> None:
    """An old card has no clocks to tell and reports no Xids; neither is a failure."""
    nvml = open_nvml(library)
    assert nvml is not None
    with nvml:
        clocks = nvml.clocks(OLD)
        assert (clocks.sm_mhz, clocks.held_down_by) == (None, None)
        with pytest.raises(NvmlError, match="Not Supported"):
            XidWatch(nvml, OLD)
    assert watch_gpu(OLD, library) is None


def test_power_temperature_and_memory_cells_of_one_gpu(library: str, state: Path) -> None:
    """In W and C, by the newer call or by the one that older drivers have."""
    (state / "cells").write_text("1 0")
    nvml = open_nvml(library)
    assert nvml is not None
    with nvml:
        assert sensors(nvml, WHOLE) == GpuSensors(power_w=123.456, temperature_c=41)
        assert memory_cells(nvml, WHOLE) == GpuMemoryCells(
            pages_pending=None, rows_pending=True, remapping_failed=False
        )
        (state / "old_driver").touch()
        assert sensors(nvml, WHOLE).temperature_c == 42
        assert sensors(nvml, OLD) == GpuSensors(power_w=None, temperature_c=None)
        assert memory_cells(nvml, OLD) == GpuMemoryCells(
            pages_pending=True, rows_pending=None, remapping_failed=None
        )


def test_an_unknown_uuid_is_an_error(library: str, state: Path) -> None:
    """Asking of a GPU that is not there does not look like asking one that is well."""
    nvml = open_nvml(library)
    assert nvml is not None
    with nvml, pytest.raises(NvmlError, match="nvmlDeviceGetHandleByUUID failed: Not Found"):
        nvml.memory("GPU-of-another-machine")
    with pytest.raises(DeviceError, match="no GPU 'GPU-of-another-machine'"):
        watch_gpu("GPU-of-another-machine", library)


@pytest.mark.parametrize("name", ["0", WHOLE, SLICES[0]])
def test_a_gpu_is_watched_by_whatever_a_job_calls_it(library: str, state: Path, name: str) -> None:
    """By index, by UUID, and by a MIG instance on it."""
    watch = watch_gpu(name, library)
    assert watch is not None
    with watch:
        assert watch.take() == []


def test_a_watch_tells_what_came_after_it_began(library: str, state: Path) -> None:
    """Errors of an earlier job are not told, each later one exactly once."""
    events = state / "events"
    events.write_text("79\n")
    watch = watch_gpu(WHOLE, library)
    assert watch is not None
    with watch:
        assert watch.take() == []
        with events.open("a") as log:
            log.write("31\n45\n")
        assert watch.take() == [Xid(31), Xid(45)]
        assert watch.take() == []
    watch.close()


def test_a_watch_waits_for_a_late_report(library: str, state: Path) -> None:
    """The driver may report a fault a moment after the process has died of it."""

    def report() -> None:
        time.sleep(0.05)
        (state / "events").write_text("13\n")

    watch = watch_gpu(WHOLE, library)
    assert watch is not None
    late = threading.Thread(target=report)
    with watch:
        late.start()
        assert watch.take(timeout_s=30.0) == [Xid(13)]
    late.join()


@pytest.mark.parametrize("code", [13, 31, 43, 45])
def test_an_illegal_access_is_the_applications_fault(code: int) -> None:
    """The job is at fault, the GPU is not."""
    assert Xid(code).blame == "application"
    assert faulted([Xid(code)], WHOLE) is True


@pytest.mark.parametrize("code", [46, 48, 62, 64, 79, 94, 95, 109, 119, 120, 154, 999, 12345])
def test_a_sick_gpu_is_never_held_against_a_job(code: int) -> None:
    """A device error, or a code that nobody knows, is ours, whatever else was reported."""
    with pytest.raises(DeviceError, match=f"Xid {code} .*not scored.*reset"):
        faulted([Xid(31), Xid(code)], WHOLE)


def test_no_xid_is_no_fault() -> None:
    """Nothing reported, nothing to blame."""
    assert faulted([], WHOLE) is False
