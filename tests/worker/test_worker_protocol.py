"""The real worker in a sandbox, over every transport: what it maps, what it says, and what the judge sees.

For the CUDA transports the driver is a stand-in whose device memory is the host's.
"""

from __future__ import annotations

import secrets
import shutil
import textwrap
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.builder.toolchain import Toolchain
from harness.errors import SandboxError
from harness.grading.grade import Grader
from harness.judge.candidates import reference_source
from harness.judge.check import check
from harness.judge.guarded_buffers import Arena, Layout
from harness.judge.problem import Outputs, Problem, Tensors
from harness.judge.shared_memory import CudaTransport, HostTransport, Transport
from harness.judge.worker_client import Failed, Source, WorkerClient, WorkerPlace
from harness.judge.worker_reply import Mode, Reveal
from harness.outcome import Cause
from harness.records import Workload
from sandboxes.pool import SandboxPool
from tests.fakes.cuda_driver import WithDriver, compile_driver, fresh
from tests.fakes.overlays import ZOO, throw_away_task, zoo_project
from tests.fakes.processes import processes_naming

pytestmark = pytest.mark.slow
Start = Callable[..., WorkerClient]
TRANSPORTS = ["memfd", "cuda-vmm", "cuda-ipc"]
on_host = pytest.mark.parametrize("transport", ["memfd"], indirect=True)
on_device = pytest.mark.parametrize("transport", TRANSPORTS[1:], indirect=True)
by_descriptor = pytest.mark.parametrize("transport", ["cuda-vmm"], indirect=True)

SCALE = """
    import torch

    def scale(out, x, *, alpha):
        torch.mul(x, alpha, out=out)
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture(scope="module", params=TRANSPORTS)
def transport(request: pytest.FixtureRequest, library: Path) -> Iterator[Transport]:
    if request.param == "memfd":
        yield HostTransport()
        return
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
    transport: Transport,
    library: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Start]:
    """Starts a worker that has loaded a source, or a project of this code; one serves all references."""
    references: list[WorkerClient] = []
    assert toolchain.torch_root is not None
    place = WorkerPlace((toolchain.torch_root.parent,), memory_bytes=2 << 30)

    def run(source: Source | str, namespace: str = "", **environment: str) -> WorkerClient:
        if isinstance(source, Source) and source.kind == "reference" and references:
            references[0].reload(source)
            return references[0]
        if isinstance(source, str):
            package = tmp_path_factory.mktemp("project")
            (package / "__init__.py").write_text(textwrap.dedent(source))
            source = Source("project", package / "__init__.py", "scale", "scale", namespace=namespace)
        within = sandbox if transport.name == "memfd" else WithDriver(sandbox, library, environment)
        client = WorkerClient(source, within, place, wall_s=300, call_s=20, transport=transport)
        started.callback(client.close)
        client.load()
        if source.kind == "reference":
            references.append(client)
        return client

    with ExitStack() as started:
        yield run


@by_descriptor
def test_a_driver_that_refuses_a_context_is_no_project_s_fault(start: Start) -> None:
    """The real worker starts CUDA before it imports the project, whose import would end the process."""
    busy = "cuDevicePrimaryCtxRetain=46"
    with pytest.raises(SandboxError, match=r"CUDA did not start.*Retain failed with CUresult 46"):
        start("import os; os._exit(3)", LIFTBENCH_FAKE_CUDA=busy)


def problem_of(name: str = "scale") -> Problem:
    loaded = throw_away_task(name)
    return Problem(loaded, loaded.task.workloads[-1], "float32")


def reference_of(name: str) -> Source:
    return reference_source(throw_away_task(name))


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
    outputs, times = call(contender, problem, inputs)
    for given, got in zip(inputs, outputs, strict=True):
        for one, other in zip(got, problem.reference(given), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert times.claim_us is not None
    assert len(times.each_us) == (3 if contender.transport.name == "memfd" else 0)
    assert times.aside_us > 0


@on_device
def test_every_mode_does_the_work_and_claims_a_time(start: Start) -> None:
    """Whatever the way of calling, all sets are right and every call is claimed."""
    problem, contender = problem_of(), start(SCALE)
    contender.plan(Layout(problem), 4)
    modes: tuple[Mode, ...] = ("eager", "queued", "warm", "graph")
    for mode in modes:
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


@on_host
def test_null_project_takes_the_path_of_a_project(start: Start) -> None:
    """It is called and timed as a project is, so it claims a little; every round is counted."""
    problem, contender = problem_of(), start(Source("null"))
    contender.plan(Layout(problem), 3)
    _, times = call(contender, problem, [problem.make_inputs() for _ in range(3)], rounds=2)
    assert len(times.each_us) == 6
    assert times.claim_us is not None and times.claim_us > 0
    assert times.claim_us == pytest.approx(sum(times.each_us))
    assert times.outside_us > times.latency_us > 0


@by_descriptor
def test_null_project_launches_one_tiny_kernel_on_a_device(start: Start) -> None:
    """Each reveal zeroes the first element of the first output of one set, and writes nothing else."""
    problem, contender = problem_of("two_outputs"), start(Source("null"))
    contender.plan(Layout(problem), 2)
    for rounds in (1, 2):
        outputs, _ = call(contender, problem, [problem.make_inputs() for _ in range(2)], rounds=rounds)
        ((touched, *others), *untouched) = outputs
        assert float(touched.view(-1)[0]) == 0.0
        assert bool(touched.view(-1)[1:].isnan().all())
        for left in (*others, *(one for later in untouched for one in later)):
            assert bool((left.view(torch.uint8) == 0xFF).all())


@on_host
def test_operators_of_a_project_are_counted(start: Start) -> None:
    """Those that its import registered in its own namespace, and no others."""
    code = """
        import torch
        library = torch.library.Library("liftbench_ns", "DEF")
        library.define("one(Tensor x) -> ()")
        library.define("two(Tensor x) -> ()")
        def scale(*operands, **scalars): ...
    """
    for namespace, expected in (("liftbench_ns", 2), ("liftbench_none", 0), ("", 0)):
        assert start(code, namespace).operators == expected


@on_host
def test_plans_do_not_pile_up(start: Start) -> None:
    """A worker gives back a plan's addresses when the next one comes, so it can live through many."""
    large = Workload(name="large", dims={"rows": 1 << 15, "cols": 1 << 14}, scalars={"alpha": 1.0})
    layout, null = Layout(Problem(throw_away_task("scale"), large, "float32")), start(Source("null"))
    for _ in range(10):
        null.plan(layout)  # 40 GiB of addresses in all; 20 are allowed


@on_host
def test_inputs_are_mapped_only_during_a_call(start: Start) -> None:
    """After a call its addresses hold nothing, and the next call of the problem has the same addresses."""
    contender = start("""
        import threading
        seen = []

        def protection(address):
            for line in open("/proc/self/maps"):
                words = line.split()
                low, high = (int(w, 16) for w in words[0].split("-"))
                if low <= address < high:
                    return words[1]

        def look(address, stop):
            # Runs on after the call, until the pages are gone.
            while not stop.wait(0.001):
                if protection(address) != "rw-s":
                    seen.append(protection(address))
                    return

        def scale(out, x, *, alpha):
            if not seen:
                thread = threading.Thread(target=look, args=(x.data_ptr(), threading.Event()))
                thread.start()
                seen.append((x.data_ptr(), protection(x.data_ptr()), thread))
                return
            address, during, thread = seen[0]
            raise RuntimeError(f"{address == x.data_ptr()} {during} {seen[1:]}")
    """)
    problem = problem_of()
    contender.plan(Layout(problem))
    call(contender, problem, [problem.make_inputs()])
    time.sleep(0.3)  # for the thread to look
    with pytest.raises(Failed, match=r"True rw-s \['---p'\]"):
        call(contender, problem, [problem.make_inputs()])


@on_host
def test_surroundings_of_a_project(start: Start) -> None:
    """A project finds one thread, no gradients, an isolated interpreter, and a channel it may not name."""
    contender = start("""
        import gc, sys, torch

        def scale(out, x, *, alpha):
            facts = [torch.get_num_threads(), torch.is_grad_enabled(), sys.flags.isolated,
                     sys.flags.no_site, gc.isenabled(), "" in sys.path, type(alpha).__name__]
            raise RuntimeError(repr(facts))
    """)
    problem = problem_of()
    contender.plan(Layout(problem))
    with pytest.raises(Failed) as failed:
        call(contender, problem, [problem.make_inputs()])
    assert failed.value.finding.cause is Cause.OP_RAISED
    assert "[1, False, 1, 1, False, False, 'float']" in failed.value.finding.message


@on_host
@pytest.mark.parametrize(
    ("code", "cause", "message"),
    [
        ("import no_such_module", Cause.IMPORT_ERROR, "ModuleNotFoundError"),
        ("def other(): pass", Cause.MISSING_FUNCTION, "has no attribute 'scale'"),
        ("scale = 3", Cause.MISSING_FUNCTION, "scale is not callable"),
        ("raise SystemExit(0)", Cause.EXITED_EARLY, "code 0"),
    ],
)
def test_packages_that_do_not_load(start: Start, code: str, cause: Cause, message: str) -> None:
    """What keeps a package from loading is the project's failure, with its cause."""
    with pytest.raises(Failed) as failed:
        start(code)
    assert failed.value.finding.cause is cause
    assert message in failed.value.finding.message


@by_descriptor
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


@on_device
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


@by_descriptor
def test_another_process_that_writes_late_is_not_in_the_snapshot(start: Start, tmp_path: Path) -> None:
    """The zoo's helper computes in a context of its own what was handed to it, when the call is over."""
    package = tmp_path / "scale"
    shutil.copytree(ZOO / "gpu_late_process" / "torch-ext" / "scale", package)
    (package / "_ops.py").write_text("ops = None")  # of the library that is not built here
    problem, contender = problem_of(), start(Source("project", package / "__init__.py", "scale", "scale"))
    contender.plan(Layout(problem), 1)
    inputs = problem.make_inputs()
    with Arena(Layout(problem), [inputs], 0xFF, contender.transport) as arena:
        (during,) = arena.results(contender.call(arena, 1, "on a test")[0])
        assert bool(during.outputs[0].isnan().all())
        for _ in range(100):
            (later,) = arena.results(arena.snapshot())
            if bool(later.outputs[0].isfinite().all()):
                break
            time.sleep(0.05)  # the helper's turn
    torch.testing.assert_close(later.outputs, problem.reference(inputs), rtol=1e-6, atol=1e-6)


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


@by_descriptor
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


@by_descriptor
def test_a_device_that_fails_under_a_worker_ends_it(start: Start, transport: CudaTransport) -> None:
    """A sticky error in the worker is an end with a cause, never a hang; the judge's own context lives on."""
    problem = problem_of()
    contender = start(SCALE, LIFTBENCH_FAKE_CUDA="cuMemMap=700@2!")
    contender.plan(Layout(problem), 1)
    call(contender, problem, [problem.make_inputs()])
    with pytest.raises(Failed, match="cuMemMap failed with CUresult 700"):
        call(contender, problem, [problem.make_inputs()])
    transport.before_reveal()


def test_a_second_grade_finds_nothing_of_the_first(grader: Grader) -> None:
    """A project that leaves processes, files, variables and modules, and looks for them, finds none."""
    token = secrets.token_hex(8)
    project = zoo_project("leaves_traces", token)
    for _ in range(2):
        grade = grader.grade(project, throw_away_task("scale"))
        assert grade.finding.cause is Cause.OP_RAISED, grade.finding
        assert "closed: nothing of an earlier trial" in grade.finding.message
        assert processes_naming(f"liftbench-zoo-{token}") == []
