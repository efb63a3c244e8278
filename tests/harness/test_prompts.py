"""What the student reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.catalogue import LoadedTask, all_tasks
from harness.prompts import make_request, signature, task_text
from harness.records import Arm, Sampling, Skill

SKILL = Skill(name="s", description="d", body="Do it well.", files=("SKILL.md",), digest="ab" * 32)
WITHOUT, WITH = Arm(kind="without_skill"), Arm(kind="with_skill", skills=(SKILL.digest,))


@pytest.fixture(params=["cpu", "cuda"])
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=all_tasks(), ids=lambda loaded: loaded.task.name)
def loaded(request: pytest.FixtureRequest) -> LoadedTask:
    task: LoadedTask = request.param
    return task


def test_arms_differ_in_the_skill_text_alone(loaded: LoadedTask, target: str) -> None:
    """Taking the skill out of the one prompt gives the other."""
    bare = make_request(loaded.task, target, WITHOUT, [], sampling=Sampling(), repeat=0)  # type: ignore[arg-type]
    full = make_request(loaded.task, target, WITH, [SKILL], sampling=Sampling(), repeat=0)  # type: ignore[arg-type]
    assert full.messages[0] == bare.messages[0]
    skill = '<skill name="s">\nDo it well.\n</skill>\n\n'
    assert full.messages[1].content == skill + bare.messages[1].content


def test_the_prompt_is_complete(loaded: LoadedTask, target: str) -> None:
    """Everything that the judge or the builder insists on stands in it."""
    text = task_text(loaded.task, target)  # type: ignore[arg-type]
    task = loaded.task
    wanted = [signature(task), f'name = "{task.package}"', f"torch-ext/{task.module}/__init__.py"]
    wanted += [f'backends = ["{target}"]', "edition = 5", "registration.h", "REGISTER_EXTENSION", "f = "]
    wanted += [f"`{o.name}`" for o in task.operands] + list(task.dtypes[target])  # type: ignore[index]
    wanted += ["torch/all.h", "torch/csrc/stable/library.h", "minute", "```toml build.toml"]
    for workload in task.workloads:
        wanted.append(", ".join(f"{k} = {v}" for k, v in workload.dims.items()))
    assert [w for w in wanted if w not in text] == []


def test_the_prompt_names_neither_arm_nor_machine(loaded: LoadedTask, target: str) -> None:
    """A student cannot tell which arm it is in, and the digest is the same everywhere."""
    request = make_request(loaded.task, target, WITHOUT, [], sampling=Sampling(), repeat=3)  # type: ignore[arg-type]
    text = "".join(m.content for m in request.messages)
    assert "without_skill" not in text
    assert str(Path.cwd()) not in text
    again = make_request(loaded.task, target, WITHOUT, [], sampling=Sampling(), repeat=0)  # type: ignore[arg-type]
    assert again.prompt_digest == request.prompt_digest


def test_a_rule_is_told_where_it_holds(loaded: LoadedTask, target: str) -> None:
    """Only a task that forbids library calls mentions them; every other prompt stays as it was."""
    ruled = {
        rule: task_text(loaded.task.model_copy(update={"library_calls": rule}), target)  # type: ignore[arg-type]
        for rule in ("forbid", "flag", "allow")
    }
    assert ruled["flag"] == ruled["allow"] == task_text(loaded.task, target)  # type: ignore[arg-type]
    assert "cuBLAS" in ruled["forbid"] and "dlopen" in ruled["forbid"]


def test_an_arm_gets_exactly_its_skills(loaded: LoadedTask) -> None:
    """A skill that the arm does not name is refused."""
    with pytest.raises(ValueError, match="wants skills"):
        make_request(loaded.task, "cpu", WITHOUT, [SKILL], sampling=Sampling(), repeat=0)
