"""What the machine did meanwhile, and when that makes a turn worthless."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.device.telemetry import (
    Telemetry,
    TelemetrySample,
    block_telemetry,
    disturbed,
)
from harness.records.timing import Extent
from sandboxes.nvml import GpuState
from tests.fakes.nvml import OLD, WHOLE, install_fake_nvml

STAT = "cpu  2303256 972571 586028 2925953 28715 0 9101 41899 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"


HOST = TelemetrySample(0.0, cores=2, runnable=1, cpu_mhz=2300.0, steal_s=100.0, cpu_wait_s=10.0)
GPU = GpuState(1980, 3201, power_w=400.0, temperature_c=50, held_down_by=())


def host(**figures: Any) -> TelemetrySample:
    return replace(HOST, **figures)


def gpu(**figures: Any) -> TelemetrySample:
    processes = figures.pop("processes", 2)
    return replace(HOST, gpu=replace(GPU, **figures), gpu_processes=processes)


def test_the_kernels_files_are_read(tmp_path: Path) -> None:
    """Load, runnable threads, frequency, steal and pressure."""
    (tmp_path / "loadavg").write_text("1.41 0.18 0.60 3/94 23735\n")
    (tmp_path / "cpuinfo").write_text("cpu MHz\t\t: 2000.0\nflags : x\ncpu MHz\t\t: 3000.0\n")
    (tmp_path / "stat").write_text(STAT)
    (tmp_path / "pressure").mkdir()
    (tmp_path / "pressure" / "cpu").write_text("some avg10=0.14 avg60=0.69 avg300=1.26 total=7647187838\n")
    sample = Telemetry(None, tmp_path, clock=lambda: 5.0).sample()
    assert (sample.at_s, sample.runnable, sample.cpu_mhz) == (5.0, 3, 2500.0)
    assert (sample.steal_s, sample.cpu_wait_s) == (418.99, 7647.187838)
    assert sample.gpu is None


def test_a_kernel_that_says_nothing_gives_a_sample_of_unknowns(tmp_path: Path) -> None:
    """None, never 0."""
    sample = Telemetry(None, tmp_path / "none").sample()
    assert sample == TelemetrySample(sample.at_s, sample.cores)
    assert disturbed(sample, sample) is None


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ({"at_s": 1.0}, None),
        ({"at_s": 1.0, "runnable": 3}, "more threads than its 2 cores were runnable"),
        ({"at_s": 1.0, "steal_s": 100.04}, None),  # 4 % of a core
        ({"at_s": 1.0, "steal_s": 100.2}, "the hypervisor took time from it"),
        ({"at_s": 0.02, "steal_s": 100.01}, None),  # one tick
        ({"at_s": 1.0, "cpu_wait_s": 20.0}, None),  # the timed process may have caused it
        ({"at_s": 1.0, "cpu_mhz": 1000.0}, None),  # an idle core
    ],
)
def test_a_turn_is_disturbed_by_others_alone(after: dict[str, Any], reason: str | None) -> None:
    """Runnable threads beyond the cores, and steal; not what a timed process does by itself."""
    assert disturbed(host(), host(**after)) == reason


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ({}, None),
        ({"held_down_by": ("power cap",)}, None),
        ({"held_down_by": ("power cap", "hardware slowdown")}, "held down by: hardware slowdown"),
        ({"sm_mhz": 1800}, None),
        ({"sm_mhz": 1200}, "the SM clock fell from 1980 to 1200 MHz"),
        ({"sm_mhz": 1200, "held_down_by": ("power cap",)}, None),  # its own doing
        ({"sm_mhz": None, "held_down_by": None, "processes": None}, None),
        ({"processes": 3}, "3 processes use the GPU"),
    ],
)
def test_a_gpus_turn_is_disturbed_by_heat_others_and_falling_clocks(
    after: dict[str, Any], reason: str | None
) -> None:
    """A power cap is what heavy kernels run into by themselves."""
    found = disturbed(gpu(), gpu(**after))
    assert found is None if reason is None else reason in str(found)


def test_a_block_keeps_the_extremes_and_why_it_was_disturbed() -> None:
    """So much of its samples goes into the record."""
    turns = [
        (gpu(sm_mhz=1900, power_w=300.0), gpu(sm_mhz=1950, held_down_by=("power cap",))),
        (host(runnable=4), host(runnable=4, cpu_wait_s=11.0)),
        (host(runnable=4), host(runnable=4, steal_s=100.5, cpu_wait_s=12.0)),
    ]
    block = block_telemetry(3, turns, ["4 threads want 2 cores"])
    assert (block.block, block.disturbed) == (3, ("4 threads want 2 cores",))
    assert (block.runnable_most, block.steal_s, block.cpu_wait_s) == (4, 0.5, 2.0)
    assert block.sm_mhz == Extent(low=1900, high=1950)
    assert block.power_w == Extent(low=300, high=400)
    assert block.held_down_by == ("power cap",)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_a_gpu_is_looked_at_through_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks, power, temperature and processes; what an old card does not tell is None."""
    install_fake_nvml(monkeypatch, tmp_path)
    (tmp_path / "processes").write_text("1 1\n")
    (tmp_path / "reasons").write_text("96")
    telemetry = Telemetry(WHOLE)
    heat = ("software thermal slowdown", "hardware thermal slowdown")
    sample = telemetry.sample()
    assert (sample.gpu, sample.gpu_processes) == (GpuState(345, 3201, 123.456, 41, heat), 1)
    (tmp_path / "old_driver").touch()
    found = telemetry.sample().gpu
    assert found is not None and found.temperature_c == 42
    telemetry.close()
    telemetry = Telemetry(OLD)
    sample = telemetry.sample()
    assert (sample.gpu, sample.gpu_processes) == (GpuState(None, None, None, None, None), 0)
    telemetry.close()
