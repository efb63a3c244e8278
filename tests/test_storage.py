"""Folders that are full, gone or read-only: told with path and advice, and never as a bug of ours."""

from __future__ import annotations

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.builder.toolchain import Toolchain
from harness.device.machine import machine_facts
from harness.errors import SandboxError, StorageError
from harness.files import (
    Place,
    builds,
    finished_trials,
    is_storage,
    storage_error,
    watching,
    write_atomically,
)
from harness.grading.grade import Grader
from harness.outcome import Cause
from sandboxes.pool import SandboxPool
from tests.conftest import tiny
from tests.fakes.overlays import throw_away_task, zoo_project

_BWRAP = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")


@contextmanager
def tmpfs(folder: Path, options: str) -> Iterator[Path]:
    """A file system of its own on `folder`; the test is skipped where we may not mount one."""
    folder.mkdir(exist_ok=True)
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"no tmpfs can be mounted: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Until nothing more goes in."""
    try:
        with (folder / "filler").open("wb") as file:
            while True:
                file.write(bytes(1 << 16))
                file.flush()
    except OSError as error:
        assert error.errno == errno.ENOSPC


def test_a_full_folder_is_named_with_advice(tmp_path: Path) -> None:
    """The error itself names none: it came from a write."""
    with tmpfs(tmp_path / "full", "size=1m") as full:
        fill(full)
        cause = SandboxError("no folder for a job")
        cause.__cause__ = OSError(errno.ENOSPC, "")
        error = storage_error(cause, [builds(tmp_path), builds(full)])
    assert error is not None and error.cause is Cause.STORAGE
    assert (
        str(error)
        == f"{full} (builds) is full (0 MiB free): free some space, or choose another folder with --cache"
    )


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(tmp_path: Path) -> None:
    """No room after 4 KiB (a limit on the size of files, which needs no mount)."""
    write_atomically(tmp_path / "a.json", "old")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            write_atomically(tmp_path / "a.json", "new" * 4096)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.json", "old")]


def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    """Root may write where permissions forbid it, and not where the file system does."""
    with tmpfs(tmp_path / "fixed", "size=64m,ro") as fixed:
        error = storage_error(OSError(errno.EROFS, "x"), [finished_trials(fixed)])
    assert error is not None and "cannot be written to (Read-only file system)" in str(error)
    assert "finished trials are kept" in str(error)


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    """Somebody has removed it, or its disk."""
    place = Place(tmp_path / "gone", "temporary files", "set TMPDIR")
    with (
        pytest.raises(StorageError, match=r"gone \(temporary files\) no longer exists: set TMPDIR"),
        watching(place),
    ):
        (tmp_path / "gone" / "x").write_text("")


def test_what_has_another_cause_stays_what_it_is(tmp_path: Path) -> None:
    """A folder that can be written to is not accused, nor is one of an error that is not the system's."""
    gone = Place(tmp_path / "gone", "", "")
    assert storage_error(OSError(errno.ENOSPC, ""), [builds(tmp_path)]) is None
    assert storage_error(SandboxError("a container was removed"), [gone]) is None
    with pytest.raises(SandboxError, match="removed"), watching(gone):
        raise SandboxError("a container was removed")
    assert is_storage(OSError(errno.ENOSPC, "")) and not is_storage(OSError(errno.ENOENT, ""))


def test_a_grader_whose_cache_is_full_says_so(
    tmp_path: Path, toolchain: Toolchain, sandbox: SandboxPool
) -> None:
    """Before anything is built: there is less room than a build may need."""
    with tmpfs(tmp_path / "cache", "size=8m") as cache:
        grader = Grader(tiny(cache), sandbox, toolchain, machine_facts(toolchain))
        with pytest.raises(StorageError, match=r"MiB are free where builds lie \(.*cache\).*--cache"):
            grader.grade(zoo_project("correct"), throw_away_task("scale"))
        grader.close()


class Fills:
    """Health that lets everything pass, and fills the folder meanwhile: another program does so."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def check(self) -> None:
        fill(self._folder)


@pytest.mark.slow
def test_a_cache_that_fills_up_during_a_build_is_named(
    tmp_path: Path, toolchain: Toolchain, sandbox: SandboxPool
) -> None:
    """The build is lost, and nothing half done lies there."""
    with tmpfs(tmp_path / "cache", "size=1m") as cache:
        grader = Grader(tiny(cache), sandbox, toolchain, machine_facts(toolchain), Fills(cache))
        with pytest.raises(StorageError, match=r"cache \(builds\) is full"):
            grader.grade(zoo_project("does_not_compile"), throw_away_task("scale"))
        grader.close()
        assert not [*cache.rglob("result.json"), *cache.rglob(".new-*")]


_FILLED_MEANWHILE = """
import sys, tempfile
from pathlib import Path
from harness.builder.toolchain import find_toolchain
from harness.errors import InfraError
from harness.grading.grade import Grader
from harness.device.machine import machine_facts
from sandboxes.registry import open_sandbox
from tests.conftest import tiny
from tests.fakes.overlays import throw_away_task, zoo_project
from tests.test_storage import Fills

toolchain, sandbox = find_toolchain(), open_sandbox(sys.argv[2])
health = Fills(Path(tempfile.gettempdir()))
grader = Grader(tiny(Path(sys.argv[1])), sandbox, toolchain, machine_facts(toolchain), health)
try:
    grader.grade(zoo_project("correct"), throw_away_task("scale"))
except InfraError as error:
    print(f"{type(error).__name__}: {error}")
grader.close()
sandbox.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["local", pytest.param("bubblewrap", marks=_BWRAP)])
def test_temporary_files_without_room_are_named(name: str, tmp_path: Path, toolchain: Toolchain) -> None:
    """Whatever was being written: the folder is TMPDIR, and that can be set."""
    with tmpfs(tmp_path / "short", "size=1m") as short:
        done = subprocess.run(
            [sys.executable, "-c", _FILLED_MEANWHILE, tmp_path / "cache", name],
            env={**os.environ, "TMPDIR": str(short)},
            cwd=Path(__file__).parents[1],
            capture_output=True,
            text=True,
            check=False,
        )
    wanted = f"StorageError: {short} (temporary files) is full (0 MiB free): free some space, or set TMPDIR"
    assert done.stdout.startswith(wanted), done.stdout + done.stderr[-2000:]
