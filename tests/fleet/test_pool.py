"""The pool of graders: what is lost is given to others, and no project is blamed for it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from harness.errors import DeviceLost, InfraError, NoGraderLeft, SandboxError, UsageError
from harness.fleet import pool as pool_module
from harness.fleet.host_process import MemberLost
from harness.fleet.messages import Failure, HostFacts, Order
from harness.fleet.pool import GraderPool, Place
from harness.records import Project, ProjectFile
from harness.suite.catalogue import LoadedTask, load_task
from tests.fakes.overlays import TASKS
from tests.fleet.members import DRIVER, FakeMember, with_gpu

PROJECT = Project(files=(ProjectFile(path="build.toml", text=""),))


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost graders are opened again at once."""
    monkeypatch.setattr(pool_module, "_PAUSE_S", 0.0)


@pytest.fixture
def task() -> LoadedTask:
    return load_task(TASKS / "t/scale")


def fine(order: Order) -> InfraError | None:
    """Never fails."""
    return None


def first_fails(error: InfraError) -> Callable[[Order], InfraError | None]:
    """Fails at the first order of all members that share it."""
    count = itertools.count()
    return lambda order: error if next(count) == 0 else None


def place(name: str, *members: FakeMember, builds_only: bool = False) -> Place:
    """A place with these members, one after the other; then nothing can be opened."""
    waiting = iter(members)

    def opened() -> FakeMember:
        found = next(waiting, None)
        if found is None:
            raise SandboxError("nothing more can be started")
        return found

    return Place(name, opened, at_once=2, builds_only=builds_only)


def made(*places: Place) -> GraderPool:
    """A pool that says nothing."""
    return GraderPool(places, DRIVER, lambda line: None)


def until(condition: Callable[[], object]) -> None:
    """Wait for what other threads do."""
    while not condition():
        time.sleep(0.005)


def gpus(*fails: Callable[[Order], InfraError | None]) -> Iterator[FakeMember]:
    """Members with GPUs of their own."""
    for index, fail in enumerate(fails):
        yield FakeMember(with_gpu(f"GPU-{index}"), fail)


def test_a_lost_grader_costs_no_trial(task: LoadedTask, tmp_path: Path) -> None:
    """The order of a grader that dies is given to another, and the note names who died."""
    dying = first_fails(MemberLost("ended (signal 9)"))
    a, b, c = gpus(dying, dying, fine)
    with closing(made(place("a", a, c), place("b", b))) as pool:
        log = tmp_path / "log"
        stages: list[str] = []
        grade = pool.grade(PROJECT, task, log=log, observer=stages.append)
        assert grade.project == PROJECT.digest
        assert log.read_text() == "a log"
        assert stages == ["grade", "grade"]
        assert pool.notes[0].endswith("failed and is started again: ended (signal 9)")


def test_a_project_that_loses_two_graders_is_infra(task: LoadedTask) -> None:
    """After two losses the order fails for the run to retry; the error names no project."""
    a, b, c, d = gpus(*[lambda order: MemberLost("node lost")] * 4)
    with closing(made(place("a", a, b), place("b", c, d))) as pool, pytest.raises(MemberLost) as caught:
        pool.grade(PROJECT, task)
    assert not isinstance(caught.value, DeviceLost)


def test_a_lost_device_is_told_to_the_next_grader(task: LoadedTask) -> None:
    """A GPU that failed under a project is restarted, and the next grader is told of the first time."""
    a, b = gpus(first_fails(DeviceLost("Xid 79", PROJECT.digest)), fine)
    with closing(made(place("a", a, b))) as pool:
        with pytest.raises(DeviceLost, match="Xid 79"):
            pool.grade(PROJECT, task)
        until(a.killed.is_set)
        pool.grade(PROJECT, task)
        assert [order.lost_a_device for order in (*a.orders, *b.orders)] == [False, True]


def test_orders_under_way_survive_a_restart(task: LoadedTask) -> None:
    """While one order loses the GPU, another of the same grader is given to the next process."""
    meet = threading.Barrier(2)

    def fails(order: Order) -> InfraError | None:
        meet.wait()
        if order.lost_a_device:
            return DeviceLost("Xid 79", PROJECT.digest)
        until(a.killed.is_set)
        return MemberLost("killed")

    a, b = FakeMember(with_gpu("GPU-0"), fails), FakeMember(with_gpu("GPU-0"), fine)
    other = Project(files=(ProjectFile(path="build.toml", text="#"),))
    with closing(made(place("a", a, b))) as pool, ThreadPoolExecutor(2) as threads:
        pool.lost_a_device(PROJECT.digest)
        lost, kept = threads.submit(pool.grade, PROJECT, task), threads.submit(pool.grade, other, task)
        with pytest.raises(DeviceLost):
            lost.result()
        assert kept.result().project == other.digest


def test_graders_that_fail_again_and_again_are_left_out(task: LoadedTask) -> None:
    """After three failures in a row a place gets no more work; without any place the run is told to stop."""
    sick = [FakeMember(SandboxError("no memory"), fine) for _ in range(3)]
    [good] = gpus(lambda order: MemberLost("ended"))
    with closing(made(place("sick", *sick), place("good", good))) as pool:
        with pytest.raises(NoGraderLeft, match="sick: no memory; good: nothing more can be started"):
            pool.grade(PROJECT, task)
        assert "sick is left out: no memory" in pool.notes


def test_a_grader_that_is_refused_is_not_tried_again(task: LoadedTask) -> None:
    """A GPU in MIG mode will be in it two seconds later: its place is left out at once, with the reason."""
    [good] = gpus(fine)
    refusal = Failure.of(UsageError("GPU-1 is in MIG mode")).error()
    opened: list[FakeMember] = []

    def sick() -> FakeMember:
        opened.append(FakeMember(refusal, fine))
        return opened[-1]

    with closing(made(Place("GPU 1", sick, at_once=1), place("good", good))) as pool:
        until(lambda: pool.notes)
        pool.grade(PROJECT, task)
        assert pool.notes == ["GPU 1 is left out: GPU-1 is in MIG mode"]
        assert len(opened) == 1
    with pytest.raises(NoGraderLeft, match="GPU 1: GPU-1 is in MIG mode"):
        made(Place("GPU 1", sick, at_once=1))


def test_a_closed_pool_opens_nothing_more() -> None:
    """A grader that is being started is killed, and one that was to be started again is not."""
    [good] = gpus(fine)
    opened: list[str] = []

    class Starting(FakeMember):
        def facts(self) -> HostFacts:
            self.killed.wait()
            raise MemberLost("killed")

    def never() -> FakeMember:
        opened.append("again")
        raise SandboxError("no memory")

    slow = Starting(DRIVER, fine)
    pool = made(place("good", good), Place("slow", lambda: slow, 1), Place("sick", never, 1))
    until(lambda: pool._starting == [slow] and opened)
    pool.close()
    assert slow.killed.is_set()
    count = len(opened)
    assert not any(opener.is_alive() for opener in pool._openers)
    assert len(opened) == count


def test_what_happens_to_graders_is_noted_when_it_happens(task: LoadedTask) -> None:
    """A run that is killed keeps its notes; they begin with what happened before it."""
    a, b = gpus(first_fails(MemberLost("ended")), fine)
    stored: list[str] = []
    full: list[str] = []

    def cannot(line: str) -> None:
        raise OSError("no space left")

    with closing(GraderPool([place("a", a, b)], DRIVER, full.append)) as pool:
        with pool.noting(stored.append):
            pool.grade(PROJECT, task)
            assert stored == pool.notes == ["a failed and is started again: ended"]
        with pool.noting(stored.append):
            assert stored == pool.notes * 2
        with pool.noting(lambda line: None):
            pool._told = cannot
            pool._note("GPU 2 is left out")
        assert full[-2:] == ["what happened to a grader cannot be stored: no space left", "GPU 2 is left out"]


def test_nothing_is_opened_where_no_grader_works() -> None:
    """A pool whose graders all fail raises, with each reason."""
    with pytest.raises(NoGraderLeft, match="a: nothing more can be started"):
        made(place("a"))


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (with_gpu("GPU-1", grader_version="6"), "grader version 6 there, 7 here"),
        (with_gpu("GPU-1", sandbox="docker"), "sandbox docker there, bubblewrap here"),
        (with_gpu("GPU-1", name="H200"), "GPU H200 there, H100 here"),
        (with_gpu("GPU-0"), "GPU GPU-0 is graded on by another process already"),
    ],
)
def test_graders_that_disagree_get_no_work(facts: object, why: str, task: LoadedTask) -> None:
    """A grader of another version, sandbox, GPU model, or with a GPU that is taken, is left out by name."""
    [good] = gpus(fine)
    second = threading.Event()

    class Late(FakeMember):
        def facts(self):  # type: ignore[no-untyped-def]
            second.wait()
            return super().facts()

    odd = Late(facts, fine)  # type: ignore[arg-type]
    with closing(made(place("good", good), place("odd", odd))) as pool:
        second.set()
        until(odd.killed.is_set)
        pool.grade(PROJECT, task)
        until(lambda: pool.notes)
        assert why in pool.notes[0] and pool.notes[0].startswith("odd is left out")
        assert odd.orders == []


def test_builds_are_made_elsewhere_and_shipped(task: LoadedTask) -> None:
    """Where a process only builds, the grader gets the finished build; where it is lost, it builds itself."""
    [grader] = gpus(fine)
    builder = FakeMember(DRIVER, fine)
    with closing(made(place("builder", builder, builds_only=True), place("a", grader))) as pool:
        until(lambda: all(one.member for one in pool._places))
        pool.grade(PROJECT, task)
        assert [order.what for order in builder.orders] == ["build"]
        assert grader.orders[0].package == "a build"


def test_a_lost_builder_leaves_the_build_to_the_grader(task: LoadedTask) -> None:
    """A builder that cannot be opened again is not waited for."""
    [grader] = gpus(fine)
    builder = FakeMember(DRIVER, lambda order: MemberLost("ended"))
    with closing(made(place("builder", builder, builds_only=True), place("a", grader))) as pool:
        until(lambda: all(one.member for one in pool._places))
        for _ in range(2):
            assert pool.grade(PROJECT, task).project == PROJECT.digest
        assert [order.package for order in grader.orders] == [None, None]
