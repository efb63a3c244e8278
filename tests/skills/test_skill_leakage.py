"""What a skill has in common with the solutions of tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from harness.files import data_directory
from harness.skills.leakage import Leak, leaked_tasks, overlaps
from harness.student.prompts import SYSTEM, task_text
from harness.suite.catalogue import LoadedTask, all_tasks, load_task, read_project

EXPERTS = data_directory("kernels_ref")


@pytest.fixture(scope="module")
def tasks() -> list[LoadedTask]:
    """The shipped suite."""
    return all_tasks()


def expert(task: str, file: str) -> str:
    """A file of a task's expert project."""
    return (EXPERTS / task / file).read_text()


SCAN = "selective_scan_cuda/selective_scan.cu"


def test_a_skill_with_an_expert_kernel_leaks_exactly_that_task(tasks: list[LoadedTask]) -> None:
    """The kernel is found at its place in the skill and in the project, and no other task is named."""
    kernel = expert("l3/selective_scan", SCAN)
    text = f"# Scans\n\nLike this:\n\n```cuda\n{kernel}```\n"
    assert leaked_tasks({"SKILL.md": "Nothing.\n", "references/scan.md": text}, tasks).keys() == {
        "l3/selective_scan"
    }
    (leak,) = overlaps({"SKILL.md": "Nothing.\n", "references/scan.md": text}, tasks)
    assert (leak.file, leak.source_file) == ("references/scan.md", f"kernels_ref/l3/selective_scan/{SCAN}")
    assert (leak.line, leak.source_line) == (6, 1)
    assert leak.longest > leak.count > 100
    assert leak.excerpt == kernel.split("\n")[0][:100]
    assert Leak.model_validate_json(leak.model_dump_json()) == leak


def test_part_of_a_kernel_with_other_spacing_is_found(tasks: list[LoadedTask]) -> None:
    """Line breaks, spaces and included headers do not hide a copied function."""
    lines = expert("l1/histogram", "histogram_cuda/histogram.cu").split("\n")
    part = " ".join(line for line in lines[len(lines) // 3 :] if not line.lstrip().startswith(("//", "#")))
    assert "l1/histogram" in leaked_tasks({"SKILL.md": part}, tasks)


def test_a_reference_is_found_too(tasks: list[LoadedTask]) -> None:
    """What computes the truth is part of the solution."""
    text = (data_directory("tasks") / "l3" / "selective_scan" / "reference.py").read_text()
    found = overlaps({"SKILL.md": text}, tasks)
    assert found[0].source_file == "reference.py"
    assert found[0].task == "l3/selective_scan"


def test_what_the_prompt_says_is_no_leak(tasks: list[LoadedTask]) -> None:
    """A skill that holds a task's whole prompt tells the student nothing new."""
    loaded = next(one for one in tasks if one.task.id == "l3/selective_scan")
    prompt = "\n".join([SYSTEM, *(task_text(loaded.task, target) for target in loaded.task.dtypes)])
    assert leaked_tasks({"SKILL.md": prompt}, [loaded]) == {}


def test_bindings_and_build_files_are_no_leak(tasks: list[LoadedTask]) -> None:
    """Every project has them, and the prompt teaches how they are made."""
    project = read_project(EXPERTS / "l3" / "selective_scan")
    texts = {f.path: f.text for f in project.files if f.path.startswith(("build.toml", "torch-ext/"))}
    assert len(texts) >= 3
    assert leaked_tasks(texts, tasks) == {}


def test_what_many_families_have_in_common_is_no_leak(tasks: list[LoadedTask]) -> None:
    """The answer for a task is the same whether one or all tasks are asked about."""
    texts = {"SKILL.md": expert("l1/rms_norm", "rms_norm_cuda/rms_norm.cu")}
    every = leaked_tasks(texts, tasks)
    one = [task for task in tasks if task.task.id == "l1/rms_norm"]
    assert leaked_tasks(texts, one) == {"l1/rms_norm": every["l1/rms_norm"]}
    assert max(every, key=lambda name: every[name]) == "l1/rms_norm"
    assert not {"l1/gemm", "l1/histogram", "l3/selective_scan", "l1/conv2d"} & every.keys()


def test_a_users_own_task_is_compared_as_well(tmp_path: Path) -> None:
    """A task from another folder needs no expert project: its reference is enough."""
    source = data_directory("tasks") / "l3" / "selective_scan"
    shutil.copytree(source, tmp_path / "mine" / "my_scan")
    own = load_task(tmp_path / "mine" / "my_scan")
    text = (source / "reference.py").read_text()
    assert leaked_tasks({"SKILL.md": text}, [own]).keys() == {"mine/my_scan"}


def test_nothing_in_common_is_nothing(tasks: list[LoadedTask]) -> None:
    """No text, plain advice, and a few tokens give no leak."""
    assert overlaps({}, tasks) == ()
    assert overlaps({"SKILL.md": ""}, tasks) == ()
    assert overlaps({"SKILL.md": "for (int i = 0; i < n; ++i) out[i] = x[i];\n" * 50}, tasks) == ()


def test_a_row_that_is_repeated_counts_once(tasks: list[LoadedTask]) -> None:
    """One comment a thousand times is still one idiom's worth of evidence, and no leak."""
    line = expert("l3/selective_scan", SCAN).split("\n")[3]
    assert overlaps({"SKILL.md": f"{' '.join(line.split()[:15])}\n\n" * 1_000}, tasks) == ()


@pytest.mark.parametrize("skill", sorted(p.name for p in data_directory("skills").iterdir() if p.is_dir()))
def test_our_own_skills_leak_no_task(skill: str, tasks: list[LoadedTask]) -> None:
    """A skill that shows a task's solution would measure copying, not teaching."""
    folder = data_directory("skills") / skill
    texts = {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert leaked_tasks(texts, tasks) == {}
