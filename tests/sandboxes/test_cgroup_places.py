"""Where control groups are, on systems of all kinds: trees of ordinary files stand for their hierarchies."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxes.cgroups import Cgroup, Cgroups, ForeignCgroup


class Tree:
    """What a process sees of a hierarchy of version 2 that is mounted at `top`."""

    def __init__(self, folder: Path, own: str) -> None:
        self.proc, self.top = folder / "proc", folder / "cgroup"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "self" / "cgroup").write_text(f"0::{own}\n")
        mount = f"35 24 0:30 / {self.top} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
        (self.proc / "self" / "mountinfo").write_text(f"24 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}")

    def group(self, path: str, has: str, hands_down: str) -> Path:
        """A group with these controllers, some of them handed down."""
        folder = self.top / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cgroup.procs").write_text("")
        (folder / "cgroup.controllers").write_text(has)
        (folder / "cgroup.subtree_control").write_text(hands_down)
        return folder


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A session below a user's slice, as systemd makes them."""
    made = Tree(tmp_path, "/user.slice/run.scope")
    made.group("", "cpuset cpu io memory pids", "cpu memory pids")
    made.group("user.slice", "memory pids", "memory pids")
    # An ordinary file keeps "+memory" as it is written, so asking changes nothing: as with processes in it.
    made.group("user.slice/run.scope", "memory pids", "")
    return made


def test_groups_are_made_beside_a_group_that_has_processes(tree: Tree) -> None:
    """In version 2 a group with processes hands nothing down: the nearest one above that does is taken."""
    found = Cgroups.find(tree.proc)
    assert found is not None
    assert found.version == 2
    assert set(found.folders.values()) == {tree.top / "user.slice"}
    assert found.facts() == {"cgroups": "version 2", "cgroup limits": "memory, pids"}


def test_limits_of_version_2_are_written(tree: Tree) -> None:
    """Each limit lands in its file, and there is one file to join by."""
    tree.group("user.slice", "cpu cpuset memory pids", "cpu cpuset memory pids")
    folder = tree.top / "user.slice"
    group = Cgroups(
        2, dict.fromkeys(["cpu", "cpuset", "memory", "pids", "freezer", "cpuacct"], folder)
    ).create("x", memory_bytes=1 << 30, processes=9, cpus=1.5, cpu_set={3, 1})
    [join] = group.join_files()
    made = join.parent
    assert made.parent == folder
    assert made.name.startswith(f"liftbench-{os.getpid()}-")
    written = {f.name: f.read_text() for f in made.iterdir()}
    assert written == {
        "memory.max": str(1 << 30),
        "pids.max": "9",
        "cpu.max": "150000 100000",
        "cpuset.cpus": "1,3",
    }


def test_readings_of_version_2(tree: Tree) -> None:
    """Figures come from version 2's files, in our units; what is not there is unknown."""
    folder = tree.group("box", "", "")
    group = Cgroup(2, dict.fromkeys(["memory", "pids", "freezer", "cpuacct"], folder))
    assert group.memory_bytes() is group.peak_memory_bytes() is group.cpu_s() is group.oom_kills() is None
    (folder / "memory.current").write_text("5000\n")
    (folder / "memory.stat").write_text("anon 1000\ninactive_file 2000\nactive_file 7\n")
    (folder / "memory.peak").write_text("9000\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 0\n")
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n")
    (folder / "cgroup.procs").write_text("0\n12\n7\n")
    assert group.memory_bytes() == 3000
    assert group.peak_memory_bytes() == 9000
    assert group.oom_kills() == 3
    assert group.reached_its_limit()
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n")
    assert (group.oom_kills(), group.reached_its_limit()) == (1, False)  # the machine's memory was short
    assert group.cpu_s() == 2.5
    assert group.processes() == [7, 12]  # 0 is a process that we cannot see


def test_no_place_is_no_place(tree: Tree) -> None:
    """Without the controllers that we need there is nowhere to make groups."""
    for path in ("", "user.slice", "user.slice/run.scope"):
        (tree.top / path / "cgroup.controllers").write_text("cpu io")
    assert Cgroups.find(tree.proc) is None


def test_a_container_is_found_in_version_2(tree: Tree) -> None:
    """systemd's way of naming a container's group is as good as any."""
    scope = tree.group("system.slice/docker-abc123.scope", "cpu memory pids", "")
    (tree.proc / "77").mkdir()
    (tree.proc / "77" / "cgroup").write_text("0::/system.slice/docker-abc123.scope\n")
    (scope / "memory.events").write_text("oom_kill 1\n")
    (scope / "cgroup.freeze").write_text("0")
    found = ForeignCgroup.of_process(77, "abc123", tree.proc)
    assert found is not None
    assert found.oom_kills() == 1
    assert found.can_freeze()
    assert ForeignCgroup.of_process(77, "def456", tree.proc) is None


def test_a_hybrid_system_is_of_version_1(tmp_path: Path) -> None:
    """Where version 1 holds the controllers, it is version 1 that limits; paths follow the mount's root."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(
        "3:memory:/box/in\n2:cpu,cpuacct:/box\n1:pids:/box\n4:freezer:/\n0::/\n"
    )
    lines = [f"30 1 0:9 / {tmp_path}/unified rw - cgroup2 cgroup2 rw"]
    for root, name, options in (
        ("/box", "memory", "rw,memory"),
        ("/", "cpu", "rw,cpu,cpuacct"),
        ("/", "pids", "rw,pids"),
        ("/", "freezer", "rw,freezer"),
    ):
        lines.append(f"31 1 0:9 {root} {tmp_path}/{name} rw - cgroup cgroup {options}")
    (proc / "self" / "mountinfo").write_text("\n".join(lines))
    for path in ("unified", "memory/in", "cpu/box", "pids/box", "freezer"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    found = Cgroups.find(proc)
    assert found == Cgroups(
        1,
        {
            "memory": tmp_path / "memory/in",
            "cpu": tmp_path / "cpu/box",
            "cpuacct": tmp_path / "cpu/box",
            "pids": tmp_path / "pids/box",
            "freezer": tmp_path / "freezer",
        },
    )
