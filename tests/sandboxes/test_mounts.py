"""What of this host a job may read, by role."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from harness.errors import SandboxError
from sandboxes.job import Job, Limits, RoleName
from sandboxes.mounts import View, view_for

ROOT = Path(__file__).resolve().parents[2]


def view(role: RoleName, *readable: Path, device: str | None = None) -> View:
    """Of a job that names `readable`."""
    job = Job(role=role, argv=[], limits=Limits(wall_s=1.0), readable=readable, device=device)
    return view_for(job)


def seen(found: View, path: Path) -> bool:
    """Whether a real path is in a view: the nearest entry above it decides."""
    order = dict(found.in_order())
    nearest = next((p for p in (path, *path.parents) if p in order), None)
    return nearest is not None and order[nearest]


def granted(found: View, path: Path) -> bool:
    """The same, by what is granted without taking anything out again."""
    return any(whole and place in (path, *path.parents) for place, whole in found.granted())


@pytest.mark.parametrize("role", ["build", "run", "run_jit"])
def test_the_interpreter_is_there_and_our_source_is_not(role: RoleName) -> None:
    """Python and its packages are in every view; our packages, tasks and references in none."""
    found = view(role)
    for path in (Path(sys.executable).resolve(), Path(json.__file__).resolve(), Path("/usr/lib")):
        assert seen(found, path), path
        assert granted(found, path) or path == Path("/usr/lib"), path
    for path in (
        ROOT / "harness/grading/grade.py",
        ROOT / "tasks",
        ROOT / "sandboxes/job.py",
        Path("/etc/passwd"),
    ):
        assert not seen(found, path), path
        assert not granted(found, path), path


def test_our_source_is_excluded_unless_named() -> None:
    """Below a readable directory it is hidden; a named part of it is shown again."""
    found = view("run_jit", ROOT.parent, ROOT / "tasks")
    assert seen(found, ROOT.parent / "beside")
    assert seen(found, ROOT / "tasks/l1") and granted(found, ROOT / "tasks/l1")
    assert not seen(found, ROOT / "harness/grading/grade.py")
    assert not granted(found, ROOT / "harness/grading/grade.py")


def test_a_link_does_not_show_what_is_hidden(tmp_path: Path) -> None:
    """Our source is taken out under every name by which a job sees a directory above it."""
    (tmp_path / "other-name").symlink_to(ROOT.parent)
    found = view("run", tmp_path / "other-name")
    assert seen(found, tmp_path / "other-name")
    assert not seen(found, tmp_path / "other-name" / ROOT.name / "harness")
    assert all(path == path.resolve() for path, _ in found.granted())


def test_compilers_in_wheels_are_hidden_from_runs(tmp_path: Path) -> None:
    """The compilers that CUDA's and Triton's wheels bring are for builds and for jobs that compile."""
    site = tmp_path / "site-packages"
    compilers = [site / "nvidia/cu13/bin", site / "nvidia/cu13/nvvm", site / "triton/backends/nvidia/bin"]
    library = site / "nvidia/cu13/lib"
    for folder in [*compilers, library]:
        folder.mkdir(parents=True)
    for role, visible in (("run", False), ("run_jit", True), ("build", True)):
        found = view(role, site)  # type: ignore[arg-type]
        assert [seen(found, path / "ptxas") for path in compilers] == [visible] * 3
        assert [granted(found, path / "ptxas") for path in compilers] == [visible] * 3
        assert seen(found, library / "libcudart.so")
        assert granted(found, library / "libcudart.so")
    listed = {path for path, whole in view("run", site).granted() if not whole}
    assert {site, site / "nvidia", site / "nvidia/cu13"} <= listed  # Python finds packages by listing


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    """A directory that a job names and that is not there is an error with its path."""
    with pytest.raises(SandboxError, match="no-such-folder"):
        view("run", tmp_path / "no-such-folder")


def test_a_gpu_needs_more_of_the_machine() -> None:
    """With a device the machine's devices can be looked up; without one only its cores and memory."""
    assert not seen(view("run"), Path("/sys/devices/pci0000:00"))
    assert seen(view("run", device="0"), Path("/sys/devices/pci0000:00"))
