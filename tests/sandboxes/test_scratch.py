"""Filling a scratch directory, and taking files out of one that a hostile job has filled."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxes.scratch import CollectError, collect_files, fill


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    """An empty scratch directory."""
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def collected(scratch: Path) -> list[Path]:
    """What comes out of a directory that is known by a descriptor."""
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return collect_files(descriptor, ["*"], scratch.parent / "out")
    finally:
        os.close(descriptor)


def test_inputs_are_copied_in(scratch: Path, tmp_path: Path) -> None:
    """Under their names, executable where they were, and owned by the owner of the directory."""
    (tmp_path / "given/deep").mkdir(parents=True)
    (tmp_path / "given/deep/tool").write_text("run")
    (tmp_path / "given/deep/tool").chmod(0o755)
    (tmp_path / "given/link").symlink_to("deep/tool")
    if os.geteuid() == 0:
        os.chown(scratch, 23456, 23456)
    descriptor = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fill(descriptor, {"a/b": tmp_path / "given", "a/c.txt": tmp_path / "given/deep/tool"})
    finally:
        os.close(descriptor)
    assert {p.stat().st_uid for p in scratch.rglob("*")} == {23456 if os.geteuid() == 0 else os.geteuid()}
    found = {p.relative_to(scratch).as_posix(): p.stat().st_mode & 0o777 for p in scratch.rglob("*")}
    assert found == dict.fromkeys(("a", "a/b", "a/b/deep", "a/b/deep/tool", "a/b/link", "a/c.txt"), 0o700)
    assert not (scratch / "a/b/link").is_symlink()


def test_links_and_special_files_are_refused(scratch: Path, tmp_path: Path) -> None:
    """No symbolic or second hard link is followed; a pipe does not block, and no socket is read."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("sk-ant")
    (scratch / "file").symlink_to(secret / "key")
    (scratch / "directory").symlink_to(secret)
    (scratch / "dangling").symlink_to("nowhere")
    os.link(secret / "key", scratch / "hard")
    os.mkfifo(scratch / "pipe")
    here = Path.cwd()
    os.chdir(scratch)  # a socket's path has at most 107 characters
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind("socket")
            assert collected(scratch) == []
    finally:
        os.chdir(here)


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        ("for number in range(129): open(str(number), 'w').close()", "more than 128 files"),
        ("open('large', 'w').truncate((256 << 20) + 1)", "more than 268435456 bytes"),
        ("for _ in range(40): os.mkdir('d'); os.chdir('d')", "nested more than 32 deep"),
        (
            "for _ in range(12): os.mkdir('d' * 200); os.chdir('d' * 200)\nopen('f', 'w').close()",
            "2048 bytes",
        ),
    ],
    ids=["files", "bytes", "depth", "path"],
)
def test_too_much_is_refused(scratch: Path, plant: str, reason: str) -> None:
    """By number and size, and before paths are too long for our own calls."""
    subprocess.run([sys.executable, "-c", f"import os\n{plant}"], cwd=scratch, check=True)
    with pytest.raises(CollectError, match=reason):
        collected(scratch)
