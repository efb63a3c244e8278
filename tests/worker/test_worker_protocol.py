"""worker.py in a real sandbox: what it maps, what it says, and that several live at once."""

from __future__ import annotations

import dataclasses
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

import secrets

from harness.builder.toolchain import Toolchain
from harness.grading.grade import Grader
from harness.judge.arena import Arena, Layout
from harness.judge.problem import Outputs, Problem, Tensors
from harness.judge.worker_client import Failed, Source, WorkerClient, WorkerPlace
from harness.judge.worker_reply import Reveal
from harness.outcome import Cause
from harness.records import Workload
from sandboxes.pool import SandboxPool
from tests.fakes.overlays import throw_away_task, zoo_project
from tests.fakes.processes import processes_naming

pytestmark = pytest.mark.slow
Start = Callable[[Source], WorkerClient]


@pytest.fixture(scope="module")
def start(toolchain: Toolchain, sandbox: SandboxPool) -> Iterator[Start]:
    started: list[WorkerClient] = []

    def run(source: Source) -> WorkerClient:
        assert toolchain.torch_root is not None
        place = WorkerPlace((toolchain.torch_root.parent,), memory_bytes=2 << 30)
        started.append(WorkerClient(source, sandbox, place, wall_s=120, call_s=20))
        started[-1].load()
        return started[-1]

    yield run
    for contender in started:
        contender.close()


def problem_of(name: str) -> Problem:
    loaded = throw_away_task(name)
    return Problem(loaded, loaded.task.workloads[-1], "float32")


def call(
    contender: WorkerClient, problem: Problem, inputs: list[Tensors], rounds: int = 1
) -> tuple[list[Outputs], Reveal]:
    layout = Layout(problem)
    contender.plan(layout, len(inputs))
    arena = Arena(layout, inputs, 0xFF)
    snapshot, times = contender.call(arena, len(inputs), "on a test", rounds)
    outputs = [result.outputs for result in arena.results(snapshot)]
    arena.close()
    return outputs, times


def reference_of(name: str) -> Source:
    return Source("reference", throw_away_task(name).reference_path, "liftbench_reference", "reference")


def package(folder: Path, code: str) -> Source:
    folder.mkdir(exist_ok=True)
    (folder / "__init__.py").write_text(textwrap.dedent(code))
    return Source("project", folder / "__init__.py", "scale", "scale")


@pytest.fixture(scope="module")
def reference(start: Start) -> WorkerClient:
    return start(reference_of("scale"))


@pytest.fixture(scope="module")
def null(start: Start) -> WorkerClient:
    return start(Source("null"))


@pytest.mark.parametrize("name", ["scale", "two_outputs", "argmax", "axpy", "masked_scale"])
def test_reference_worker_is_the_reference(reference: WorkerClient, name: str) -> None:
    """What the reference's worker writes equals what the judge computes itself, for every kind of operand."""
    problem = problem_of(name)
    reference.reload(reference_of(name))
    inputs = [problem.make_inputs() for _ in range(2)]
    outputs, times = call(reference, problem, inputs)
    for given, got in zip(inputs, outputs, strict=True):
        for one, other in zip(got, problem.reference(given), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-6)
    assert times.claim_us is not None and len(times.each_us) == 2


def test_null_project_takes_the_path_of_a_project(null: WorkerClient) -> None:
    """It is called and timed as a project is, so it claims a little; every round is counted."""
    problem = problem_of("scale")
    _, times = call(null, problem, [problem.make_inputs() for _ in range(3)], rounds=2)
    assert len(times.each_us) == 6
    assert times.claim_us == pytest.approx(sum(times.each_us))
    assert times.claim_us > 0
    assert times.outside_us > times.latency_us > 0


@pytest.mark.parametrize(("namespace", "expected"), [("liftbench_ns", 2), ("liftbench_none", 0), ("", 0)])
def test_operators_of_a_project_are_counted(
    start: Start, tmp_path: Path, namespace: str, expected: int
) -> None:
    """Those that its import registered in its own namespace, and no others."""
    code = """
        import torch
        library = torch.library.Library("liftbench_ns", "DEF")
        library.define("one(Tensor x) -> ()")
        library.define("two(Tensor x) -> ()")
        def scale(*operands, **scalars): ...
    """
    source = dataclasses.replace(package(tmp_path / "project", code), namespace=namespace)
    assert start(source).operators == expected


def test_plans_do_not_pile_up(null: WorkerClient) -> None:
    """A worker gives back a plan's addresses when the next one comes, so it can live through many."""
    large = Workload(name="large", dims={"rows": 1 << 15, "cols": 1 << 14}, scalars={"alpha": 1.0})
    layout = Layout(Problem(throw_away_task("scale"), large, "float32"))
    for _ in range(10):
        null.plan(layout)  # 40 GiB of addresses in all; 20 are allowed


def test_inputs_are_mapped_only_during_a_call(start: Start, tmp_path: Path) -> None:
    """After a call its addresses hold nothing, and the next call of the problem has the same addresses."""
    contender = start(
        package(
            tmp_path / "p",
            """
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
            """,
        )
    )
    problem = problem_of("scale")
    layout = Layout(problem)
    contender.plan(layout)
    for attempt in range(2):
        arena = Arena(layout, [problem.make_inputs()], 0xFF)
        if attempt == 0:
            contender.call(arena, 1, "first")
            time.sleep(0.3)  # for the thread to look
        else:
            with pytest.raises(Failed) as failed:
                contender.call(arena, 1, "second")
            assert "True rw-s ['---p']" in failed.value.finding.message
        arena.close()


def test_surroundings_of_a_project(start: Start, tmp_path: Path) -> None:
    """A project finds one thread, no gradients, an isolated interpreter, and a channel it may not name."""
    contender = start(
        package(
            tmp_path / "p",
            """
            import gc, sys, torch

            def scale(out, x, *, alpha):
                facts = [torch.get_num_threads(), torch.is_grad_enabled(), sys.flags.isolated,
                         sys.flags.no_site, gc.isenabled(), "" in sys.path, type(alpha).__name__]
                raise RuntimeError(repr(facts))
            """,
        )
    )
    problem = problem_of("scale")
    with pytest.raises(Failed) as failed:
        call(contender, problem, [problem.make_inputs()])
    assert failed.value.finding.cause is Cause.OP_RAISED
    assert "[1, False, 1, 1, False, False, 'float']" in failed.value.finding.message


@pytest.mark.parametrize(
    ("code", "cause", "message"),
    [
        ("import no_such_module", Cause.IMPORT_ERROR, "ModuleNotFoundError"),
        ("def other(): pass", Cause.MISSING_FUNCTION, "has no attribute 'scale'"),
        ("scale = 3", Cause.MISSING_FUNCTION, "scale is not callable"),
        ("raise SystemExit(0)", Cause.EXITED_EARLY, "code 0"),
    ],
)
def test_packages_that_do_not_load(
    start: Start, tmp_path: Path, code: str, cause: Cause, message: str
) -> None:
    """What keeps a package from loading is the project's failure, with its cause."""
    with pytest.raises(Failed) as failed:
        start(package(tmp_path / "p", code))
    assert failed.value.finding.cause is cause
    assert message in failed.value.finding.message


# --- traces ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_second_grade_finds_nothing_of_the_first(grader: Grader) -> None:
    """A project that leaves processes, files, variables and modules, and looks for them, finds none."""
    token = secrets.token_hex(8)
    project = zoo_project("leaves_traces", token)
    for _ in range(2):
        grade = grader.grade(project, throw_away_task("scale"))
        assert grade.finding.cause is Cause.OP_RAISED, grade.finding
        assert "closed: nothing of an earlier trial" in grade.finding.message
        assert processes_naming(f"liftbench-zoo-{token}") == []
