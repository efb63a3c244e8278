"""Is the device well, and whose fault is it when it is not?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.device.health import DeviceBusy, GpuHealth, HealthGuard, HostHealth, KnownRun
from harness.errors import DeviceError, DeviceLost, SandboxError
from harness.outcome import Cause, Verdict
from harness.records import Finding, Grade
from tests.fakes.nvml import WHOLE, install_fake_nvml
from tests.fakes.trials import grade

NEEDS_GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")


@dataclass
class Script:
    checks: list[Exception | None]
    asked: int = 0

    def check(self) -> None:
        self.asked += 1
        found = self.checks.pop(0) if self.checks else None
        if found is not None:
            raise found


def crashed() -> Grade:
    return grade(Cause.SIGNAL)


def lost_within() -> Grade:
    raise DeviceError("Xid 79")


@pytest.mark.parametrize(
    ("cause", "checks"),
    [(Cause.WRONG_VALUES, 1), (Cause.SIGNAL, 2), (Cause.WALL_TIMEOUT, 2), (Cause.OP_RAISED, 2)],
)
def test_a_healthy_device_is_checked_again_after_a_crash_or_a_hang(cause: Cause, checks: int) -> None:
    """And leaves the verdict as it is."""
    health = Script([])
    assert HealthGuard(health).watch("p", lambda: grade(cause)) == grade(cause)
    assert health.asked == checks


@pytest.mark.parametrize("work", [crashed, lost_within])
def test_the_first_loss_is_ours_and_the_second_is_the_projects_own(work: Callable[[], Grade]) -> None:
    """First infra, with the trial owed; then, with the control passing before it, crashed: device_fault."""
    guard = HealthGuard(Script([None, DeviceError("x"), None, DeviceError("x")] if work is crashed else []))
    with pytest.raises(DeviceLost, match="well before") as caught:
        guard.watch("p", work)
    assert caught.value.project == "p"
    assert caught.value.cause.verdict is Verdict.INFRA
    ended = guard.watch("p", work)
    assert isinstance(ended, Finding)
    assert (ended.cause, ended.verdict) == (Cause.DEVICE_FAULT, Verdict.CRASHED)


def test_a_loss_of_an_earlier_session_counts_for_its_project_alone() -> None:
    """The next one of that project is the second; another's is its first."""
    guard = HealthGuard(Script([]))
    guard.remember("p")
    assert isinstance(guard.watch("p", lost_within), Finding)
    with pytest.raises(DeviceLost):
        guard.watch("q", lost_within)


def test_a_device_that_is_not_well_beforehand_is_never_held_against_a_project() -> None:
    """The project does not run, and the next loss is still its first."""
    guard = HealthGuard(Script([DeviceError("was broken already"), None]))
    ran: list[bool] = []

    def work() -> Grade:
        ran.append(True)
        return grade()

    with pytest.raises(DeviceError) as caught:
        guard.watch("p", work)
    assert not isinstance(caught.value, DeviceLost)
    assert ran == []
    with pytest.raises(DeviceLost):
        guard.watch("p", lost_within)


@pytest.mark.parametrize("error", [DeviceBusy("somebody else"), SandboxError("no room")])
def test_nobody_is_blamed_for_somebody_elses_use(error: Exception) -> None:
    """Another process on the GPU, or a host without room, is ours however often it happens."""
    guard = HealthGuard(Script([None, error, None, error]))
    for _ in range(2):
        with pytest.raises(type(error)) as caught:
            guard.watch("p", crashed)
        assert not isinstance(caught.value, DeviceLost)


def test_a_host_without_memory_says_so(tmp_path: Path) -> None:
    """With the figure and what to do."""
    HostHealth(tmp_path, lambda: 4 << 30).check()
    with pytest.raises(SandboxError, match=r"only 97 MiB of memory.*end other programs"):
        HostHealth(tmp_path, lambda: 97 << 20).check()


@dataclass
class Kernel:
    runs: list[KnownRun] = field(default_factory=list)

    def run(self) -> KnownRun:
        return self.runs.pop(0) if self.runs else KnownRun(True, 50.0)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install_fake_nvml(monkeypatch, tmp_path)
    return tmp_path


@pytest.fixture
def gpu(state: Path) -> Iterator[Callable[..., GpuHealth]]:
    made: list[GpuHealth] = []

    def make(*runs: KnownRun, uuid: str = WHOLE) -> GpuHealth:
        made.append(GpuHealth(uuid, Kernel(list(runs)), leaving_s=0.0))
        return made[-1]

    yield make
    for health in made:
        health.close()


Gpu = Callable[..., GpuHealth]


@NEEDS_GCC
@pytest.mark.parametrize(
    ("then", "file", "text", "said"),
    [
        (KnownRun(False, 50.0), "", "", "computed a known kernel wrongly"),
        (KnownRun(True, 90.0), "", "", r"takes 90\.0 us .* took 50\.0 us .*power cap"),
        (KnownRun(True, 70.0), "cells", "1 0", "a reset takes out of use"),
        (KnownRun(True, 70.0), "cells", "0 1", "board replaced"),
        (KnownRun(True, 70.0), "events", "31\n79\n", "Xid 79"),
        (KnownRun(True, 70.0), "processes", "100 1\n4321 1\n", "used by process 4321"),
    ],
)
def test_a_sick_or_busy_gpu_is_an_error(
    gpu: Gpu, state: Path, then: KnownRun, file: str, text: str, said: str
) -> None:
    """Wrong words, slower than boost explains, failed memory rows, an Xid of the device itself, and a process
    that stays. Processes of the first check are the judge's own."""
    (state / "processes").write_text("100 1\n")
    health = gpu(KnownRun(True, 50.0), then)
    health.check()
    if file:
        (state / file).write_text(text)
    with pytest.raises(DeviceError, match=said) as caught:
        health.check()
    assert isinstance(caught.value, DeviceBusy) is (file == "processes")


@NEEDS_GCC
def test_an_xid_of_an_application_and_normal_boost_are_no_fault(gpu: Gpu, state: Path) -> None:
    """A fault of an earlier job is that job's; clocks vary by 10 to 30 %."""
    health = gpu(KnownRun(True, 50.0), KnownRun(True, 70.0))
    health.check()
    (state / "events").write_text("31\n")
    health.check()


@NEEDS_GCC
def test_a_gpu_without_nvml_is_not_taken_for_one_that_is_well(state: Path) -> None:
    """Checks fail closed."""
    (state / "driver_absent").touch()
    with pytest.raises(DeviceError, match="cannot be checked"):
        GpuHealth(WHOLE, Kernel())
