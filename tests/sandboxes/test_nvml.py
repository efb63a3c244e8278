"""NVML by real calls of pynvml into a compiled fake library with three GPUs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import DeviceError
from sandboxes.gpu import watch_gpu
from sandboxes.nvml import (
    GpuMemory,
    GpuState,
    MigInstance,
    Nvml,
    NvmlError,
    Xid,
    XidWatch,
    faulted,
    open_nvml,
)
from tests.fakes.nvml import OLD, SLICED, SLICES, WHOLE, install_fake_nvml


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that describes the fake GPUs."""
    install_fake_nvml(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def nvml(state: Path) -> Iterator[Nvml]:
    """The open library."""
    opened = open_nvml()
    assert opened is not None
    with opened:
        yield opened


def test_no_driver_is_no_error(state: Path) -> None:
    """A machine without a GPU may have the library."""
    (state / "driver_absent").touch()
    assert open_nvml() is None
    assert watch_gpu(WHOLE) is None


def test_gpus_and_mig_instances(nvml: Nvml) -> None:
    """UUID, name, minor number, compute capability and MIG mode of each."""
    whole, sliced, old = nvml.gpus()
    assert nvml.driver_version() == "580.95.05"
    assert (whole.index, whole.uuid, whole.minor, whole.mig) == (0, WHOLE, 0, False)
    assert (whole.name, whole.capability, whole.instances) == ("Made-up H200", (9, 0), ())
    assert (sliced.uuid, sliced.minor, sliced.mig) == (SLICED, 3, True)
    assert sliced.instances == (MigInstance(SLICES[0], 9, 0), MigInstance(SLICES[1], 11, 0))
    assert (old.uuid, old.mig, old.capability) == (OLD, None, (7, 5))


def test_memory_processes_and_state(nvml: Nvml, state: Path) -> None:
    """In bytes, MHz, W and C; older drivers have another call for the temperature."""
    (state / "used_bytes").write_text("700000000")
    (state / "processes").write_text("".join(f"{pid} {pid - 2}\n" for pid in range(1, 201)))
    (state / "cells").write_text("1 0")
    assert nvml.memory(WHOLE) == GpuMemory(total_bytes=150_000_000_000, used_bytes=700_000_000)
    assert nvml.processes(WHOLE) == frozenset(range(1, 201))
    assert nvml.state(WHOLE) == GpuState(
        345, 3201, power_w=123.456, temperature_c=41, held_down_by=("power cap",)
    )
    (state / "old_driver").touch()
    assert nvml.state(WHOLE).temperature_c == 42


def test_failed_memory(nvml: Nvml, state: Path) -> None:
    """Rows that wait for a reset, and rows that none is left to replace."""
    for cells, failed in (("0 0", None), ("1 0", "reset needed"), ("1 1", "no spares")):
        (state / "cells").write_text(cells)
        assert nvml.failed_memory(WHOLE) == failed


def test_what_a_gpu_does_not_support_is_none(nvml: Nvml) -> None:
    """An old card has no clocks, sensors or Xids to report."""
    assert nvml.state(OLD) == GpuState(None, None, None, None, None)
    with pytest.raises(NvmlError, match="Not Supported"):
        XidWatch(nvml, OLD)
    assert watch_gpu(OLD) is None


def test_a_watch_reports_later_xids_once(state: Path) -> None:
    """Errors of earlier jobs are left out; the driver may report one after the process has died."""
    events = state / "events"
    events.write_text("79\n")

    def report() -> None:
        time.sleep(0.05)
        with events.open("a") as log:
            log.write("13\n")

    watch = watch_gpu(WHOLE)
    assert watch is not None
    with watch:
        assert watch.take() == []
        with events.open("a") as log:
            log.write("31\n45\n")
        assert watch.take() == [Xid(31), Xid(45)]
        assert watch.take() == []
        late = threading.Thread(target=report)
        late.start()
        assert watch.take(timeout_s=30.0) == [Xid(13)]
        late.join()
    watch.close()


def test_xids_of_the_application_and_of_the_device() -> None:
    """A device error or an unknown code is never held against a job, whatever else was reported."""
    assert faulted([], WHOLE) is False
    for code in (13, 31, 43, 45):
        assert faulted([Xid(code)], WHOLE) is True
    for code in (46, 48, 62, 64, 79, 94, 95, 109, 119, 120, 154, 999, 12345):
        with pytest.raises(DeviceError, match=f"Xid {code} .*not scored.*reset"):
            faulted([Xid(31), Xid(code)], WHOLE)
