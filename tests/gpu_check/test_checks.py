"""What the checks of gpu-check make of answers, tried without a GPU: real sandboxes, the real probe up to the
missing driver, and fakes of the probe, of NVML and of NVIDIA's driver."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.builder.toolchain import find_cuda
from harness.errors import SandboxError
from harness.judge.clock import Constant, LaneName, Samples, contender_timing
from harness.judge.usable_gpu import Gpu
from harness.judge.worker_reply import Reveal
from harness.outcome import Cause
from harness.records import (
    CheckResult,
    ContenderTiming,
    MachineFacts,
    Ratio,
    TimingResult,
    WorkloadCheck,
    WorkloadTiming,
)
from sandboxes.gpu import GpuSlot
from sandboxes.job import Sandbox
from sandboxes.nvml import open_nvml
from sandboxes.registry import open_sandbox
from tests.fakes.cuda_driver import WithDriver, compile_driver, fresh
from tests.fakes.gpu import WithoutDevice, made_up_gpu
from tests.fakes.nvml import install_fake_nvml
from tests.fakes.trials import grade
from tools.gpu_check import check_judge as judge
from tools.gpu_check import check_machine as machine
from tools.gpu_check import check_sandboxes as sandboxes
from tools.gpu_check import check_zoo as zoo
from tools.gpu_check.bench import Bench, headline
from tools.gpu_check.record import Fact

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
STAND_IN = Path(__file__).parents[1] / "fakes" / "gpu_probe.c"
SANDBOX_CHECKS = {
    name: getattr(sandboxes, f"test_{name}") for name in ("known", "hang", "fault", "residue", "freeze")
}
FAILED, SKIPPED = pytest.fail.Exception, pytest.skip.Exception
Open = Callable[[MachineFacts], Gpu | str]


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "state"
    folder.mkdir()
    install_fake_nvml(monkeypatch, folder)
    return folder


def without_device(events: Path | None = None, code: int = 0) -> WithoutDevice:
    return WithoutDevice(open_sandbox("local"), events, code)


def local_only(name: str) -> Sandbox:
    if name != "local":
        raise SandboxError(f"no sandbox to use: {name} is not on this machine")
    return without_device()


@pytest.fixture
def bench(state: Path, tmp_path: Path) -> Iterator[Bench]:
    folder = tmp_path / "bench"
    folder.mkdir()
    nvml = open_nvml()
    assert nvml is not None
    with nvml:
        yield Bench(nvml, GpuSlot(nvml.gpus()[0]), local_only, folder)


def stand_in(bench: Bench, tmp_path: Path, *, bad: bool = False) -> Bench:
    program = tmp_path / "bench" / "probe"
    subprocess.run(["gcc", f"-DBAD={int(bad)}", "-o", program, STAND_IN], check=True, capture_output=True)
    return bench


@pytest.mark.slow
def test_every_check_gets_as_far_as_the_missing_driver(bench: Bench, tmp_path: Path) -> None:
    """The program compiles for sm_90, starts in the sandbox, and CUDA reports that there is no driver."""
    cuda = find_cuda(os.environ)
    if cuda is None or cuda.library is None or Path("/dev/nvidiactl").exists():
        pytest.skip("needs nvcc with a CUDA runtime, and no GPU")
    for name, check in SANDBOX_CHECKS.items():
        facts: dict[str, Fact] = {}
        with pytest.raises(FAILED) as caught:
            check("local", bench, facts)
        assert "cudaErrorInsufficientDriver" in f"{caught.value} {facts}", name


def test_a_backend_that_is_not_there_is_no_failure(bench: Bench, tmp_path: Path) -> None:
    """The reason is the one that the sandbox gave."""
    stand_in(bench, tmp_path)
    for check in SANDBOX_CHECKS.values():
        with pytest.raises(SKIPPED, match="docker is not on this machine"):
            check("docker", bench, {})


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("known", {"kernel_us": 187.5}),
        ("hang", {"status": "signal", "memory_left_bytes": 0, "known_us_after": 187.5}),
        ("residue", {"words_equal": 0}),
        ("freeze", {"rounds_while_frozen": 0}),
    ],
)
def test_a_good_answer_passes_with_its_figures(
    name: str, expected: dict[str, Fact], bench: Bench, tmp_path: Path, state: Path
) -> None:
    """Processes that were on the GPU before are not waited for."""
    (state / "processes").write_text("77 1048576\n")
    facts: dict[str, Fact] = {}
    SANDBOX_CHECKS[name]("local", stand_in(bench, tmp_path), facts)
    assert {key: facts[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("hang", r"to run|before it said|did not say 'running'"),
        ("fault", "did not end as cudaErrorIllegalAddress"),
        ("residue", "read what another one had left"),
        ("freeze", "wrong result"),
    ],
)
def test_a_bad_answer_fails(name: str, said: str, bench: Bench, tmp_path: Path) -> None:
    """The message says what was seen instead."""
    with pytest.raises(FAILED, match=said):
        SANDBOX_CHECKS[name]("local", stand_in(bench, tmp_path, bad=True), {})


def test_an_illegal_write_is_told_with_its_xid(bench: Bench, tmp_path: Path, state: Path) -> None:
    """Xids from before are not its own; a GPU that blames itself fails: a student could take it from
    others."""
    (state / "events").write_text("79\n")
    facts: dict[str, Fact] = {}
    stand_in(bench, tmp_path).sandbox = lambda name: without_device(state / "events", 31)
    SANDBOX_CHECKS["fault"]("local", bench, facts)
    assert (facts["status"], facts["xids"]) == ("nonzero", "Xid 31 (MMU fault)")
    bench.sandbox = lambda name: without_device(state / "events", 79)
    with pytest.raises(FAILED, match="reported as a fault of the GPU"):
        SANDBOX_CHECKS["fault"]("local", bench, {})


def test_every_ceiling_is_measured() -> None:
    """Copy, matmul by dtype and smallest kernel all have a figure."""
    facts = machine.measured(torch.device("cpu"), copy_bytes=1 << 16, side=8)
    matmuls = {f"matmul_{dtype}_tflops" for dtype in ("bfloat16", "float16", "float32")}
    assert set(facts) == {"copy_gb_s", "smallest_kernel_us", *matmuls}
    assert all(isinstance(value, float) and value > 0 for value in facts.values())


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def bench_with(driver: Path, bench: Bench, tmp_path: Path) -> Callable[[Open], Bench]:
    def sandbox(name: str) -> Sandbox:
        return WithoutDevice(WithDriver(open_sandbox(name), driver))

    return lambda gpu: Bench(bench.nvml, bench.slot, sandbox, tmp_path, gpu=gpu)


@pytest.mark.slow
@pytest.mark.parametrize("refused", [False, True])
def test_the_transport_is_shared_with_a_real_worker(
    refused: bool, bench_with: Callable[[Open], Bench], driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which way it is shared is in the facts, the reason too where descriptors are refused, and figures."""
    if refused:
        monkeypatch.setenv("LIFTBENCH_FAKE_CUDA_NO_EXPORT", "1")
    facts: dict[str, Fact] = {}
    judge.transport("local", bench_with(lambda machine: made_up_gpu(fresh(driver))), facts)
    assert facts["transport"] == ("cuda-ipc" if refused else "cuda-vmm")
    assert ("not_by_descriptor" in facts) is refused
    for mode in ("eager", "queued", "graph"):
        assert isinstance(facts[f"{mode}_outside_us"], float)
        assert isinstance(facts[f"{mode}_inside_us"], float)


def test_a_gpu_that_the_judge_cannot_open_fails_the_transport_alone(
    bench_with: Callable[[Open], Bench],
) -> None:
    """With the reason; what depends on it is not asked. Jobs in an image would need its own torch."""
    bench = bench_with(lambda machine: "cuMemCreate failed: nobody knows why")
    with pytest.raises(FAILED, match="nobody knows why"):
        judge.transport("local", bench, {})
    for ask in (
        lambda: judge.expert("l1/softmax", bench, {}),
        lambda: judge.graded("l1/softmax", "quick", bench, {}),
        lambda: zoo.test_zoo("gpu_other_stream", bench, {}),
    ):
        with pytest.raises(SKIPPED, match="nobody knows why"):
            ask()
    with pytest.raises(SKIPPED, match="run in an image"):
        judge.transport("docker", bench, {})


def timed(name: str, us: float) -> ContenderTiming:
    reveals = Samples([Reveal(calls=1, outside_us=us, latency_us=30.0, claim_us=us, block=b) for b in (0, 1)])
    constants: dict[LaneName, Constant] = dict.fromkeys(("call", "batch"), Constant(1.0, 0.0))
    return contender_timing(name, {"call": reveals, "batch": reveals}, constants, trusted=name != "student")


def test_a_grade_and_a_check_write_their_figures() -> None:
    """Also where they fail: the facts are what a run on a GPU is for."""
    ratio = Ratio(value=1.5, low=1.4, high=1.6, n=8)
    one = WorkloadTiming(
        workload="rows",
        dtype="float16",
        student=timed("student", 10.0),
        references=(timed("eager", 20.0), timed("library", 15.0)),
        speedup=ratio,
        bytes_moved=1,
    )
    wrong = grade(Cause.WRONG_VALUES)
    facts: dict[str, Fact] = {}
    with pytest.raises(FAILED, match="wrong_values"):
        timing = TimingResult(workloads=(one,), speedup=ratio, transport="cuda-vmm")
        judge.grade_facts(wrong.model_copy(update={"timing": timing}), facts)
    assert (facts["protocol"], facts["workload"], facts["transport"]) == ("quick", "rows float16", "cuda-vmm")
    assert (facts["speedup"], facts["n"], facts["fastest_reference"]) == (1.5, "8 blocks", "library")
    assert (facts["reference_us"], facts["u_us"], facts["L_us"]) == (15.0, 2.0, 30.0)
    figures = {"worst_error": 9.0, "allowed_error": 1.0, "worst_absolute": 0.0, "finding": None}
    worst = WorkloadCheck(workload="rows", dtype="float16", calls=4, **figures)  # type: ignore[arg-type]
    found = CheckResult(
        workloads=(worst, worst.model_copy(update={"worst_error": 0.2})), finding=wrong.finding
    )
    with pytest.raises(FAILED, match="wrong_values"):
        judge.check_facts(found, "cuda-vmm", facts)
    assert (facts["cases"], facts["calls"], facts["worst_error"]) == (2, 8, 9.0)
    assert facts["worst_in"] == "rows float16 task"


def test_a_headline_is_one_workload_in_one_dtype() -> None:
    """And stays the task: the same reference, the same project."""
    for loaded in judge.tasks().values():
        less = headline(loaded)
        assert len(less.task.workloads) == len(less.task.dtypes["cuda"]) == 1
        assert less.task.workloads[0].timed
        assert less.reference_path == loaded.reference_path
