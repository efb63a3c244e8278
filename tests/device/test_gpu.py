"""Opening a GPU, why it cannot be had, and a whole CUDA grade over stand-ins of NVML and the driver."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.builder.toolchain import Toolchain
from harness.cli.options import GradingOptions, make_grading_setup
from harness.device.health import KnownRun, device_errors
from harness.device.machine import machine_facts
from harness.device.telemetry import Conditions, Telemetry, TelemetrySample
from harness.errors import DeviceError
from harness.grading.grade import Grader
from harness.grading.workers import GradeSettings
from harness.judge.usable_gpu import Gpu, KnownSpeed, mps_runs, open_gpu, refused
from harness.outcome import Cause, Stage, Verdict
from harness.records import MachineFacts
from sandboxes.pool import SandboxPool
from tests.fakes.cuda_driver import WithDriver, compile_driver, fresh
from tests.fakes.gpu import WithoutDevice, made_up_gpu
from tests.fakes.nvml import OLD, SLICED, SLICES, WHOLE, install_fake_nvml
from tests.fakes.overlays import throw_away_task
from tests.fakes.universal import universal

SCALE = throw_away_task("scale")


class Kernel:
    def __init__(self, *each_us: float, then_us: float) -> None:
        self._each, self._then = list(each_us), then_us
        self.now_s, self.ok = 0.0, True

    def run(self) -> KnownRun:
        self.now_s += 0.01
        return KnownRun(self.ok, self._each.pop(0) if self._each else self._then)

    def becomes(self, *each_us: float, then_us: float) -> None:
        self._each, self._then = list(each_us), then_us


def speed(kernel: Kernel) -> KnownSpeed:
    return KnownSpeed(kernel, clock=lambda: kernel.now_s)


def test_a_gpu_with_another_speed_is_doubted_once_it_had_time() -> None:
    """Slow first runs are neither the session's value nor a reason later; 2 % either way are. A GPU that
    computes wrongly is an error: nothing that is measured on it would mean anything."""
    kernel = Kernel(900.0, 700.0, 500.0, then_us=100.0)
    known = speed(kernel)
    assert known.doubt() is None
    kernel.becomes(then_us=101.9)
    assert known.doubt() is None
    kernel.becomes(400.0, 300.0, 150.0, then_us=100.0)
    assert known.doubt() is None
    for now_us in (97.0, 103.0):
        kernel.becomes(then_us=now_us)
        assert known.doubt() == f"a known kernel takes {now_us:.1f} us, and took 100.0 us at first"
    kernel.ok = False
    with pytest.raises(DeviceError, match="known kernel wrongly"):
        known.doubt()


class Look(Telemetry):
    processes = 0

    def sample(self) -> TelemetrySample:
        return TelemetrySample(0.0, cores=8, gpu_processes=self.processes)


@pytest.mark.parametrize(("processes", "reason"), [(4, None), (5, "5 processes use the GPU")])
def test_our_own_frozen_processes_do_not_disturb(processes: int, reason: str | None) -> None:
    """Judge, worker and two that are kept; one more is a stranger's."""
    look = Look()
    look.processes = processes
    conditions = Conditions(look, kept_processes=2)
    with conditions.watched() as watched:
        assert watched.reason is None
    assert watched.reason == reason


def test_torchs_device_errors_are_ours_and_others_are_bugs() -> None:
    """No traceback, and the first line is PyTorch's; a bug of ours must not look like a broken device."""
    said = r"could not go on on its device: CUDA out of memory$"
    with pytest.raises(DeviceError, match=said), device_errors():
        raise torch.OutOfMemoryError("CUDA out of memory\nand much more")
    with pytest.raises(DeviceError, match="ALLOC_FAILED"), device_errors():
        raise RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")
    with pytest.raises(RuntimeError, match="shapes") as caught, device_errors():
        raise RuntimeError("shapes differ")
    assert not isinstance(caught.value, DeviceError)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    install_fake_nvml(monkeypatch, tmp_path)
    return tmp_path


def machine(toolchain: Toolchain, uuid: str | None) -> MachineFacts:
    name = None if uuid is None else "Made-up H200"
    return machine_facts(toolchain).model_copy(update={"gpu": name, "gpu_uuid": uuid})


@pytest.mark.parametrize(
    ("uuid", "mode", "why"),
    [
        (OLD, 0, "projects are built for 9.0"),
        (WHOLE, 0, "is built without CUDA"),
        ("GPU-ffffffff", 0, "there"),
        (None, 0, "no GPU was found"),
        (SLICED, 0, "Made-up H100 is in MIG mode.*as root, nvidia-smi -i 1 -mig 0"),
        (SLICES[1], 0, "Made-up H100 is in MIG mode"),
        (WHOLE, 3, "in compute mode EXCLUSIVE_PROCESS.*as root, nvidia-smi -i 0 -c DEFAULT"),
        (WHOLE, 2, "in compute mode PROHIBITED"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_a_reason(
    uuid: str | None, mode: int, why: str, state: Path, toolchain: Toolchain
) -> None:
    """Never an exception: the machine has no such GPU, another kind of it, one in a mode that rules it out,
    or a torch that cannot use it."""
    if (uuid, mode) == (WHOLE, 0) and torch.version.cuda is not None:
        pytest.skip("this torch has CUDA")
    (state / "compute_mode").write_text(str(mode))
    found = open_gpu(machine(toolchain, uuid))
    assert isinstance(found, str)
    assert re.search(why, found), found


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a GPU")
def test_missing_device_files_are_named(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where torch only finds no GPU: a driver that nothing has used since boot has no nvidia-uvm."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    why = refused(WHOLE)
    assert why is not None and re.search("/dev/nvidia-uvm is missing.*nvidia-modprobe -u -c 0", why), why


@pytest.mark.parametrize(
    ("control", "runs", "shared"), [(True, True, True), (False, True, False), (True, False, False)]
)
def test_mps_is_seen_by_its_pipes_and_its_daemon(
    tmp_path: Path, control: bool, runs: bool, shared: bool
) -> None:
    """A daemon of other pipes does not share our contexts; pipes that a dead one left do not either."""
    pipes, proc = tmp_path / "pipes", tmp_path / "proc"
    for pid, name in ((1, "init"), (77, "nvidia-cuda-mps" if runs else "nvidia-smi")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "comm").write_text(f"{name}\n")
    pipes.mkdir()
    if control:
        (pipes / "control").touch()
    assert mps_runs({"CUDA_MPS_PIPE_DIRECTORY": str(pipes)}, proc) is shared


@pytest.fixture
def gpu(state: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Gpu, Path]]:
    library = compile_driver(tmp_path_factory.mktemp("driver"))
    driver = fresh(library)
    made = made_up_gpu(driver)
    yield made, library
    made.close()
    assert driver.live == 0


def for_cuda(toolchain: Toolchain) -> Toolchain:
    missing = toolchain.missing("cuda")
    if missing is not None:
        pytest.skip(f"cannot build for sm_90: {missing}")
    return toolchain


@pytest.mark.slow
def test_a_project_for_cuda_is_graded_over_the_stand_ins(
    gpu: tuple[Gpu, Path], toolchain: Toolchain, sandbox: SandboxPool, tmp_path: Path
) -> None:
    """Build, check and time over shared device memory; every worker was given the GPU, and the next grade
    finds it well and free. (A universal project: its operators run where its operands are.)"""
    made, library = gpu
    settings = GradeSettings("cuda", "quick", tmp_path, worker_wall_s=120.0, device=made.uuid)
    outer = WithoutDevice(WithDriver(sandbox, library))
    grader = Grader(settings, outer, for_cuda(toolchain), machine(toolchain, made.uuid), gpu=made)
    try:
        grade = grader.grade(universal(), SCALE)
        assert (grade.verdict, grade.stage) == (Verdict.CORRECT, Stage.TIME), grade.finding
        assert grade.timing is not None
        assert grade.timing.transport == "cuda-vmm"
        assert grade.timing.transport_facts["device"]
        wrong = grader.grade(universal({"torch-ext/scale/numbers.py": "FACTOR = 1.01\n"}), SCALE)
        assert wrong.finding.cause is Cause.WRONG_VALUES, wrong.finding
        assert set(outer.devices) == {WHOLE}
        assert outer.alone and grade.evidence is not None  # traced in a process of its own
    finally:
        grader.close()


@pytest.mark.slow
def test_the_command_line_says_why_a_gpu_is_not_used(
    toolchain: Toolchain,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """NVML lists a GPU that torch cannot use: projects are built, and the grade says why."""
    for_cuda(toolchain)
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    install_fake_nvml(monkeypatch, tmp_path)
    setup = make_grading_setup(GradingOptions(sandbox="local", cache=tmp_path / "cache"))
    try:
        grade = setup.grader.grade(universal(), SCALE)
    finally:
        setup.grader.close()
        setup.sandbox.stop()
    assert grade.verdict is Verdict.NOT_MEASURED
    assert "Made-up H200 cannot be used: " in grade.finding.message
    assert "GPU Made-up H200: not measured: " in capsys.readouterr().err
