"""Finding and loading what is shipped."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.files import data_directory
from harness.skills.spec import load_skill
from harness.suite.catalogue import (
    LoadedTask,
    all_tasks,
    expert_project,
    load_task,
    read_project,
    select_tasks,
)


@pytest.mark.parametrize("loaded", all_tasks(), ids=lambda loaded: loaded.task.name)
def test_a_shipped_task_is_complete(loaded: LoadedTask) -> None:
    """Both targets, an expert, hidden shapes, and for every timed size the model that it comes from."""
    task = loaded.task
    assert set(task.dtypes) == {"cpu", "cuda"}
    assert task.hidden is not None and expert_project(task) is not None
    assert [w.name for w in task.workloads if w.timed and not w.source] == []
    for target in task.dtypes:
        assert sum(w.timed for w in task.workloads_for(target)) >= 2
        assert sum(not w.timed for w in task.workloads_for(target)) >= 3


def test_globs_select_by_id_and_by_name() -> None:
    """`l1/*` and `soft*` both work; a pattern without a match is an error."""
    assert {t.task.level for t in select_tasks(["l1/*"])} == {"l1"}
    assert [t.task.id for t in select_tasks(["soft*"])] == ["l1/softmax"]
    with pytest.raises(UsageError, match="no task matches 'no_such'"):
        select_tasks(["no_such"])


def test_the_digest_follows_the_bytes(tmp_path: Path) -> None:
    """The same files give the same digest elsewhere; one more space gives another."""
    source = data_directory("tasks") / "l1" / "rms_norm"
    copy = tmp_path / "l1" / "rms_norm"
    shutil.copytree(source, copy)
    assert load_task(copy).task.digest == load_task(source).task.digest
    with (copy / "reference.py").open("a") as file:
        file.write("\n")
    assert load_task(copy).task.digest != load_task(source).task.digest


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('shape = ["rows", "cols"]', 'shape = ["rows", "colz"]', "unknown dim 'colz'"),
        ('role = "out"', 'role = "in"', "nothing is written"),
        ("version = 1", 'version = "one"', "version"),
        ("scalars = { eps = 1e-5 }", "scalars = { }", "no value for scalar eps"),
        ('title = "', 'titel = "', "titel"),
        ("rows = [1, 300], cols", "cols", "hidden.dims has"),
        ("rows = [1, 300]", "rows = [9, 3]", "needs 0 <= low <= high"),
        ("rows = [1, 300]", "rows = [1, 300, 0]", "step >= 1"),
        ("version = 1", 'version = 1\nkeep = ["z"]', "unknown operands"),
    ],
)
def test_a_broken_task_is_refused_with_file_and_reason(tmp_path: Path, old: str, new: str, said: str) -> None:
    """A task.toml that cannot work is a usage error that names it."""
    copy = tmp_path / "l1" / "rms_norm"
    shutil.copytree(data_directory("tasks") / "l1" / "rms_norm", copy)
    path = copy / "task.toml"
    path.write_text(re.sub(r"^version = \d+", "version = 1", path.read_text()).replace(old, new))
    with pytest.raises(UsageError, match=said) as caught:
        load_task(copy)
    assert str(path) in str(caught.value)


def test_skills_are_found_by_name_and_by_folder(tmp_path: Path) -> None:
    """A shipped skill by name, any other by its folder."""
    shipped = load_skill("cuda-kernel-builder")
    assert load_skill(str(shipped.directory)).skill == shipped.skill
    with pytest.raises(UsageError, match="cuda-kernel-builder"):
        load_skill(str(tmp_path))


def test_a_project_is_read_without_leftovers_and_links(tmp_path: Path) -> None:
    """Hidden files, build folders, names and contents that are no text, objects and links are no part."""
    (tmp_path / "build.toml").write_text("x")
    (tmp_path / "a.cpp").write_text("int a;")
    for name in (".hidden", "a.so", "build/x.cpp", "__pycache__/y.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("no")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG\xff")
    (tmp_path / os.fsdecode(b"\xff.cpp")).write_text("no build.toml can name it")
    (tmp_path / "link.cpp").symlink_to("/etc/passwd")
    (tmp_path / "folder").symlink_to("/etc")
    (tmp_path / "src" / "build").mkdir(parents=True)
    (tmp_path / "src" / "build" / "b.cpp").write_text("int b;\r\n")
    project = read_project(tmp_path)
    assert [f.path for f in project.files] == ["a.cpp", "build.toml", "src/build/b.cpp"]
    assert project.files[-1].text == "int b;\r\n"
    assert {path: why[:18] for path, why in project.left_out.items()} == {
        "a.so": "is what a compiler",
        "folder": "is a symbolic link",
        "link.cpp": "is a symbolic link",
        "logo.png": "is not text (UTF-8",
    }


def test_what_is_no_project_is_refused(tmp_path: Path) -> None:
    """No build.toml, one that is a link or no text, and more than 32 MiB are usage errors."""
    with pytest.raises(UsageError, match=r"no build\.toml"):
        read_project(tmp_path)
    (tmp_path / "build.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"build\.toml is not text"):
        read_project(tmp_path)
    (tmp_path / "build.toml").unlink()
    (tmp_path / "other.toml").write_text("x")
    (tmp_path / "build.toml").symlink_to(tmp_path / "other.toml")
    with pytest.raises(UsageError, match=r"build\.toml is a symbolic link"):
        read_project(tmp_path)
    (tmp_path / "build.toml").unlink()
    (tmp_path / "build.toml").write_text("x")
    (tmp_path / "a.txt").write_text("x" * (32 << 20))
    with pytest.raises(UsageError, match="32 MiB"):
        read_project(tmp_path)
