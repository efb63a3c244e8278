"""A task, a skill and replies so small that a whole eval takes seconds."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from harness.models.recording import RecordingManifest
from harness.records import Arm, Briefing, Reply, Sampling, Target, Usage
from harness.skills.spec import load_skill
from harness.student.prompts import make_request
from harness.suite.catalogue import load_task, read_project
from tests.fakes.overlays import TASKS, ZOO
from tests.fakes.recordings import create, write_reply


def project_reply(name: str, factor: str = "alpha", base: str = "base") -> str:
    """A reply with an honest project of the zoo, for the task t/NAME; it multiplies by `factor`."""
    blocks = [
        f"```text {file.path}\n{file.text}```\n".replace("scale", name).replace(
            "alpha * x[i]", f"{factor} * x[i]"
        )
        for file in read_project(ZOO / base).files
    ]
    return "Here it is.\n\n" + "\n".join(blocks)


def write_tasks(root: Path, names: tuple[str, ...]) -> Path:
    """Tasks `t/NAME` below root/tasks: a scaled copy, each of a family of its own."""
    for name in names:
        folder = root / "tasks" / "t" / name
        folder.mkdir(parents=True)
        toml = (TASKS / "t/scale/task.toml").read_text()
        (folder / "task.toml").write_text(re.sub(r'"(scale|test)"', f'"{name}"', toml))
        shutil.copy(TASKS / "t/scale/reference.py", folder)
    return root / "tasks"


def write_skill(root: Path) -> Path:
    """A skill called tiny-skill."""
    folder = root / "tiny-skill"
    folder.mkdir()
    (folder / "SKILL.md").write_text("---\nname: tiny-skill\ndescription: Says little.\n---\n\nMultiply.\n")
    return folder


def record(
    root: Path,
    tasks: Path,
    skill: Path,
    repeats: int,
    text: str,
    briefing: Briefing = "contract",
    target: Target = "cpu",
) -> Path:
    """A recording in which every trial got the same text."""
    loaded = [load_task(path.parent) for path in sorted(tasks.glob("*/*/task.toml"))]
    known = load_skill(str(skill)).skill
    folder = root / "recording"
    create(
        folder,
        RecordingManifest(
            model_label="fake/model",
            date="2026-01-01",
            tasks={t.task.id: t.task.digest for t in loaded},
            skills={known.name: known.digest},
            briefing=briefing,
        ),
    )
    for one in loaded:
        for arm in (Arm(kind="without_skill"), Arm(kind="with_skill", skills=(known.digest,))):
            skills = [known] if arm.skills else []
            for repeat in range(repeats):
                request = make_request(
                    one.task, target, arm, skills, sampling=Sampling(), repeat=repeat, briefing=briefing
                )
                reply = Reply(
                    text=text,
                    stop="end",
                    model_label="fake/model",
                    created="2026-01-01T00:00:00Z",
                    usage=Usage(input_tokens=100, output_tokens=50),
                )
                write_reply(folder, request, arm.id, reply)
    return folder
