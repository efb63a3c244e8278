"""Limits that hold for a whole process tree."""

from __future__ import annotations

import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.cgroups import Cgroup, Cgroups, ForeignCgroup

ROOT = Path(__file__).resolve().parents[2]
UNIFIED = Path("/sys/fs/cgroup/unified")
JOIN = "import os, sys\nfor file in sys.argv[1:]: open(file, 'w').write(str(os.getpid()))\n"
SPIN = "import os\nos.fork(); print('on', flush=True)\nwhile True: pass"
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
FORKS = """
import time
count = 0
try:
    while count < 100:
        if os.fork() == 0:
            time.sleep(300)
        count += 1
except OSError:
    pass
print(count, flush=True)
time.sleep(300)
"""
FORKS_WITHOUT_END = """
while True:
    try:
        if os.fork() == 0:
            print('on', flush=True)
    except OSError:
        pass
"""
# A harness that is killed -9 while something runs in its group.
DYING_HARNESS = """
import os, signal, subprocess, sys
from sandboxes.cgroups import Cgroups
group = Cgroups.find().create(sys.argv[1], memory_bytes=64 << 20, processes=8)
nowhere = subprocess.DEVNULL
child = subprocess.Popen(["sleep", "300"], stdout=nowhere, stderr=nowhere, start_new_session=True)
for file in group.join_files():
    file.write_text(str(child.pid))
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
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
        made.append(cgroups.create(f"test-{secrets.token_hex(4)}", **wanted))  # type: ignore[arg-type]
        return made[-1]

    yield make_one
    for group in made:
        group.kill()
        group.remove()


@pytest.fixture
def unified() -> Iterator[Cgroup]:
    """A group of version 2, if only one without controllers: enough to freeze and kill."""
    top = UNIFIED if UNIFIED.is_dir() else Path("/sys/fs/cgroup")
    if not (top / "cgroup.procs").exists() or not os.access(top, os.W_OK):
        pytest.skip("no control group hierarchy of version 2 can be written here")
    path = top / f"liftbench-test-{secrets.token_hex(4)}"
    path.mkdir()
    group = Cgroup(2, dict.fromkeys(["pids", "freezer", "cpuacct"], path))
    yield group
    group.kill()
    group.remove()


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
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


# --- limits ---------------------------------------------------------------------------------------


def test_a_memory_bomb_is_killed_and_counted(make: Make) -> None:
    """What takes more than its memory is killed by the kernel, once, and the peak says how much it had."""
    group = make(memory_bytes=64 << 20)
    process = joined(group, "held = bytearray(256 << 20); print('survived')")
    assert finish(process) == -signal.SIGKILL
    assert group.oom_kills() == 1
    peak = group.peak_memory_bytes()
    assert peak is not None and 60 << 20 <= peak <= 64 << 20
    assert group.processes() == []


def test_shared_memory_counts(make: Make) -> None:
    """Memory that no process holds alone is counted too: a file system in memory is no way out."""
    group = make(memory_bytes=64 << 20)
    process = joined(group, "import mmap\nheld = mmap.mmap(-1, 256 << 20)\nheld.write(bytes(256 << 20))")
    assert finish(process) == -signal.SIGKILL
    assert group.oom_kills() == 1


def test_what_keeps_to_its_memory_is_left_alone(make: Make) -> None:
    """Nothing is killed below the limit."""
    group = make(memory_bytes=128 << 20)
    assert finish(joined(group, "held = bytearray(32 << 20)")) == 0
    assert group.oom_kills() == 0


def test_swap_is_no_way_out(cgroups: Cgroups, make: Make) -> None:
    """Memory and swap together are limited to what memory alone is."""
    group = make(memory_bytes=64 << 20)
    folder = cgroups.folders["memory"] / group.join_files()[0].parent.name
    if cgroups.version == 2:
        assert (folder / "memory.swap.max").read_text().strip() == "0"
    elif (folder / "memory.memsw.limit_in_bytes").exists():
        assert int((folder / "memory.memsw.limit_in_bytes").read_text()) == 64 << 20
    else:
        assert (folder / "memory.swappiness").read_text().strip() == "0"


def test_a_fork_bomb_stops_at_the_limit_and_dies(make: Make) -> None:
    """Eight processes and no more; kill() ends all of them."""
    group = make(processes=8)
    process = joined(group, FORKS)
    assert first_line(process) == "7"
    members = group.processes()
    assert len(members) == 8
    group.kill()
    assert finish(process) == -signal.SIGKILL
    assert group.processes() == []
    assert not any(alive(pid) for pid in members)


def test_who_forks_all_the_time_does_not_outrun_its_end(make: Make) -> None:
    """kill() forbids new processes before it ends the old ones."""
    group = make(processes=32)
    process = joined(group, FORKS_WITHOUT_END)
    first_line(process)
    group.kill()
    assert group.processes() == []
    finish(process)


def test_a_share_of_a_core_is_kept_to(cgroups: Cgroups, make: Make) -> None:
    """A spinning process is held back by the kernel."""
    if "cpu" not in cgroups.folders:
        pytest.skip("the cpu controller is not available here")
    group = make(cpus=0.1)
    process = joined(group, "import time\nwhile time.process_time() < 0.2: pass")
    assert finish(process) == 0
    stat = (cgroups.folders["cpu"] / group.join_files()[0].parent.name / "cpu.stat").read_text()
    assert int(stat.split("nr_throttled ")[1].split()[0]) > 0
    used = group.cpu_s()
    assert used is not None and used >= 0.1  # less what it took before it joined


def test_cores_are_kept_to(cgroups: Cgroups, make: Make) -> None:
    """A process sees only the cores of its group, and cannot take others."""
    if "cpuset" not in cgroups.folders:
        pytest.skip("the cpuset controller is not available here")
    core = min(os.sched_getaffinity(0))
    code = f"os.sched_setaffinity(0, range({os.cpu_count()})); print(os.sched_getaffinity(0))"
    process = joined(make(cpu_set=[core]), code)
    assert first_line(process) == f"{{{core}}}"
    assert finish(process) == 0


# --- freezing and killing ---------------------------------------------------------------------------


@pytest.fixture(params=["ours", "version 2"])
def group(request: pytest.FixtureRequest) -> Cgroup:
    """A group as we make them here, and one of version 2."""
    if request.param == "ours":
        return request.getfixturevalue("make")()  # type: ignore[no-any-return]
    return request.getfixturevalue("unified")  # type: ignore[no-any-return]


def test_a_frozen_group_uses_no_time(group: Cgroup) -> None:
    """When freeze() has returned all of it stands still, and it goes on when thawed."""
    process = joined(group, SPIN)
    first_line(process)
    assert group.can_freeze()
    group.freeze(True)
    before = group.cpu_s()
    time.sleep(0.05)
    assert group.cpu_s() == before is not None
    group.freeze(False)
    while group.cpu_s() == before:
        time.sleep(0.001)
    group.kill()
    finish(process)


def test_a_daemon_dies_with_its_group(group: Cgroup) -> None:
    """No session, process group or parent of its own helps a process to live on."""
    process = joined(group, DAEMON)
    first_line(process)
    members = group.processes()
    assert members
    group.kill()
    assert group.processes() == []
    assert not any(alive(pid) for pid in members)
    finish(process)


def test_a_frozen_group_can_be_killed(group: Cgroup) -> None:
    """kill() does not wait for anybody to thaw it."""
    process = joined(group, SPIN)
    first_line(process)
    group.freeze(True)
    group.kill()
    assert finish(process) == -signal.SIGKILL


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
    assert group.processes() == []
    with pytest.raises(SandboxError, match="could not be frozen"):
        group.freeze(True)


# --- making and sweeping ------------------------------------------------------------------------------


def test_a_limit_that_cannot_be_set_is_an_error(cgroups: Cgroups) -> None:
    """A group that would not hold its process to what was asked for is not made at all."""
    name = f"test-{secrets.token_hex(4)}"
    few = Cgroups(cgroups.version, {k: v for k, v in cgroups.folders.items() if k not in ("cpu", "cpuset")})
    with pytest.raises(SandboxError, match="no cpu and no cpuset limit"):
        few.create(name, memory_bytes=1 << 20, processes=1, cpus=1.0, cpu_set=[0])
    with pytest.raises(SandboxError, match="could not be made"):
        cgroups.create(name, memory_bytes=1 << 20, processes=-5)
    assert not any(list(folder.glob(f"*{name}")) for folder in cgroups.folders.values())


@pytest.mark.parametrize("name", ["../x", "a/b", "", "."])
def test_a_name_is_no_path(cgroups: Cgroups, name: str) -> None:
    """Groups are made where ours belong and nowhere else."""
    with pytest.raises(ValueError, match="no name"):
        cgroups.create(name, memory_bytes=None, processes=None)


def test_what_a_killed_harness_leaves_is_swept(cgroups: Cgroups, make: Make) -> None:
    """The groups of a dead harness are killed and removed; those of a living one stay."""
    ours = make()
    name = f"test-{secrets.token_hex(4)}"
    harness = subprocess.run(
        [sys.executable, "-c", DYING_HARNESS, name],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert harness.returncode == -signal.SIGKILL, harness.stderr
    orphan = int(harness.stdout)
    assert alive(orphan)
    swept = cgroups.sweep()
    assert [n for n in swept if n.endswith(name)]
    assert not alive(orphan)
    assert not any(list(folder.glob(f"*{name}")) for folder in cgroups.folders.values())
    assert all(file.exists() for file in ours.join_files())


@pytest.mark.parametrize("name", ["liftbench-999999999-1-1-of-another-namespace", "liftbench-else"])
def test_what_may_be_somebody_elses_is_not_swept(cgroups: Cgroups, name: str) -> None:
    """A process id counted in another PID namespace says nothing about whether its owner lives."""
    folder = cgroups.folders["pids"] / name
    folder.mkdir()
    try:
        assert name not in cgroups.sweep()
        assert folder.is_dir()
    finally:
        folder.rmdir()


# --- groups of others -----------------------------------------------------------------------------------


def test_a_foreign_group_can_be_read_and_frozen(make: Make) -> None:
    """The group that a process is in is found by the process, whoever has made it."""
    group = make()
    process = joined(group, SPIN)
    first_line(process)
    foreign = ForeignCgroup.of_process(process.pid, named=group.join_files()[0].parent.name)
    assert foreign is not None
    assert foreign.processes() == group.processes()
    assert foreign.oom_kills() == 0
    assert foreign.memory_bytes()
    foreign.freeze(True)
    before = foreign.cpu_s()
    time.sleep(0.05)
    assert foreign.cpu_s() == before
    foreign.freeze(False)
    group.kill()
    finish(process)


def test_a_process_that_is_not_the_container_is_not_mistaken_for_it(make: Make) -> None:
    """The same number can mean another process here: the group must name the container."""
    assert ForeignCgroup.of_process(os.getpid(), named="c0ffee" * 10) is None
    assert ForeignCgroup.of_process(2**22 + 1, named="c0ffee") is None
