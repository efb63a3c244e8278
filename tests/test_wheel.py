"""What is shipped."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from harness.suite.catalogue import all_tasks

ROOT = Path(__file__).resolve().parent.parent

pytest.importorskip("build", reason="needs build (pip install 'liftbench[dev]')")
pytest.importorskip("hatchling", reason="needs hatchling (pip install 'liftbench[dev]')")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this checkout, made with leftovers lying about."""
    out = tmp_path_factory.mktemp("wheel")
    leftovers = [ROOT / "tasks/l1/rms_norm/__pycache__/x.pyc", ROOT / "kernels_ref/left.so"]
    made = [path for path in leftovers if not path.exists()]
    for path in made:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"left over")
    try:
        command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    finally:
        for path in made:
            path.unlink()
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The files in it."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_no_leftover_is_shipped(names: set[str]) -> None:
    """No objects, caches or build folders, whatever lay in the checkout."""
    for name in names:
        path = PurePosixPath(name)
        assert path.suffix not in {".so", ".o", ".pyc"}, name
        assert not {"__pycache__", "build", "runs"} & set(path.parts), name


def test_tasks_skills_experts_and_demo_are_shipped(names: set[str]) -> None:
    """Every tracked file of the data folders is in the wheel, and our packages are."""
    for folder in ("tasks", "skills", "kernels_ref", "demo"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                assert f"harness/_data/{path.relative_to(ROOT).as_posix()}" in names
    template = "harness/report/templates/report.html.j2"
    assert {"harness/worker/__main__.py", "sandboxes/inside.py", template} <= names


def test_the_wheel_finds_its_own_data(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, tasks and skills come from inside the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import harness\n"
        "from harness.skills.spec import load_skill\n"
        "from harness.suite.catalogue import all_tasks, expert_project\n"
        "tasks = all_tasks()\n"
        "assert expert_project(tasks[0].task) is not None\n"
        "print(len(tasks), load_skill('cuda-kernel-builder').directory, harness.__file__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith(f"{len(all_tasks())} ")
    assert done.stdout.count(str(tmp_path)) == 2
