"""Owners, and removing what dead ones have left: folders, processes, control groups, containers."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.docker.engine import is_orphan, owner_labels
from sandboxes.host_job import FreeUsers, can_change_users
from sandboxes.orphans import Owner, owned_folder, remove_orphans

OURS = Owner.current()
DEAD = replace(OURS, start=OURS.start - 1)
INVISIBLE = replace(OURS, pid=1, start=1, namespace=OURS.namespace + 1)
ROOT = os.geteuid() == 0


def test_an_owner_is_dead_after_its_end() -> None:
    """As soon as it has ended, even before anybody has waited for it."""
    code = "from sandboxes.orphans import Owner; print(Owner.current(), flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        owner = Owner.parse(child.stdout.readline().strip())
        assert owner is not None and owner.pid == child.pid and not owner.is_dead()
        child.kill()
        child.stdout.read()  # ends with it
        while not owner.is_dead():
            assert child.returncode is None
        child.wait()
        assert owner.is_dead()


def test_owners_are_distinguished() -> None:
    """By start time from a later process with the same number; one that is not visible is never dead."""
    assert [owner.is_dead() for owner in (OURS, DEAD, INVISIBLE)] == [False, True, False]
    assert Owner.parse(str(OURS)) == OURS
    for word in ("", "1-2", "1-2-3-4", "a-2-3", "1-2--3", "99999999999-2-3"):
        assert Owner.parse(word) is None
    with owned_folder("build") as name:
        assert f"liftbench-{OURS}-build-" in name


def test_only_orphaned_folders_are_removed(tmp_path: Path) -> None:
    """Not those of a living or invisible owner, of other programs, or files and links with such a name."""
    kept = [f"liftbench-{OURS}-build-x", f"liftbench-{INVISIBLE}-build-x", "liftbench-", "liftbench-build-x"]
    kept += [f"other-{DEAD}-build-x", f"liftbench-{DEAD}", "target"]
    for name in kept:
        (tmp_path / name / "precious").mkdir(parents=True)
    orphan = tmp_path / f"liftbench-{DEAD}-build-x"
    (orphan / "deep/inside").mkdir(parents=True)
    (tmp_path / f"liftbench-{DEAD}-build-y").symlink_to(tmp_path / "target")
    (tmp_path / f"liftbench-{DEAD}-build-z").touch()
    if ROOT:
        kept.append(f"liftbench-{DEAD}-build-theirs")
        (tmp_path / kept[-1] / "precious").mkdir(parents=True)
        os.chown(tmp_path / kept[-1], 20_123, 20_123)
    assert remove_orphans(tmp_path) == [orphan.name]
    assert not orphan.exists()
    assert all((tmp_path / name / "precious").is_dir() for name in kept)
    assert (tmp_path / f"liftbench-{DEAD}-build-z").exists()


def test_processes_of_orphans_are_killed(tmp_path: Path) -> None:
    """Those whose HOME is an orphaned scratch directory, as root under any user; no others."""
    user = 20_321 if ROOT else None
    orphan = tmp_path / f"liftbench-{DEAD}-job-x"
    alive = tmp_path / f"liftbench-{OURS}-job-y"
    started = []
    for home in (orphan / "scratch", alive / "scratch", None):
        if home is not None:
            home.mkdir(parents=True)
        environment = {"HOME": str(home)} if home is not None else {"TOLD": str(orphan / "scratch")}
        wanted = user if home == orphan / "scratch" else None
        started.append(subprocess.Popen(["/bin/sleep", "300"], env=environment, user=wanted))
    try:
        assert remove_orphans(tmp_path) == [orphan.name]
        assert started[0].wait(20) == -9
        assert [one.poll() for one in started[1:]] == [None, None]
    finally:
        for one in started:
            one.kill()
            one.wait()


def test_orphaned_containers() -> None:
    """Those of a dead harness, and those with our mark that name none; not of one that is not visible."""
    labels = owner_labels("run")
    (owner,) = (name for name, value in labels.items() if value == str(OURS))
    found = [is_orphan(labels | {owner: str(other)}) for other in (OURS, DEAD, INVISIBLE, "nobody")]
    assert found == [False, True, False, True]


def test_free_users_differ_and_have_no_account() -> None:
    """As root no two of a hundred are equal; without root a job keeps our user."""
    users = FreeUsers()
    taken = [users.take() for _ in range(100)]
    if not ROOT:
        assert set(taken) == {None}
        return
    assert len(set(taken)) == 100
    assert not {entry.pw_uid for entry in pwd.getpwall()} & set(taken)


@pytest.mark.skipif(not ROOT or shutil.which("setpriv") is None, reason="needs root and setpriv")
def test_root_without_capabilities_keeps_its_user() -> None:
    """As in a container whose root has none."""
    code = "from sandboxes.host_job import FreeUsers; print(FreeUsers().take())"
    done = subprocess.run(
        ["setpriv", "--bounding-set=-all", "--inh-caps=-all", sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "None"
    assert can_change_users()
