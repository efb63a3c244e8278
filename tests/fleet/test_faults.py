"""Faults of a three-node cluster on this machine, with real builds and checks."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import harness
from harness.builder.toolchain import Toolchain
from harness.errors import StorageError
from harness.fleet import ray_places
from harness.fleet.messages import HostSpec
from harness.fleet.opening import PoolSetup, open_pool
from harness.fleet.pool import Place
from harness.fleet.ray_places import Cluster
from harness.records import Grade, Project
from harness.suite.catalogue import LoadedTask, load_task
from tests.fakes.nvml import WHOLE, compile_nvml
from tests.fakes.overlays import TASKS, ZOO, overlaid, zoo_project
from tests.fleet.cluster import HOST, join, nothing_left, ray, three_nodes, until

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.filterwarnings("ignore")]
AGAIN = "failed and is started again"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with three_nodes() as made:
        yield made


@pytest.fixture
def said() -> list[str]:
    """What stands on stderr."""
    return []


@pytest.fixture
def connected(cluster: Any, said: list[str], tmp_path: Path) -> Iterator[Cluster]:
    """This process on the head; nothing of its graders is left."""
    with nothing_left(tmp_path):
        made = Cluster.connect(cluster.address, said.append)
        until(lambda: sum(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]) == 3)
        yield made
        made.close()


def spec_of(folder: Path, target: Any = "cpu") -> HostSpec:
    return HostSpec(target=target, protocol="quick", sandbox="auto", cache=str(folder), timed=False)


@pytest.fixture
def fleet(connected: Cluster, said: list[str], tmp_path: Path) -> Iterator[PoolSetup]:
    """Graders on both nodes."""
    with closing(open_pool(spec_of(tmp_path), connected.places, said.append)) as made:
        until(lambda: all(place.member is not None for place in made.grader._places))
        assert len(made.grader._places) == 2
        yield made


def projects(count: int, base: str = "base") -> list[Project]:
    """Right ones, each of which must be built."""
    files = {file.path: file.text for file in overlaid(ZOO / base, {}).files}
    texts = [f"{files['build.toml']}# {os.getpid()} {time.monotonic()} {number}\n" for number in range(count)]
    return [overlaid(ZOO / base, files | {"build.toml": text}) for text in texts]


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
    """The actor's process of a grader process, and the node's of an actor."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def raylet_of(node: Any) -> int:
    """The process of a node that starts its actors."""
    [one] = node.all_processes["raylet"]
    return int(one.process.pid)


def graded(fleet: PoolSetup, given: list[Project], fault: Callable[[], None]) -> list[Grade]:
    """Grades of the projects, with a fault while they are made."""
    task: LoadedTask = load_task(TASKS / "t/scale")
    with ThreadPoolExecutor(4) as pool:
        futures: list[Future[Grade]] = [pool.submit(fleet.grader.grade, one, task) for one in given]
        until(lambda: any(place.busy for place in fleet.grader._places if not place.builds_only))
        time.sleep(0.5)
        fault()
        return [future.result(timeout=240) for future in futures]


def larger_node(cluster: Any) -> Any:
    """That of two cores, which `join(cluster, 2)` replaces."""
    return max(cluster.list_all_nodes(), key=lambda node: node._ray_params.num_cpus or 0)


def test_a_killed_actor_costs_no_grade(fleet: PoolSetup, said: list[str]) -> None:
    """Its grader process ends with it, its orders go to the other node, and it is started again."""
    victim = hosts()[0]
    grades = graded(fleet, projects(4), lambda: os.kill(parent(victim), signal.SIGKILL))
    assert [grade.verdict for grade in grades] == ["correct"] * 4
    until(lambda: victim not in hosts())
    until(lambda: all(place.member is not None for place in fleet.grader._places))
    assert [note for note in fleet.grader.notes if AGAIN in note and note in said]


@pytest.mark.exhaustive
def test_a_removed_node_costs_no_grade(cluster: Any, fleet: PoolSetup, said: list[str]) -> None:
    """The other node grades what was under way; a node that joins later takes its place."""
    node = larger_node(cluster)
    grades = graded(fleet, projects(4), lambda: cluster.remove_node(node, allow_graceful=False))
    assert [grade.verdict for grade in grades] == ["correct"] * 4
    join(cluster, 2)
    until(lambda: all(place.member is not None for place in fleet.grader._places))
    assert any(AGAIN in line for line in said)


def test_a_hung_node_is_lost_within_our_own_limit(
    cluster: Any, fleet: PoolSetup, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray takes a minute to notice that a node's processes stopped; the driver does not wait for it."""
    monkeypatch.setattr(ray_places, "SILENCE_S", 8.0)
    node = larger_node(cluster)
    raylet = raylet_of(node)
    victims = [host for host in hosts() if parent(parent(host)) == raylet]
    stopped = [raylet, *map(parent, victims), *victims]

    def hang() -> None:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)

    try:
        grades = graded(fleet, projects(4), hang)
    finally:
        for pid in stopped:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, signal.SIGCONT)
        cluster.remove_node(node, allow_graceful=False)
        join(cluster, 2)
    assert victims
    assert [grade.verdict for grade in grades] == ["correct"] * 4
    assert any(AGAIN in line and "no answer from its node" in line for line in said)


@pytest.mark.exhaustive
def test_a_full_object_store_stops_nothing_that_fits(fleet: PoolSetup) -> None:
    """An order of a megabyte fails for us while the store is full, small ones pass, and no grader is lost for
    it; afterwards the same order passes."""
    task = load_task(TASKS / "t/scale")
    base = {file.path: file.text for file in zoo_project("correct").files}
    big = overlaid(ZOO / "base", base | {"README.md": "word " * 180_000})
    held: list[Any] = []
    with pytest.raises((ray.exceptions.ObjectStoreFullError, ray.exceptions.OutOfDiskError)):
        while True:
            held.append(ray.put(os.urandom(512 << 10)))
    with pytest.raises(StorageError, match=r"object store .* is full"):
        fleet.grader.grade(big, task)
    assert fleet.grader.grade(zoo_project("correct"), task).verdict == "correct"
    held.clear()
    assert fleet.grader.grade(big, task).verdict == "correct"
    assert fleet.grader.notes == []


def test_nodes_that_may_not_serve_are_left_out(
    cluster: Any, connected: Cluster, said: list[str], tmp_path: Path
) -> None:
    """One has another version of liftbench; two are one machine, whose GPU only one of them may have."""
    copied, nvml = tmp_path / "other", tmp_path / "nvml"
    package = Path(harness.__file__).parent
    shutil.copytree(package, copied / "harness", ignore=shutil.ignore_patterns("__pycache__"))
    (copied / "harness/__init__.py").write_text('__version__ = "0.0.9"\n')
    nvml.mkdir()
    compile_nvml(nvml)
    path = f"{copied}:{package.parent}:{os.environ.get('PYTHONPATH', '')}"
    older = {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    with_gpu = {"LD_LIBRARY_PATH": str(nvml), "LIFTBENCH_FAKE_NVML": str(nvml)}
    nodes = [join(cluster, 1, num_gpus=0, env_vars=more) for more in (older, with_gpu, with_gpu)]
    try:
        until(lambda: sum(node["Alive"] for node in ray.nodes()) == 6)
        with closing(open_pool(spec_of(tmp_path), connected.places, said.append)) as made:
            until(lambda: len([place for place in made.grader._places if place.member or place.out]) == 5)
            out = sorted(place.out for place in made.grader._places if place.out)
            assert out == [
                f"GPU {WHOLE} is graded on by another process already",
                f"it differs: liftbench 0.0.9 there, {harness.__version__} here",
            ]
            assert all(any(why in line and "is left out" in line for line in said) for why in out)
            task = load_task(TASKS / "t/scale")
            assert made.grader.grade(zoo_project("correct"), task).verdict == "correct"
    finally:
        for node in nodes:
            cluster.remove_node(node, allow_graceful=False)


@pytest.mark.exhaustive
def test_on_the_emulated_gpu_builds_are_shipped_and_a_killed_actor_costs_no_grade(
    cluster: Any, connected: Cluster, said: list[str], tmp_path: Path, toolchain: Toolchain
) -> None:
    """A node without a GPU builds into its own cache, and graders get the build from it; the head, which has
    no CPU, does not build."""
    if missing := toolchain.missing("cuda"):
        pytest.skip(f"cannot build for sm_90: {missing}")
    node = join(cluster, 1, num_gpus=0)
    builds = tmp_path / "of the builder"

    def places(spec: HostSpec) -> list[Place]:
        there = connected.places(spec.model_copy(update={"cache": str(builds)}))
        return [p for p in connected.places(spec) if not p.builds_only] + [p for p in there if p.builds_only]

    try:
        with closing(open_pool(spec_of(tmp_path / "cache", "cuda"), places, said.append)) as made:
            until(lambda: all(place.member is not None for place in made.grader._places))
            names = [place.name for place in made.grader._places]
            assert names[:2] == ["GPU 0 of the cluster", "GPU 1 of the cluster"]
            assert [name.endswith(f"({node.node_id[:8]})") for name in names[2:]] == [True]
            victim = next(host for host in hosts() if parent(parent(host)) != raylet_of(node))
            given = projects(2, "base_cuda")
            grades = graded(made, given, lambda: os.kill(parent(victim), signal.SIGKILL))
    finally:
        cluster.remove_node(node, allow_graceful=False)
    found = [
        (one.verdict, one.emulated and one.emulated.outcome, one.build and one.build.cache_hit)
        for one in grades
    ]
    assert found == [("not_measured", "correct", True)] * 2
    assert len({one.build.key for one in grades if one.build} & {p.name for p in builds.rglob("*")}) == 2
    assert any(AGAIN in line for line in said)
