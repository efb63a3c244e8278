"""What gpu-check asks of the judge, tried without a GPU: the transport over the stand-in driver, and what the
items make of grades and checks. What needs a kernel to run is only built here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.builder.toolchain import Toolchain
from harness.judge.gpu import Gpu, open_gpu
from harness.outcome import Cause
from harness.records import (
    CheckResult,
    ContenderTiming,
    Finding,
    Lane,
    MachineFacts,
    Spread,
    TimingResult,
    TrialKey,
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
from tests.report import factories as make
from tools.gpu_check.item import Bench, FellShort, NotHere
from tools.gpu_check.judge_items import builds, check_facts, expert, grade_facts, graded, tasks, transport
from tools.gpu_check.judging import headline
from tools.zoo.gpu_check import zoo_items, zoo_row

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
Open = Callable[[MachineFacts], Gpu | str]
KEY = TrialKey(task="l1/softmax", model="m/m", arm="a", repeat=0)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in for the driver's library."""
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def bench_with(
    driver: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Open], Bench]]:
    """A bench whose GPU is opened in that way; workers find the stand-in driver."""
    install_fake_nvml(monkeypatch, tmp_path)
    management = open_nvml()
    assert management is not None

    def sandbox(name: str) -> Sandbox:
        return WithoutDevice(WithDriver(open_sandbox(name), driver))

    with management:
        slot = GpuSlot(management.gpus()[0])
        yield lambda gpu: Bench(management, slot, sandbox, tmp_path, gpu=gpu)


def without_cuda() -> None:
    """Skips where torch has CUDA."""
    if torch.version.cuda is not None:
        pytest.skip("this torch has CUDA: make gpu-check is the test there")


@pytest.mark.slow
@pytest.mark.parametrize("refused", [False, True])
def test_the_transport_is_shared_with_a_real_worker(
    refused: bool, bench_with: Callable[[Open], Bench], driver: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which way it is shared is in the facts, the reason too where descriptors are refused, and figures."""
    if refused:
        monkeypatch.setenv("LIFTBENCH_FAKE_CUDA_NO_EXPORT", "1")
    facts = transport("local", bench_with(lambda machine: made_up_gpu(fresh(driver))))
    assert facts["transport"] == ("cuda-ipc" if refused else "cuda-vmm")
    assert ("not_by_descriptor" in facts) is refused
    for mode in ("eager", "queued", "graph"):
        assert isinstance(facts[f"{mode}_outside_us"], float)
        assert isinstance(facts[f"{mode}_inside_us"], float)


def test_a_gpu_that_the_judge_cannot_open_is_the_transports_answer(
    bench_with: Callable[[Open], Bench],
) -> None:
    """It fell short with the reason; what depends on it is not asked."""
    bench = bench_with(lambda machine: "cuMemCreate failed: nobody knows why")
    with pytest.raises(FellShort, match="nobody knows why"):
        transport("local", bench)
    for ask in (lambda: expert("l1/softmax", bench), lambda: graded("l1/softmax", "quick", bench)):
        with pytest.raises(NotHere, match="nobody knows why"):
            ask()
    with pytest.raises(NotHere, match="nobody knows why"):
        zoo_row("gpu_other_stream", bench)


def test_a_torch_without_cuda_is_named(bench_with: Callable[[Open], Bench]) -> None:
    """The judge makes inputs on the device itself."""
    without_cuda()
    with pytest.raises(FellShort, match="is built without CUDA"):
        transport("local", bench_with(open_gpu))


def test_jobs_in_an_image_are_not_asked_here(bench_with: Callable[[Open], Bench]) -> None:
    """They would need the image's own torch."""
    with pytest.raises(NotHere, match="run in an image"):
        transport("docker", bench_with(open_gpu))


@pytest.mark.slow
def test_experts_are_compiled_ahead(
    bench_with: Callable[[Open], Bench], driver: Path, toolchain: Toolchain
) -> None:
    """Side by side; how many there are stands in the answer."""
    if toolchain.missing("cuda") is not None:
        pytest.skip("cannot build for sm_90 here")
    bench = bench_with(lambda machine: made_up_gpu(fresh(driver)))
    assert builds(["l2/geglu"], bench) == {"built": 1, "of": 1}


# --- what is made of answers -----------------------------------------------------------------------


def case(error: float, *, finding: Finding | None = None) -> WorkloadCheck:
    """One case of a check."""
    return WorkloadCheck(
        workload="rows",
        dtype="float16",
        calls=4,
        worst_error=error,
        allowed_error=1.0,
        worst_absolute=0.1,
        finding=finding,
    )


def test_a_check_that_passed_says_how_near_it_came() -> None:
    """The worst of all cases, and where."""
    facts = check_facts(CheckResult(workloads=(case(0.2), case(0.7)), finding=None), "cuda-vmm")
    assert (facts["cases"], facts["calls"], facts["worst_error"]) == (2, 8, 0.7)
    assert facts["worst_in"] == "rows float16 task"


def test_a_check_that_found_something_fell_short() -> None:
    """With what was seen."""
    wrong = Finding(cause=Cause.WRONG_VALUES, message="7 elements are out of tolerance")
    with pytest.raises(FellShort, match="wrong_values: 7 elements") as caught:
        check_facts(CheckResult(workloads=(case(9.0, finding=wrong),), finding=wrong), "cuda-vmm")
    assert caught.value.facts["worst_error"] == 9.0


def contender(name: str, score_us: float) -> ContenderTiming:
    """With one lane."""
    spread = Spread(n=8, mean_us=score_us, median_us=score_us, q1_us=score_us, q3_us=score_us)
    lane = Lane(
        name="batch",
        calls=8,
        inside=spread,
        outside_us=score_us,
        constant_us=1.0,
        uncertainty_us=2.5,
        claimed=True,
        matched=True,
    )
    return ContenderTiming(name=name, lanes=(lane,), lane="batch", score_us=score_us, latency_us=30.0)


def test_a_correct_grade_says_its_figures_and_protocol() -> None:
    """Workload, speedup with its interval, who was beaten, u and L."""
    speedup = make.ratio(1.5)
    timed = WorkloadTiming(
        workload="rows",
        dtype="float16",
        student=contender("student", 10.0),
        references=(contender("eager", 20.0), contender("library", 15.0)),
        speedup=speedup,
        bytes_moved=1,
    )
    timing = TimingResult(workloads=(timed,), speedup=speedup, transport="cuda-vmm")
    facts = grade_facts(make.grade(KEY, timing=timing))
    assert (facts["protocol"], facts["workload"], facts["transport"]) == ("quick", "rows float16", "cuda-vmm")
    assert (facts["speedup"], facts["fastest_reference"], facts["reference_us"]) == (1.5, "library", 15.0)
    assert (facts["u_us"], facts["L_us"], facts["n"]) == (2.5, 30.0, "8 blocks")


def test_a_grade_that_is_not_correct_fell_short() -> None:
    """An expert has to be."""
    grade = make.grade(KEY, cause=Cause.WRONG_VALUES)
    with pytest.raises(FellShort, match="wrong_result"):
        grade_facts(grade)


def test_a_headline_is_one_workload_in_one_dtype() -> None:
    """And stays the task: the same reference, the same project."""
    for loaded in tasks().values():
        less = headline(loaded)
        assert len(less.task.workloads) == len(less.task.dtypes["cuda"]) == 1
        assert less.task.workloads[0].timed
        assert less.reference_path == loaded.reference_path


def test_every_row_of_the_zoo_that_needs_a_gpu_is_owed() -> None:
    """The hostile ones first."""
    items = zoo_items()
    kinds = [item.proves.partition(":")[0] for item in items]
    assert kinds == sorted(kinds, key=lambda kind: kind != "hostile")
    assert {"zoo/gpu_fills_the_memory", "zoo/honest_gpu_graphs"} <= {item.name for item in items}
