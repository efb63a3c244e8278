"""Tasks for Harbor (schema 1.4): the agent writes a project, and a separate verifier grades it.

    task.toml  instruction.md  environment/Dockerfile
    solution/solve.sh  solution/project/   our expert's files
    tests/Dockerfile  tests/test.sh        the verifier's image and what it runs
    tests/tasks/LEVEL/NAME/                the task as it is graded

The verifier writes named rewards for what the student did. A failure of ours leaves no reward file, which
Harbor reports as an error of the verifier.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any, Final

from harness import __version__
from harness.errors import UsageError
from harness.records import Briefing, Protocol, Target
from harness.records.grade import GRADER_VERSION
from harness.student.prompts import task_text
from harness.suite.catalogue import LoadedTask, expert_project

SCHEMA: Final = "1.4"
PROJECT: Final = "/app/project"
_BASE: Final = "python:3.12-slim-bookworm"
_TEMPLATES: Final = Path(__file__).parent / "templates" / "harbor"
_GPUS: Final = 'gpus = 1\ngpu_types = ["H100", "H200"]\n'


def _filled(template: str, **words: Any) -> str:
    return (_TEMPLATES / template).read_text().format(project=PROJECT, base=_BASE, **words)


def harbor_task(
    loaded: LoadedTask, target: Target, protocol: Protocol, briefing: Briefing, requirement: str
) -> dict[str, str]:
    """Texts by path. `requirement`: what pip installs. Raises UsageError for a wrong target."""
    task = loaded.task
    if target not in task.dtypes:
        raise UsageError(f"{task.id} is not for {target}")
    words = {
        "name": f"liftbench/{folder_name(loaded)}-{target}",
        "version": str(task.version),
        "title": task.title,
        "liftbench": __version__,
        "grader": GRADER_VERSION,
        "id": task.id,
        "digest": task.digest,
        "family": task.family,
        "target": target,
        "protocol": protocol,
        "briefing": briefing,
    }
    quoted = {key: json.dumps(text, ensure_ascii=False) for key, text in words.items()}
    gpu = target == "cuda"
    files = {
        "task.toml": _filled(
            "task.toml", schema=SCHEMA, cpus=8 if gpu else 2, gpus=_GPUS if gpu else "", **quoted
        ),
        "instruction.md": task_text(task, target, briefing) + _filled("instruction.md"),
        "environment/Dockerfile": _filled("environment.Dockerfile"),
        "tests/Dockerfile": _filled("verifier.Dockerfile", requirement=shlex.quote(requirement)),
        "tests/test.sh": _filled("test.sh", id=shlex.quote(task.id), target=target, protocol=protocol),
    }
    for name in ("task.toml", "reference.py"):
        files[f"tests/tasks/{task.id}/{name}"] = (loaded.directory / name).read_text()
    expert = expert_project(task)
    if expert is not None:
        files["solution/solve.sh"] = _filled("solve.sh")
        files |= {f"solution/project/{file.path}": file.text for file in expert.files}
    return files


def folder_name(loaded: LoadedTask) -> str:
    """The task's folder in an export."""
    return loaded.task.id.replace("/", "-")
