"""Control groups: limits on a process tree in real groups, and lookup in made-up hierarchies."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup, Cgroups
from sandboxes.orphans import Owner, is_orphan, owned_prefix
from sandboxes.reaper import stat_of

UNIFIED = Path("/sys/fs/cgroup/unified")
DEAD = replace(Owner.current(), start=1)
JOIN = "import os, sys\nfor file in sys.argv[1:]: open(file, 'w').write(str(os.getpid()))\n"
# Leaves parent, session and process group.
DAEMON = """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print('on', flush=True)
        time.sleep(300)
    os._exit(0)
os.wait()
"""
Make = Callable[..., Cgroup]


@pytest.fixture
def cgroups() -> Cgroups:
    """Where groups can be made here."""
    found = Cgroups.find()
    if found is None:
        pytest.skip("no control groups can be made here (they need root, or a delegated subtree)")
    return found


@pytest.fixture
def make(cgroups: Cgroups) -> Iterator[Make]:
    """Makes groups, and removes them after the test."""
    made: list[Cgroup] = []

    def make_one(**limits: object) -> Cgroup:
        wanted = {"memory_bytes": 256 << 20, "processes": 64, **limits}
        name = owned_prefix("test") + secrets.token_hex(4)
        made.append(cgroups.create(name, **wanted))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for group in made:
        group.kill()
        group.remove()


def unified() -> Cgroup:
    """A group of version 2, without controllers if necessary: enough to kill."""
    top = UNIFIED if UNIFIED.is_dir() else Path("/sys/fs/cgroup")
    if not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
        pytest.skip("no control group hierarchy of version 2 can be written here")
    path = top / f"liftbench-test-{secrets.token_hex(4)}"
    path.mkdir()
    return Cgroup(2, dict.fromkeys(["pids", "cpuacct"], path))


def joined(group: Cgroup, code: str) -> subprocess.Popen[str]:
    """A Python process that joins the group and then runs `code`."""
    command = [sys.executable, "-I", "-S", "-c", JOIN + code, *map(str, group.join_files())]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def first_line(process: subprocess.Popen[str]) -> str:
    """What it says first; fails when it says nothing."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], 60)[0], "it said nothing for a minute"
    return process.stdout.readline().strip()


def finish(process: subprocess.Popen[str]) -> int:
    """Its exit code, after it has ended."""
    process.communicate(timeout=60)
    return process.returncode


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for does not."""
    return stat_of(pid)[:1] not in (["Z"], ["X"], [])


def test_a_memory_bomb_is_killed_and_counted(cgroups: Cgroups, make: Make) -> None:
    """Over its limit a process is killed once, for shared memory too; swap is no way out."""
    group = make(memory_bytes=64 << 20)
    bomb = "import mmap\nheld = mmap.mmap(-1, 256 << 20)\nheld.write(bytes(256 << 20))"
    assert finish(joined(group, "held = bytearray(16 << 20)")) == group.oom_kills() == 0
    assert finish(joined(group, bomb)) == -signal.SIGKILL
    assert group.oom_kills() == 1 and group.reached_memory_limit()
    peak = group.peak_memory_bytes()
    assert peak is not None and 60 << 20 <= peak <= 64 << 20
    folder = cgroups.folders["memory"] / group.join_files()[0].parent.name
    if cgroups.version == 2:
        assert (folder / "memory.swap.max").read_text().strip() == "0"
    elif (folder / "memory.memsw.limit_in_bytes").exists():
        assert int((folder / "memory.memsw.limit_in_bytes").read_text()) == 64 << 20
    else:
        assert (folder / "memory.swappiness").read_text().strip() == "0"


@pytest.mark.parametrize("version", ["ours", "2"])
def test_a_daemon_dies_with_its_group(make: Make, version: str) -> None:
    """No session, process group or parent of its own helps a process to live on."""
    group = make() if version == "ours" else unified()
    process = joined(group, DAEMON)
    first_line(process)
    members = group.members()
    assert members
    group.kill()
    assert group.members() == [] and not any(alive(pid) for pid in members)
    group.remove()
    finish(process)


def test_a_removed_group_is_gone_and_says_nothing(cgroups: Cgroups, make: Make) -> None:
    """remove() leaves no folder in any hierarchy; readings are unknown, kill and remove do nothing."""
    group = make()
    name = group.join_files()[0].parent.name
    group.kill()
    group.remove()
    assert not any((folder / name).exists() for folder in cgroups.folders.values())
    group.kill()
    group.remove()
    assert group.memory_bytes() is group.cpu_s() is group.oom_kills() is group.peak_memory_bytes() is None
    assert group.members() == []


def test_a_limit_that_cannot_be_set_is_an_error(cgroups: Cgroups) -> None:
    """The group is not created."""
    name = f"liftbench-test-{secrets.token_hex(4)}"
    with pytest.raises(SandboxError, match="could not be made"):
        cgroups.create(name, memory_bytes=1 << 20, processes=-5)
    assert not any((folder / name).exists() for folder in cgroups.folders.values())


def test_groups_of_dead_owners_are_removed(cgroups: Cgroups, make: Make) -> None:
    """With what runs in them; those of a living owner stay."""
    ours = make()
    orphan = cgroups.create(f"liftbench-{DEAD}-job-x", memory_bytes=64 << 20, processes=8)
    process = joined(orphan, DAEMON)
    first_line(process)
    assert f"liftbench-{DEAD}-job-x" in cgroups.remove_matching(is_orphan)
    assert not any(file.exists() for file in orphan.join_files())
    assert all(file.exists() for file in ours.join_files())
    finish(process)


def test_the_group_of_a_container_is_found_by_its_id(make: Make) -> None:
    """And can be read; a process whose group does not contain the id is another one."""
    group = make()
    process = joined(group, DAEMON)
    first_line(process)
    daemon = group.members()[-1]
    found = Cgroup.of_container(daemon, group.join_files()[0].parent.name)
    assert found is not None and found.members() == group.members()
    assert found.oom_kills() == 0 and found.memory_bytes()
    group.kill()
    finish(process)
    assert Cgroup.of_container(os.getpid(), "c0ffee" * 10) is None
    assert Cgroup.of_container(2**22 + 1, "c0ffee") is None


def fake_group(folder: Path, controllers: str, enabled: str) -> Path:
    """A group of version 2 with these controllers, some of them enabled for its children."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.procs").write_text("")
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").write_text(enabled)
    return folder


def test_groups_are_created_beside_a_group_with_processes(tmp_path: Path) -> None:
    """The nearest ancestor that can enable controllers is used; without controllers there is no place."""
    proc, top = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self/cgroup").write_text("0::/user.slice/run.scope\n")  # as systemd makes them
    mount = f"35 24 0:30 / {top} rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
    (proc / "self/mountinfo").write_text(f"24 1 8:1 / / rw - ext4 /dev/sda rw\n{mount}")
    fake_group(top, "cpuset cpu io memory pids", "cpu memory pids")
    fake_group(top / "user.slice", "memory pids", "memory pids")
    # An ordinary file keeps "+memory" as it is written, so enabling has no effect, as with processes in it.
    fake_group(top / "user.slice/run.scope", "memory pids", "")
    found = Cgroups.find(proc)
    assert found is not None and found.facts() == {"cgroups": "version 2"}
    assert set(found.folders.values()) == {top / "user.slice"}
    [join] = found.create("liftbench-x", memory_bytes=1 << 30, processes=9).join_files()
    limits = {file.name: file.read_text() for file in join.parent.iterdir()}
    assert limits == {"memory.max": str(1 << 30), "pids.max": "9"}
    for path in ("", "user.slice", "user.slice/run.scope"):
        (top / path / "cgroup.controllers").write_text("cpu io")
    assert Cgroups.find(proc) is None


def test_readings_of_version_2(tmp_path: Path) -> None:
    """Missing files are unknown. An OOM kill without reaching the limit was the machine's shortage."""
    folder = fake_group(tmp_path / "box", "", "")
    group = Cgroup(2, dict.fromkeys(["memory", "pids", "cpuacct"], folder))
    assert group.memory_bytes() is group.peak_memory_bytes() is group.cpu_s() is group.oom_kills() is None
    (folder / "memory.current").write_text("5000\n")
    (folder / "memory.stat").write_text("anon 1000\ninactive_file 2000\nactive_file 7\n")
    (folder / "memory.peak").write_text("9000\n")
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\noom_group_kill 0\n")
    (folder / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\nsystem_usec 2\n")
    (folder / "cgroup.procs").write_text("0\n12\n7\n")  # 0 is a process that is not visible
    assert (group.memory_bytes(), group.peak_memory_bytes(), group.cpu_s()) == (3000, 9000, 2.5)
    assert (group.oom_kills(), group.reached_memory_limit(), group.members()) == (3, True, [7, 12])
    (folder / "memory.events").write_text("low 0\nhigh 0\nmax 0\noom 0\noom_kill 1\n")
    assert (group.oom_kills(), group.reached_memory_limit()) == (1, False)


def test_a_hybrid_system_uses_version_1(tmp_path: Path) -> None:
    """Where version 1 has the controllers; paths follow the mount's root."""
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
    ):
        lines.append(f"31 1 0:9 {root} {tmp_path}/{name} rw - cgroup cgroup {options}")
    (proc / "self" / "mountinfo").write_text("\n".join(lines))
    for path in ("unified", "memory/in", "cpu/box", "pids/box"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / "unified" / "cgroup.controllers").write_text("hugetlb\n")
    assert Cgroups.find(proc) == Cgroups(
        1, {"memory": tmp_path / "memory/in", "cpuacct": tmp_path / "cpu/box", "pids": tmp_path / "pids/box"}
    )
