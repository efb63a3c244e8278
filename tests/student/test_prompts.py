"""What the student reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.records import Arm, Briefing, Hidden, Sampling, Skill, Target
from harness.skills.spec import load_skill
from harness.student.prompts import make_request, signature, task_text
from harness.suite.catalogue import LoadedTask, all_tasks, load_task, select_tasks

SKILL = Skill(name="s", description="d", body="Do it well.", files=("SKILL.md",), digest="ab" * 32)
WITHOUT, WITH = Arm(kind="without_skill"), Arm(kind="with_skill", skills=(SKILL.digest,))


BRIEFINGS: tuple[Briefing, ...] = ("contract", "full")
EVERY_PROMPT = [(loaded, target) for loaded in all_tasks() for target in loaded.task.dtypes]
every_prompt = pytest.mark.parametrize(
    ("loaded", "target"),
    EVERY_PROMPT,
    ids=lambda one: one if isinstance(one, str) else one.task.name,
)


@every_prompt
def test_prompts_differ_in_the_skill_text_alone(loaded: LoadedTask, target: Target) -> None:
    """A prompt names neither its arm nor the machine, and its digest does not depend on the repeat."""
    bare = make_request(loaded.task, target, WITHOUT, [], sampling=Sampling(), repeat=0, briefing="full")
    full = make_request(loaded.task, target, WITH, [SKILL], sampling=Sampling(), repeat=0, briefing="full")
    assert full.messages[0] == bare.messages[0]
    skill = '<skill name="s">\nDo it well.\n</skill>\n\n'
    assert full.messages[1].content == skill + bare.messages[1].content
    text = "".join(m.content for m in bare.messages)
    assert "without_skill" not in text and str(Path.cwd()) not in text
    again = make_request(loaded.task, target, WITHOUT, [], sampling=Sampling(), repeat=3, briefing="full")
    assert again.prompt_digest == bare.prompt_digest


@every_prompt
def test_the_prompt_is_complete(loaded: LoadedTask, target: Target) -> None:
    """Everything that the judge or the builder insists on stands in it."""
    text = task_text(loaded.task, target, "full")
    task = loaded.task
    wanted = [signature(task), f'name = "{task.package}"', f"torch-ext/{task.module}/__init__.py"]
    wanted += [f'backends = ["{target}"]', "edition = 5", "registration.h", "REGISTER_EXTENSION"]
    wanted.append("Outputs must be exact." if task.tolerance == "exact" else "f = ")
    wanted += [f"`{o.name}`" for o in task.operands] + list(task.dtypes[target])
    wanted += ["torch/all.h", "torch/csrc/stable/library.h", "minute", "```toml build.toml"]
    for workload in task.workloads_for(target):
        wanted.append(", ".join(f"{k} = {v}" for k, v in workload.dims.items()))
    assert [w for w in wanted if w not in text] == []


@every_prompt
def test_a_rule_is_told_where_it_holds(loaded: LoadedTask, target: Target) -> None:
    """Prompts change only with rules that apply: forbidden library calls, but not unpromised values."""
    ruled = {
        rule: task_text(loaded.task.model_copy(update={"library_calls": rule}), target, "full")
        for rule in ("forbid", "flag", "allow")
    }
    assert ruled["flag"] == ruled["allow"] == task_text(loaded.task, target, "full")
    assert "cuBLAS" in ruled["forbid"] and "dlopen" in ruled["forbid"]
    bare = loaded.task.model_copy(update={"hidden": None, "values": ()})
    kinds = bare.model_copy(update={"values": ("tiny", "large", "sorted")})
    assert task_text(kinds, target, "full") == task_text(bare, target, "full")


def test_what_a_task_declares_is_told() -> None:
    """Hidden shapes, layouts, special values, lanes and bounds stand in the prompt; else nothing of them."""
    plain = select_tasks(["l1/softmax"])[0].task.model_copy(update={"hidden": None, "values": ()})
    before = task_text(plain, "cpu", "full")
    told = {
        "rows from 2 to 9 in steps of 3": {"hidden": Hidden(dims={"rows": (2, 9, 3), "cols": (1, 4)})},
        "NaN (which must reach": {"values": ("nan",)},
        "every second element": {"layouts": ("contiguous", "stepped")},
        "no more than their own size": {"layouts": ("contiguous", "misaligned")},
        "inputs of -1, 0 and 1 the result must be exact": {"exact": True},
        "rounded to TF32": {"precision": "tf32"},
        "by more than 1e-06 * (|value|": {"nondeterminism": 1e-6},
    }
    for sentence, declared in told.items():
        assert sentence not in before
        assert sentence in task_text(plain.model_copy(update=declared), "cpu", "full")


_WITHHELD = (
    "build.toml", "edition", "[general]", "[torch]", "[kernel", "depends", "`src`", "torch-ext", "_ops",
    "TORCH_", "REGISTER_", "registration", "pybind11", "torch/", "ATen", "stable ABI", "cxx-flags", "-O3",
)  # fmt: skip


@every_prompt
def test_the_contract_withholds_the_format_and_nothing_else(loaded: LoadedTask, target: Target) -> None:
    """Up to the project both briefings are the same text; then one names kernel-builder only."""
    contract, full = (task_text(loaded.task, target, one) for one in BRIEFINGS)
    before, _, told = contract.partition("## The project")
    assert before == full.partition("## The project")[0]
    assert [word for word in _WITHHELD if word in told] == []
    assert [word for word in _WITHHELD if word in before] in ([], ["depends"])  # as an English word
    assert f"project named `{loaded.task.package}` for the `{target}` backend" in told
    assert all(word in full for word in _WITHHELD)


def _recorded() -> list[Path]:
    root = Path(__file__).resolve().parents[2] / "demo" / "recordings"
    return sorted(root.glob("*/replies/*/*/*.json"))


@pytest.mark.parametrize("path", _recorded(), ids=lambda p: "/".join(p.parts[-5:]))
def test_recorded_prompts_are_still_the_prompts(path: Path) -> None:
    """With one turn and skills in the prompt not a byte has changed: the demo's replies answer it still."""
    demo = Path(__file__).resolve().parents[2] / "demo"
    recorded = json.loads(path.read_text())
    task = load_task(demo / "tasks" / path.parts[-3].replace("__", "/")).task
    skill = load_skill(str(demo / "skills" / "cuda-kernel-builder")).skill
    skills = [] if path.parts[-2].startswith("without_skill") else [skill]
    arm = Arm(kind="with_skill", skills=(skill.digest,)) if skills else WITHOUT
    made = make_request(task, "cpu", arm, skills, sampling=Sampling(), repeat=0, briefing="full")
    assert [m.model_dump(include={"role", "content"}) for m in made.messages] == [
        {"role": m["role"], "content": m["content"]} for m in recorded["prompt"]
    ]
    assert made.prompt_digest == recorded["prompt_digest"]


@pytest.mark.parametrize("delivery", ["body", "disclosed"])
@pytest.mark.parametrize("turns", [1, 3])
def test_what_comes_first_is_the_same_in_every_arm(delivery: Any, turns: int) -> None:
    """System text and tools follow from delivery and turns alone, and differ between those."""
    task = select_tasks(["l1/softmax"])[0].task
    arms = [
        (Arm(kind="without_skill", delivery=delivery), []),
        (Arm(kind="with_skill", skills=(SKILL.digest,), delivery=delivery), [SKILL]),
        (Arm(kind="placebo", skills=(SKILL.digest,), delivery=delivery), [SKILL]),
    ]
    made = [
        make_request(task, "cpu", arm, skills, sampling=Sampling(), repeat=0, briefing="full", turns=turns)
        for arm, skills in arms
    ]
    assert len({(r.messages[0], json.dumps([t.model_dump() for t in r.tools])) for r in made}) == 1
    assert all(r.messages[1].content.endswith(task_text(task, "cpu", "full")) for r in made)
    assert ("KEEP" in made[0].messages[0].content) == (turns > 1)
    assert [t.name for t in made[0].tools] == (["read_skill_file"] if delivery == "disclosed" else [])


def test_a_disclosed_prompt_lists_skills_and_shows_none() -> None:
    """Name and description stand before the task; without a skill, that there is none."""
    task = select_tasks(["l1/softmax"])[0].task
    listed = Arm(kind="with_skill", skills=(SKILL.digest,), delivery="disclosed")
    none = Arm(kind="without_skill", delivery="disclosed")
    asked: Any = {"sampling": Sampling(), "repeat": 0, "briefing": "full"}
    full = make_request(task, "cpu", listed, [SKILL], **asked).messages[1].content
    bare = make_request(task, "cpu", none, [], **asked).messages[1].content
    assert full.startswith('<skills>\n<skill name="s">d</skill>\n</skills>\n\n# Task:')
    assert SKILL.body not in full
    assert bare.startswith("No skills are available.\n\n# Task:")
    with pytest.raises(ValueError, match="wants skills"):  # a skill that the arm does not name
        make_request(task, "cpu", none, [SKILL], **asked)
