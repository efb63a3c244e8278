"""The whole conversation over the CUDA transport: the real worker in a sandbox, the stand-in driver in both.

Device memory is the host's here, so that what is tested is who maps what, when and where, and that check and
timing see over this transport what they see over a memfd.
"""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.builder.toolchain import Toolchain
from harness.judge.arena import Arena, Layout
from harness.judge.check import check
from harness.judge.problem import Outputs, Problem, Tensors
from harness.judge.transport import CudaTransport
from harness.judge.worker_client import Failed, Source, WorkerClient, WorkerPlace
from harness.judge.worker_reply import Mode, Reveal
from harness.outcome import Cause
from sandboxes.pool import SandboxPool
from tests.fakes.cuda_driver import WithDriver, fresh
from tests.fakes.overlays import throw_away_task

pytestmark = pytest.mark.slow
Start = Callable[..., WorkerClient]

SCALE = """
    import torch

    def scale(out, x, *, alpha):
        torch.mul(x, alpha, out=out)
"""


@pytest.fixture(scope="module", params=["cuda-vmm", "cuda-ipc"])
def transport(request: pytest.FixtureRequest, library: Path) -> Iterator[CudaTransport]:
    driver = fresh(library)
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "cuda-ipc":
            patch.setenv("LIFTBENCH_FAKE_CUDA_NO_EXPORT", "1")
        found = CudaTransport(driver=driver, tensors=torch.device("cpu"))
        assert found.name == request.param
        yield found
        found.close()
    assert driver.live == 0


@pytest.fixture(scope="module")
def start(
    toolchain: Toolchain,
    sandbox: SandboxPool,
    transport: CudaTransport,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Start]:
    started: dict[object, WorkerClient] = {}

    def run(source: Source | str, **environment: str) -> WorkerClient:
        assert toolchain.torch_root is not None
        key = "reference" if isinstance(source, Source) and source.kind == "reference" else source
        if key in started and not environment:
            if isinstance(source, Source):
                started[key].reload(source)
            return started[key]
        if isinstance(source, str):
            package = tmp_path_factory.mktemp("project")
            (package / "__init__.py").write_text(textwrap.dedent(source))
            source = Source("project", package / "__init__.py", "scale", "scale")
        place = WorkerPlace((toolchain.torch_root.parent,), memory_bytes=2 << 30)
        within = WithDriver(sandbox, library, environment)
        contender = WorkerClient(source, within, place, wall_s=300, call_s=20, transport=transport)
        started[(key, *environment.items()) if environment else key] = contender
        contender.load()
        return contender

    yield run
    for contender in started.values():
        contender.close()


def problem_of(name: str = "scale") -> Problem:
    loaded = throw_away_task(name)
    return Problem(loaded, loaded.task.workloads[-1], "float32")


def reference_of(name: str) -> Source:
    return Source("reference", throw_away_task(name).reference_path, "liftbench_reference", "reference")


def call(
    contender: WorkerClient, problem: Problem, inputs: list[Tensors], rounds: int = 1, mode: Mode = "eager"
) -> tuple[list[Outputs], Reveal]:
    with Arena(Layout(problem), inputs, 0xFF, contender.transport) as arena:
        snapshot, times = contender.call(arena, len(inputs), "on a test", rounds, mode)
        return [result.outputs for result in arena.results(snapshot)], times


@pytest.mark.parametrize("name", ["scale", "two_outputs", "argmax", "axpy", "masked_scale"])
def test_a_reference_is_the_reference(start: Start, name: str) -> None:
    """Every kind of operand gets through, several sets at once, and what comes back is right."""
    problem, contender = problem_of(name), start(reference_of(name))
    inputs = [problem.make_inputs() for _ in range(3)]
    contender.plan(Layout(problem), 3)
    outputs, times = call(contender, problem, inputs, rounds=2)
    for given, got in zip(inputs, outputs, strict=True):
        for one, other in zip(got, problem.reference(given), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert times.claim_us is not None
    assert times.aside_us > 0


@pytest.mark.parametrize("mode", ["eager", "queued", "warm", "graph"])
def test_every_mode_does_the_work_and_claims_a_time(start: Start, mode: Mode) -> None:
    """Whatever the way of calling, all sets are right and every call is claimed."""
    problem, contender = problem_of(), start(SCALE)
    contender.plan(Layout(problem), 4)
    inputs = [problem.make_inputs() for _ in range(4)]
    outputs, times = call(contender, problem, inputs, mode=mode)
    for given, (got,) in zip(inputs, outputs, strict=True):
        torch.testing.assert_close(got, given["x"] * -0.3)
    assert times.claim_us is not None
    assert len(times.each_us) == (4 if mode == "warm" else 0)


def test_addresses_stay_and_values_change(start: Start) -> None:
    """Each set is at the same address in every reveal of a plan."""
    problem = problem_of()
    contender = start("""
        def scale(out, x, *, alpha):
            out.fill_(float(x.data_ptr() % (1 << 24)))
    """)
    contender.plan(Layout(problem), 2)
    found = [call(contender, problem, [problem.make_inputs() for _ in range(2)])[0] for _ in range(3)]
    addresses = [[float(out[0, 0]) for (out,) in reveal] for reveal in found]
    assert addresses[0][0] != addresses[0][1]
    assert addresses[1:] == addresses[:1] * 2


@pytest.mark.parametrize("transport", ["cuda-vmm"], indirect=True)
def test_a_wrong_project_fails_the_check(start: Start) -> None:
    """What the check finds over a memfd it finds here: an answer that is replayed by pointer."""
    contender = start("""
        kept = {}

        def scale(out, x, *, alpha):
            out.copy_(kept.setdefault((x.data_ptr(), x.shape), x * alpha))
    """)
    result = check(contender, throw_away_task("scale"), "cpu")
    assert result.finding is not None
    assert result.finding.cause is Cause.WRONG_VALUES, result.finding


def test_late_writes_are_not_in_the_snapshot(start: Start) -> None:
    """Work that goes on after `done` is not seen: what was not written by then is poison."""
    problem = problem_of()
    contender = start("""
        import threading, time

        def late(out, x, alpha):
            time.sleep(60.0)
            out.copy_(x * alpha)

        def scale(out, x, *, alpha):
            threading.Thread(target=late, args=(out, x, alpha)).start()
    """)
    contender.plan(Layout(problem), 1)
    ((out,),), _ = call(contender, problem, [problem.make_inputs()])
    assert bool(out.isnan().all())


WATCHER = """
    import ctypes, threading

    seen = [None]

    def watch(address):
        while True:
            value = float(ctypes.c_float.from_address(address).value)
            if value == 0.0:
                seen[0] = value

    def scale(out, x, *, alpha):
        if threading.active_count() == 1:
            threading.Thread(target=watch, args=(x.data_ptr(),), daemon=True).start()
        out.fill_(-1.0 if seen == [None] else seen[0])
"""


@pytest.mark.parametrize("transport", ["cuda-vmm"], indirect=True)
def test_between_reveals_nothing_is_mapped(start: Start) -> None:
    """A thread that watches an operand's address ends its process when the reveal is over."""
    problem, contender = problem_of(), start(WATCHER)
    contender.plan(Layout(problem), 1)
    with pytest.raises(Failed, match=r"SIGSEGV|SIGBUS"):
        for _ in range(100):
            call(contender, problem, [problem.make_inputs()])


@pytest.mark.parametrize("transport", ["cuda-ipc"], indirect=True)
def test_between_reveals_the_shared_block_holds_zeros(start: Start) -> None:
    """A thread that watches an operand's address sees it wiped (no input is 0), and nothing of what comes."""
    problem, contender = problem_of(), start(WATCHER)
    contender.plan(Layout(problem), 1)
    for _ in range(100):
        ((out,),), _ = call(contender, problem, [problem.make_inputs()])
        if set(out.flatten().tolist()) == {0.0}:
            return
        time.sleep(0.05)  # the watcher's turn
    pytest.fail("the block was never seen empty")


@pytest.mark.parametrize("transport", ["cuda-vmm"], indirect=True)
def test_a_device_that_fails_under_a_worker_ends_it(start: Start, transport: CudaTransport) -> None:
    """A sticky error in the worker is an end with a cause, never a hang; the judge's own context lives on."""
    problem = problem_of()
    contender = start(SCALE, LIFTBENCH_FAKE_CUDA="cuMemMap=700@2!")
    contender.plan(Layout(problem), 1)
    call(contender, problem, [problem.make_inputs()])
    with pytest.raises(Failed, match="cuMemMap failed with CUresult 700"):
        call(contender, problem, [problem.make_inputs()])
    transport.before_reveal()
