"""Tasks that cannot speak for a skill are left out, with the reason."""

from __future__ import annotations

from pathlib import Path

from harness.skills.exclusions import excluded_tasks
from harness.skills.lineage import Lineage
from harness.skills.spec import LoadedSkill, load_skill, read_skill
from harness.suite.catalogue import expert_directory, select_tasks

TASKS = select_tasks(["l1/*"])


def skill(tmp_path: Path, body: str, marks: dict[str, str] | None = None) -> LoadedSkill:
    folder = tmp_path / "rows"
    folder.mkdir()
    metadata = "metadata:\n" + "".join(f'  {k}: "{v}"\n' for k, v in marks.items()) if marks else ""
    (folder / "SKILL.md").write_text(f"---\nname: rows\ndescription: d\n{metadata}---\n\n{body}\n")
    return LoadedSkill(read_skill(folder), folder)


def test_shipped_skills_hold_no_solution() -> None:
    """No task is left out of a study of what we ship."""
    shipped = [
        load_skill(name) for name in ("cpu-kernel-builder", "cuda-kernel-builder", "hopper-performance")
    ]
    assert excluded_tasks(shipped, select_tasks([])) == {}


def test_a_skill_with_an_expert_kernel_loses_that_task(tmp_path: Path) -> None:
    """A copied expert file is found, and the reason names file, line and source."""
    softmax = next(t for t in TASKS if t.task.id == "l1/softmax")
    directory = expert_directory(softmax.task)
    assert directory is not None
    source = max(directory.glob("*_cpu/*.cpp"), key=lambda path: path.stat().st_size)
    left_out = excluded_tasks([skill(tmp_path, f"```cpp\n{source.read_text()}```")], TASKS)
    assert "rows repeats kernels_ref/l1/softmax/" in left_out["l1/softmax"]
    assert "(SKILL.md:" in left_out["l1/softmax"]


def test_a_refined_skill_loses_what_it_was_refined_on(tmp_path: Path) -> None:
    """Families in the lineage's marks are left out, and only they."""
    families = {t.task.family for t in TASKS}
    seen = tuple(sorted(families)[:2])
    left_out = excluded_tasks([skill(tmp_path, "Words.", Lineage("abc", seen, 1).metadata)], TASKS)
    assert {t.task.family for t in TASKS if t.task.id in left_out} == set(seen)
    assert all("refined or chosen" in why for why in left_out.values())
