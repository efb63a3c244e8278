"""Temporary folders of dead harnesses are removed; no others."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxes.leftovers import remove_leftovers
from sandboxes.owners import Owner

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
    assert remove_leftovers(tmp_path) == [orphan]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)


def test_links_and_files_are_left_alone(tmp_path: Path) -> None:
    """A link that somebody put there is neither followed nor removed."""
    target = tmp_path / "target"
    (target / "precious").mkdir(parents=True)
    (tmp_path / f"liftbench-{DEAD}-build-x").symlink_to(target)
    (tmp_path / f"liftbench-{DEAD}-build-y").touch()
    assert remove_leftovers(tmp_path) == []
    assert (target / "precious").is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_folders_of_others_are_left_alone(tmp_path: Path) -> None:
    """Another user's harness removes its own."""
    theirs = tmp_path / f"liftbench-{DEAD}-build-x"
    theirs.mkdir()
    os.chown(theirs, 20_123, 20_123)
    assert remove_leftovers(tmp_path) == []
    assert theirs.is_dir()
