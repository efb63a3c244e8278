"""Temporary folders of dead harnesses are removed; no others."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.orphans import Owner, remove_orphans
from sandboxes.process import remove_tree

OURS = Owner.ours()
DEAD = replace(OURS, start=OURS.start - 1)


def test_only_orphans_are_removed(tmp_path: Path) -> None:
    """Not those of a living harness, of one that we cannot see, or that only look like ours."""
    kept = [
        f"liftbench-{OURS}-build-x",
        f"liftbench-{replace(DEAD, namespace=OURS.namespace + 1)}-build-x",
        "liftbench-",
        "liftbench-build-x",
        f"other-{DEAD}-build-x",
        f"liftbench-{DEAD}",
    ]
    orphan = tmp_path / f"liftbench-{DEAD}-build-x"
    (orphan / "deep/inside").mkdir(parents=True)
    for name in kept:
        (tmp_path / name).mkdir()
    assert remove_orphans(tmp_path) == [orphan]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_links_and_files_are_left_alone(tmp_path: Path) -> None:
    """A link that somebody put there is neither followed nor removed."""
    target = tmp_path / "target"
    (target / "precious").mkdir(parents=True)
    (tmp_path / f"liftbench-{DEAD}-build-x").symlink_to(target)
    (tmp_path / f"liftbench-{DEAD}-build-y").touch()
    assert remove_orphans(tmp_path) == []
    assert (target / "precious").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """Another user's harness removes its own."""
    theirs = tmp_path / f"liftbench-{DEAD}-build-x"
    theirs.mkdir()
    os.chown(theirs, 20_123, 20_123)
    assert remove_orphans(tmp_path) == []
    assert theirs.is_dir()


def test_processes_of_orphans_are_killed(tmp_path: Path) -> None:
    """Whoever lives in an orphaned scratch directory is killed, as root with its user; nobody else is."""
    user = 20_321 if os.geteuid() == 0 else None
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
        assert remove_orphans(tmp_path) == [orphan]
        assert started[0].wait(20) == -9
        assert [one.poll() for one in started[1:]] == [None, None]
    finally:
        for one in started:
            one.kill()
            one.wait()


def nested(folder: Path, depth: int) -> Path:
    """Directories in directories."""
    folder.mkdir()
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        inner = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = inner
    os.close(place)
    return folder


def test_what_takes_long_is_removed_beside_us(tmp_path: Path) -> None:
    """A caller does not wait for what is nested deeper than Python's stack; in the end it is gone."""
    deep = nested(tmp_path / "deep", 4 * sys.getrecursionlimit())
    before = resource.getrusage(resource.RUSAGE_THREAD)
    remove_tree(deep, within_s=0.0)
    assert resource.getrusage(resource.RUSAGE_THREAD).ru_utime - before.ru_utime < 0.5
    deadline = time.monotonic() + 120
    while deep.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not deep.exists()
