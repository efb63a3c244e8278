"""Faults of a three-node cluster on this machine, with real builds and checks on the CPU target."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ray = pytest.importorskip("ray", reason="needs Ray (pip install 'liftbench[ray]')")

from harness.fleet import ray_places
from harness.fleet.messages import HostSpec
from harness.fleet.opening import PoolSetup, open_pool
from harness.fleet.ray_places import Cluster
from harness.records import Grade, Project
from harness.suite.catalogue import LoadedTask, load_task
from tests.fakes.overlays import TASKS, ZOO, overlaid, zoo_project
from tests.fakes.processes import processes_naming

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
HOST = "harness.fleet.host"
LEFT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head without work, and two nodes."""
    from ray.cluster_utils import Cluster as TestCluster

    made = TestCluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    made.add_node(num_cpus=1)
    made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


@pytest.fixture
def fleet(cluster: Any, tmp_path: Path) -> Iterator[PoolSetup]:
    """Graders on both nodes; nothing of them is left."""
    said: list[str] = []
    spec = HostSpec(target="cpu", protocol="quick", sandbox="auto", cache=str(tmp_path), timed=False)
    connected = Cluster.connect(cluster.address, said.append)
    until(lambda: [node["Resources"].get("CPU") for node in ray.nodes() if node["Alive"]].count(1.0) == 2, 60)
    made = open_pool(spec, connected.places, said.append, connected.close)
    until(lambda: all(place.member is not None for place in made.grader._places))
    assert len(made.grader._places) == 2
    yield made
    made.close()
    until(lambda: not processes_naming(HOST) and not processes_naming(str(tmp_path)))


def until(condition: Callable[[], object], seconds: float = LEFT_S) -> None:
    """Wait for what other processes do."""
    give_up = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.1)


def projects(count: int) -> list[Project]:
    """Right ones, each of which must be built."""
    base = {file.path: file.text for file in zoo_project("correct").files}
    texts = [f"{base['build.toml']}# {os.getpid()} {number}\n" for number in range(count)]
    return [overlaid(ZOO / "base", base | {"build.toml": text}) for text in texts]


def hosts() -> list[int]:
    """Process ids of all grader processes."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if HOST.encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except OSError:
            continue
    return found


def parent(pid: int) -> int:
    """The actor's process of a grader process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def graded(fleet: PoolSetup, count: int, fault: Callable[[], None]) -> list[Grade]:
    """Grades of that many projects, with a fault while they are made."""
    task: LoadedTask = load_task(TASKS / "t/scale")
    with ThreadPoolExecutor(4) as pool:
        futures: list[Future[Grade]] = [pool.submit(fleet.grader.grade, one, task) for one in projects(count)]
        until(lambda: any(place.busy for place in fleet.grader._places))
        time.sleep(0.5)
        fault()
        return [future.result(timeout=240) for future in futures]


def test_a_killed_actor_costs_no_grade(fleet: PoolSetup) -> None:
    """Its grader process ends with it, its orders go to the other node, and it is started again."""
    victim = hosts()[0]
    grades = graded(fleet, 6, lambda: os.kill(parent(victim), signal.SIGKILL))
    assert [grade.verdict for grade in grades] == ["correct"] * 6
    until(lambda: victim not in hosts())
    until(lambda: all(place.member is not None for place in fleet.grader._places))
    assert any("failed and is started again" in note for note in fleet.grader.notes)


def test_a_removed_node_costs_no_grade(cluster: Any, fleet: PoolSetup) -> None:
    """The other node grades what was under way; a node that joins later takes its place."""
    node = cluster.list_all_nodes()[-1]
    grades = graded(fleet, 6, lambda: cluster.remove_node(node, allow_graceful=False))
    assert [grade.verdict for grade in grades] == ["correct"] * 6
    cluster.add_node(num_cpus=1)
    until(lambda: all(place.member is not None for place in fleet.grader._places), 60)


def test_a_hung_node_is_lost_within_our_own_limit(fleet: PoolSetup, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray takes a minute to notice; the driver does not wait for it."""
    monkeypatch.setattr(ray_places, "SILENCE_S", 8.0)
    victim = hosts()[0]
    actor = parent(victim)

    def hang() -> None:
        for pid in (actor, victim):
            os.kill(pid, signal.SIGSTOP)

    try:
        grades = graded(fleet, 6, hang)
    finally:
        for pid in (actor, victim):
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)
    assert [grade.verdict for grade in grades] == ["correct"] * 6
    assert any("no answer from its node" in note for note in fleet.grader.notes)


def test_a_full_object_store_stops_nothing(fleet: PoolSetup) -> None:
    """Orders of a megabyte and grades pass while the store of the cluster is full."""
    held = [ray.put(bytes(50 << 20)) for _ in range(4)]
    task = load_task(TASKS / "t/scale")
    base = {file.path: file.text for file in zoo_project("correct").files}
    big = overlaid(ZOO / "base", base | {"README.md": "word " * 180_000})
    assert fleet.grader.grade(big, task).verdict == "correct"
    assert len(held) == 4
