"""The time stage, with workers that are threads: what is verified, who is blamed, and what is a cheat."""

from __future__ import annotations

import ctypes
import math
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.device.telemetry import Conditions, Telemetry, Watched
from harness.judge.adversarial import OWN
from harness.judge.candidates import Candidates
from harness.judge.check import problems
from harness.judge.clock import Samples, lanes
from harness.judge.measurement import UNFINISHED, Measurement, Session, _paired, ratio, time_project
from harness.judge.physical_limits import BOARDS, Board
from harness.judge.problem import Problem
from harness.judge.protocol import Numbers, numbers_of
from harness.judge.reveals import InputSets, Sampler
from harness.judge.shared_memory import CudaTransport, HostTransport, Transport
from harness.judge.worker_client import Source, WorkerClient, WorkerPlace
from harness.judge.worker_reply import Reveal
from harness.outcome import Cause, Verdict
from harness.records import TimingResult
from harness.suite.catalogue import LoadedTask, all_tasks
from tests.fakes.cuda_driver import FakeDriver, compile_driver, fresh
from tests.fakes.overlays import throw_away_task
from tests.fakes.worker import HonestWorker, ThreadSandbox

PROJECT = Source("project", Path(__file__), "scale", "scale")
REFERENCE = Source("reference", Path(__file__), "reference", "reference")


def right(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    torch.mul(x, alpha, out=out)


def liar() -> HonestWorker:
    return HonestWorker(slow, claim_ns=1000)


def slow(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
    right(out, x, alpha=alpha)
    time.sleep(0.02)


def started(worker: HonestWorker, source: Source, transport: Transport | None = None) -> WorkerClient:
    return WorkerClient(source, ThreadSandbox(worker), WorkerPlace(()), wall_s=600, transport=transport)


def loaded(worker: HonestWorker, source: Source) -> WorkerClient:
    contender = started(worker, source)
    contender.load()
    return contender


QUICK = replace(
    numbers_of("quick", on_device=False), batch_sets=(2, 4), stage_s=0.0, clean_blocks=5, most_blocks=9
)
FULL = replace(
    numbers_of("full", on_device=False),
    most_s=0.4,
    clean_blocks=5,
    most_blocks=6,
    warm_up_s=0.01,
    batch_sets=(2, 3),
)


def run_timing(
    student: HonestWorker,
    *,
    reference: Callable[..., None] = right,
    eager: Callable[[], HonestWorker] | None = None,
    fresh: Callable[[], HonestWorker] = lambda: HonestWorker(right),
    numbers: Numbers = QUICK,
    conditions: Conditions | None = None,
    board: Board | None = None,
    transport: Transport | None = None,
) -> TimingResult:
    sources = {
        "student": (PROJECT, fresh),
        "eager": (REFERENCE, eager or (lambda: HonestWorker(reference))),
    }
    resident = {}
    if not numbers.fresh_processes:
        first = {name: make() for name, (_, make) in sources.items() if name != "student"}
        resident = {n: loaded(worker, sources[n][0]) for n, worker in {"student": student, **first}.items()}
    start = {
        n: (lambda s=source, m=make: started(m(), s, transport)) for n, (source, make) in sources.items()
    }
    contenders = Candidates(start, resident)
    conditions = conditions or Conditions(Telemetry(), around_turns=True)
    session = Session(numbers, transport or HostTransport(), conditions, board=board)
    try:
        timed = problems(throw_away_task("scale"), "cpu", timed_only=True)
        return time_project(contenders, timed, session)
    finally:
        for contender in resident.values():
            contender.close()


class Scripted(Conditions):
    def __init__(self, disturbed: int = 0) -> None:
        super().__init__(Telemetry(), around_turns=True)
        self.left = disturbed

    @contextmanager
    def watched(self) -> Iterator[Watched]:
        watched = Watched()
        yield watched
        self.left -= 1
        watched.reason = "a neighbour" if self.left >= 0 else None


@pytest.mark.slow
def test_timed_outputs_are_verified() -> None:
    """A project that is right until it is timed is wrong, whatever its speed."""
    calls: list[int] = []

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        # Warm-up reveals the same inputs again and again; timed inputs are never seen twice.
        calls.append(hash(float(x[0, 0])))
        right(out, x, alpha=alpha if calls.count(calls[-1]) > 1 else 0.0)

    result = run_timing(HonestWorker(act))
    assert result.finding is not None
    assert result.finding.cause is Cause.WRONG_VALUES
    assert result.speedup.n == 0


@pytest.mark.slow
def test_false_claims_in_every_process_are_a_cheat() -> None:
    """Claims far below the outside figure, repeated by fresh processes, are `cheated: clock`."""

    result = run_timing(liar(), fresh=liar, conditions=Scripted())
    assert result.finding is not None
    assert result.finding.cause is Cause.CLOCK
    assert "in 3 of 3 fresh processes" in result.finding.message


@pytest.mark.slow
def test_references_are_scored_without_a_process_that_slows_them() -> None:
    """A reference that takes far longer while the student's process lives is measured when it is gone."""
    living: list[HonestWorker] = []

    class Student(HonestWorker):
        def __call__(self, channel: socket.socket) -> None:
            living.append(self)
            try:
                super().__call__(channel)
            finally:
                living.remove(self)

    def reference(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        right(out, x, alpha=alpha)
        time.sleep(0.03 if living else 0.002)

    def student(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        right(out, x, alpha=alpha)
        time.sleep(0.002)

    def fresh() -> HonestWorker:
        return Student(student)

    result = run_timing(fresh(), fresh=fresh, reference=reference, conditions=Scripted())
    assert result.finding is None
    (workload,) = result.workloads
    found = workload.interference
    assert found is not None
    assert (found.seen, found.lives) == (True, 3)
    assert "interference" in result.flags
    assert any("while its process stood frozen" in note for note in result.notes)
    (eager,) = workload.references
    assert eager.score_us < 20_000


@pytest.mark.slow
def test_false_claims_that_no_fresh_process_repeats_are_a_noisy_hosts() -> None:
    """Claims that a fresh process does not repeat are no crime: the outside figure is scored on both sides,
    and the grade is flagged `noisy host`, which is never ranked, though nothing disturbed a turn."""
    result = run_timing(liar(), fresh=lambda: HonestWorker(slow), conditions=Scripted())
    assert result.finding is None
    assert {"clock_mismatch", "noisy host"} <= set(result.flags)
    assert any("claims below the outside clock, not so in a fresh process" in note for note in result.notes)
    (workload,) = result.workloads
    assert workload.student.score_us > 10_000 and result.speedup.value < 1
    assert workload.clock == "outside"
    (eager,) = workload.references
    lane = eager.scored_lane
    assert eager.score_us == pytest.approx(min(lane.outside_us, lane.inside.mean_us))


@pytest.mark.slow
def test_a_host_that_delays_references_as_much_convicts_nobody() -> None:
    """What reveals to a reference take beyond its claims, which are true, is subtracted: where that is as
    much as a student's, its claims are no lies, and the ratio has no interval."""
    result = run_timing(liar(), eager=liar, fresh=liar, conditions=Scripted())
    assert result.finding is None
    assert "unresolved" in result.flags
    assert result.speedup.low is None


# A board on which 256 KiB of input take at least 2.6 s.
CRAWLING = replace(BOARDS["NVIDIA H200"], bandwidth_gb_s=1e-4, l2_bytes=0)


@pytest.mark.slow
def test_figures_below_the_floor_in_every_process_are_a_cheat() -> None:
    """Two fresh processes repeat what the board cannot do: cheated, by physics."""
    started_again: list[int] = []

    def fresh() -> HonestWorker:
        started_again.append(1)
        return HonestWorker(right)

    result = run_timing(HonestWorker(right), fresh=fresh, board=CRAWLING)
    assert result.finding is not None
    assert result.finding.cause is Cause.PHYSICS
    assert len(started_again) >= 2  # on a noisy machine interference is looked for, too


@pytest.mark.slow
def test_full_protocol_compares_process_pairs() -> None:
    """In `full` every turn of every contender is in a process of its own, and n counts such pairs."""
    made: list[HonestWorker] = []

    def fresh() -> HonestWorker:
        made.append(HonestWorker(right))
        return made[-1]

    result = run_timing(HonestWorker(right), fresh=fresh, numbers=FULL)
    assert result.finding is None
    assert result.speedup.unit == "process pairs"
    assert result.speedup.n >= FULL.clean_blocks
    assert len(made) >= FULL.clean_blocks
    assert all(worker.arenas for worker in made)


@pytest.mark.slow
def test_disturbed_blocks_are_dropped_whole_or_flagged() -> None:
    """A disturbed block is left out where enough others are left; else all stay, flagged and explained."""
    once = run_timing(HonestWorker(right), conditions=Scripted(1))
    assert "noisy host" not in once.flags
    assert once.speedup.n == QUICK.clean_blocks
    always = run_timing(HonestWorker(right), conditions=Scripted(10_000))
    assert "noisy host" in always.flags
    assert always.speedup.n == QUICK.most_blocks
    assert any("a neighbour" in note for note in always.notes)


@pytest.mark.slow
def test_slow_warm_up_does_not_keep_batches_small() -> None:
    """Who sleeps only while it warms up is timed in large batches from its second visit on."""
    seen: list[int] = []

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        # Warm-up reveals the same inputs again and again; timed inputs are never seen twice.
        seen.append(hash(float(x[0, 0])))
        if seen.count(seen[-1]) > 1:
            time.sleep(0.03)
        right(out, x, alpha=alpha)

    student = HonestWorker(act)
    assert run_timing(student, numbers=replace(QUICK, batch_sets=(8, 8))).finding is None
    sets = [message["sets"] for message in student.messages if message["op"] == "call"]
    batches = [size for size in sets[sets.index(1) :] if size > 1]
    assert batches[-1] > 2


class Device(FakeDriver):
    """A GPU that works on after the worker has answered, since what it owes does not stop with a process."""

    def __init__(self, library: str) -> None:
        super().__init__(library)
        self.owed: list[Callable[[], object]] = []
        self.late: Callable[[int], bool] = lambda sample: True
        """Whether it works after the sample of that number, and before the copy; else before the sample."""
        self.samples = 0

    def call(self, name: str, *arguments: Any) -> None:
        gathers = name == "cuLaunchKernel" and b"liftbench_gather(" in ctypes.string_at(arguments[0], 40)
        if not gathers or not self.owed:
            super().call(name, *arguments)
            return
        self.samples += 1
        if self.late(self.samples):
            super().call(name, *arguments)
        while self.owed:
            self.owed.pop()()
        if not self.late(self.samples):
            super().call(name, *arguments)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_driver(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def device(library: Path) -> Iterator[Device]:
    driver = fresh(library)
    yield Device(driver._library._name)
    assert driver.live == 0


ON_DEVICE = replace(FULL, clean_blocks=2, most_blocks=2, batch_sets=(2, 2), most_s=0.0, half_width=None)
Late = Callable[[torch.Tensor], torch.Tensor]
"""Which elements of an output, by number, are written after `done`."""


def scattered(share: float) -> Late:
    return lambda i: i * 0x9E3779B1 % 1000 < 1000 * share


def timed_on(device: Device, late: Late) -> TimingResult:
    """Of a student that leaves `late` elements to the device, and claims a microsecond per call."""

    def act(out: torch.Tensor, x: torch.Tensor, *, alpha: float) -> None:
        flat, source = out.view(-1), x.view(-1)
        chosen = late(torch.arange(len(flat)))

        def write(which: torch.Tensor) -> None:
            flat[which] = source[which] * alpha

        write(~chosen)
        if bool(chosen.any()):
            device.owed.append(lambda: (time.sleep(0.005), write(chosen)))

    def student() -> HonestWorker:
        return HonestWorker(act, claim_ns=1000)

    transport = CudaTransport(driver=device, tensors=torch.device("cpu"))
    try:
        return run_timing(
            student(), fresh=student, numbers=ON_DEVICE, conditions=Scripted(), transport=transport
        )
    finally:
        transport.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "late",
    [
        pytest.param(scattered(0.5), id="half"),
        pytest.param(scattered(0.05), id="5 %"),
        pytest.param(scattered(0.005), id="0.5 %"),
        pytest.param(lambda i: i >= len(i) - len(i) // 20, id="tail last"),
        pytest.param(lambda i: i % (len(i) // 4096) != len(i) // 8192, id="middles first"),
    ],
)
def test_outputs_written_after_the_sample_are_a_cheat(device: Device, late: Late) -> None:
    """Outputs that are right when they are copied, and were not there when the clock stopped."""
    finding = timed_on(device, late).finding
    assert finding is not None
    assert (finding.cause, finding.verdict) == (Cause.LATE_OUTPUT, Verdict.CHEATED)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("share", "late_samples", "noisy"),
    [
        pytest.param(0.0, (), False, id="honest"),
        pytest.param(0.5, (), False, id="done early"),
        pytest.param(0.5, (3,), True, id="late once"),
    ],
)
def test_work_before_the_sample_is_timed_and_one_late_reveal_is_noise(
    device: Device, share: float, late_samples: tuple[int, ...], noisy: bool
) -> None:
    """`done` that is sent early stops no clock; what no fresh process repeats is `noisy host`."""
    device.late = lambda sample: sample in late_samples
    result = timed_on(device, scattered(share))
    assert result.finding is None
    assert ("noisy host" in result.flags) == noisy
    assert any("outputs changed after t1" in note for note in result.notes) == noisy
    if share:
        (workload,) = result.workloads
        assert workload.clock == "outside"
        assert workload.student.score_us > 2000  # each call's late work sleeps for 5,000


def test_ratio_pairs_blocks_over_workloads() -> None:
    """Log ratios are averaged over workloads block by block; blocks that one lacks are left out."""
    assert _paired([[1.0, 2.0, 3.0], [3.0, 4.0]]) == [2.0, 3.0]
    found = ratio([math.log(2.0)] * 3 + [math.log(2.1)])
    assert (found.n, found.unit) == (4, "blocks")
    assert found.low is not None and found.high is not None
    assert found.low < found.value < found.high


NUMBERS = Numbers(clean_blocks=1, most_blocks=1, fresh_processes=False, compiled=False, batch_sets=(8, 8))


@pytest.fixture
def bench() -> Iterator[Sampler]:
    loaded = throw_away_task("scale")
    task = loaded.task.model_copy(update={"values": ("large",)})
    problem = Problem(LoadedTask(task, loaded.directory), task.workloads[1], "float32")
    made = Sampler(problem, NUMBERS, HostTransport())
    yield made
    made.close()


def test_memory_is_only_written_while_the_worker_is_frozen(bench: Sampler) -> None:
    """Frozen before inputs are written, thawed after t0, frozen for the snapshot, thawed for its claims."""
    sandbox = ThreadSandbox(HonestWorker(right))
    with WorkerClient(PROJECT, sandbox, WorkerPlace(()), wall_s=60) as contender:
        contender.load()
        bench.plan(contender, trusted=False)
        bench.reveal(contender, [bench._draw(2)], lanes(), 0, keep=True)
    assert sandbox.processes[0].pauses == [True, False, True, False]
    bench.verify()


def test_students_share_no_memory(bench: Sampler) -> None:
    """Each process of a student's has its own, released when it ends; workers of ours share one."""
    every = [loaded(HonestWorker(right), PROJECT) for _ in range(4)]
    for index, contender in enumerate(every):
        bench.plan(contender, trusted=index > 1)
        contender.close()
    one, other, ours, theirs = every
    assert ours.memory is theirs.memory
    assert len({id(c.memory) for c in (one, other, ours)}) == 3
    bench.release(one)
    bench.release(ours)
    assert len(bench._memory) == 2


def test_batches_that_may_be_large_are_warmed_up_with_few_sets(
    bench: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the sets that sized batches, each with its kind: modes of a GPU are verified on these too."""
    monkeypatch.setattr(bench, "_sets_for", lambda us: 63)
    with loaded(HonestWorker(lambda *operands, **scalars: None), PROJECT) as null:
        bench.size_batches(null)
    assert (bench.max_sets, len(bench._warm.inputs), len(bench._warm.kinds)) == (63, 32, 32)


def test_on_a_device_a_warm_up_ends_with_as_many_sets_as_a_batch_may_have(
    bench: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tensors, and memory for a reference's results, are made at the first reveal of so many sets."""
    sets: list[int] = []
    call_us = 10.0

    def revealed(client: WorkerClient, shown: InputSets, doing: str, **how: Any) -> tuple[None, Reveal]:
        sets.append(len(shown.inputs))
        calls = len(shown.inputs) * how.get("rounds", 1)
        return None, Reveal(calls, call_us * calls, 1.0, None)

    monkeypatch.setattr(bench, "_reveal", revealed)
    monkeypatch.setattr(bench, "_sets_for", lambda us: 63)
    bench.max_sets = 63
    with loaded(HonestWorker(right), PROJECT) as contender:
        bench.warm_up(contender, 0.0)
        assert set(sets) == {32}
        monkeypatch.setattr(bench.transport, "stops_with_process", False)
        bench.warm_up(contender, 0.0)
        assert sets[-1] == 63
        call_us = 10_000.0  # a slow one gets small batches
        bench.warm_up(contender, 0.0)
    assert sets[-1] == 5


def test_what_waits_to_be_verified_is_counted_with_its_inputs(
    bench: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the end of a visit; within one, only copies of outputs are."""
    kept, drawn = bench.layout.kept_bytes, bench.layout.input_bytes
    with loaded(HonestWorker(right), PROJECT) as contender:
        bench.plan(contender, trusted=False)
        for most, waiting in ((4 * (kept + drawn), [2, 2]), (4 * (kept + drawn) - 1, [])):
            monkeypatch.setattr(bench.transport, "pending_bytes", most)
            bench.reveal(contender, [bench._draw(2), bench._draw(2)], lanes(), 0, keep=True)
            assert [len(one.snapshot) for one in bench._unverified] == waiting
            bench.verify()


def test_room_is_left_for_what_references_keep(bench: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device: of one reference, in `full` of the compiled one too; a library op's beside `eager`'s."""
    monkeypatch.setattr(bench.transport, "most_sets", lambda layout, references: references)
    both = [numbers_of(protocol, on_device=True) for protocol in ("quick", "full")]
    assert [replace(bench, numbers=numbers).room for numbers in both] == [1, 2]
    (task,) = (one for one in all_tasks() if one.task.id == "l1/cross_entropy")
    fused = problems(task, "cpu", timed_only=True)[0]
    assert [replace(bench, problem=fused, numbers=numbers).room for numbers in both] == [2, 2]


def test_a_finished_workload_holds_no_inputs() -> None:
    """On a device those of one workload may take most of the memory."""
    with loaded(HonestWorker(right), PROJECT) as student, loaded(HonestWorker(right), REFERENCE) as eager:
        resident = {"student": student, "eager": eager}
        session = Session(QUICK, HostTransport(), Scripted())
        (problem,) = problems(throw_away_task("scale"), "cpu", timed_only=True)
        made = Measurement(problem, Candidates(dict.fromkeys(resident, lambda: student), resident), session)
        made.measure()
        assert made._visit == [] and len(made._sampler._warm.inputs) == 1
        made._sampler.close()


def test_an_interval_that_was_reached_is_not_called_unfinished(bench: Sampler) -> None:
    """Though all of the time is spent; one that was not reached is."""
    numbers = replace(FULL, least_samples=1, least_measured_s=0.0, half_width=0.1, most_s=1.0)
    made = Measurement(bench.problem, Candidates({}, {}), Session(numbers, bench.transport, Scripted()))
    made._spent_s = {"eager": 9.0}
    flags: set[str] = set()
    for times_us, flag in (([5.0] * 20, set()), ([1.0, 100.0] * 10, {UNFINISHED})):
        singles = Samples([Reveal(1, us, 1.0, None) for us in times_us])
        made.samples = {"eager": {"call": singles, "batch": Samples()}}
        flags |= flag
        assert made._enough("eager") and made.flags == flags


def test_every_visit_has_a_probe_that_looks_like_the_others(bench: Sampler) -> None:
    """A single reveal or a batch with adversarial values at secret places; never scored, sometimes each."""
    sizes = set()
    for _ in range(20):
        visit = bench.visit()
        (probe,) = (one for one in visit if not one.scored)
        sizes.add(len(probe.inputs) > 1)
        assert set(probe.kinds) - {OWN}
        assert all(set(one.kinds) == {OWN} for one in visit if one.scored)
        assert max(len(one.inputs) for one in visit if one.scored) >= 4
        assert len(visit[0].inputs) == 1 and visit[0].scored
    assert sizes == {True, False}
    bench.numbers = replace(NUMBERS, probed=0.0)
    assert all(one.scored for _ in range(20) for one in bench.visit())
