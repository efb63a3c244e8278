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
from typing import Final

from harness import __version__
from harness.errors import UsageError
from harness.records import Briefing, Protocol, Target
from harness.records.grade import GRADER_VERSION
from harness.student.prompts import task_text
from harness.suite.catalogue import LoadedTask, expert_project

SCHEMA: Final = "1.4"
PROJECT: Final = "/app/project"
_BASE: Final = "python:3.12-slim-bookworm"
_WHERE: Final = f"""
## Where the files go

Write the project's files below `{PROJECT}`, which exists and is empty: `{PROJECT}/build.toml` and so on.
What you say beside them is not read. No compiler and no GPU are here; the files are built, checked and timed
elsewhere.
"""
_TOML: Final = """\
schema_version = "{schema}"
artifacts = ["{project}"]

[task]
name = {name}
version = {version}
description = {title}
keywords = ["kernels", {target}, {family}]

[metadata]
liftbench = {liftbench}
grader_version = {grader}
task = {id}
digest = {digest}
family = {family}
target = {target}
protocol = {protocol}
briefing = {briefing}

[agent]
timeout_sec = 3600.0

[verifier]
environment_mode = "separate"
timeout_sec = 3600.0

[environment]
build_timeout_sec = 600.0
cpus = 1
memory_mb = 2048

[verifier.environment]
build_timeout_sec = 3600.0
cpus = {cpus}
memory_mb = 16384
{gpus}"""
_GPUS: Final = 'gpus = 1\ngpu_types = ["H100", "H200"]\n'
_ENVIRONMENT: Final = f"""\
FROM {_BASE}
RUN mkdir -p {PROJECT}
WORKDIR {PROJECT}
"""
_VERIFIER: Final = """\
FROM {base}
RUN apt-get update && apt-get install -y --no-install-recommends bubblewrap g++ git \\
 && rm -rf /var/lib/apt/lists/*
RUN pip install --no-cache-dir {requirement}
COPY . /tests
"""
_SOLVE: Final = f"""\
#!/bin/bash
set -eu
project="${{HARBOR_PROJECT:-{PROJECT}}}"
mkdir -p "$project"
cp -r "$(dirname "$0")/project/." "$project"
"""
_TEST: Final = """\
#!/bin/bash
# Writes reward.json, unless liftbench or this machine has failed. The flags of `liftbench grade` that are not
# given here can be set in the environment, such as LIFTBENCH_GRADE_SANDBOX.
set -u
logs="${{HARBOR_LOGS:-/logs}}/verifier"
mkdir -p "$logs"
rm -f "$logs/reward.json"
exec liftbench grade "${{HARBOR_PROJECT:-{project}}}" --task {id} --target {target} --protocol {protocol} \\
  --tasks-root "$(dirname "$0")/tasks" --rewards "$logs/reward.json" --json >"$logs/grade.json"
"""


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
        "task.toml": _TOML.format(
            schema=SCHEMA, project=PROJECT, cpus=8 if gpu else 2, gpus=_GPUS if gpu else "", **quoted
        ),
        "instruction.md": task_text(task, target, briefing) + _WHERE,
        "environment/Dockerfile": _ENVIRONMENT,
        "tests/Dockerfile": _VERIFIER.format(base=_BASE, requirement=shlex.quote(requirement)),
        "tests/test.sh": _TEST.format(
            project=PROJECT, id=shlex.quote(task.id), target=target, protocol=protocol
        ),
    }
    for name in ("task.toml", "reference.py"):
        files[f"tests/tasks/{task.id}/{name}"] = (loaded.directory / name).read_text()
    expert = expert_project(task)
    if expert is not None:
        files["solution/solve.sh"] = _SOLVE
        files |= {f"solution/project/{file.path}": file.text for file in expert.files}
    return files


def folder_name(loaded: LoadedTask) -> str:
    """The task's folder in an export."""
    return loaded.task.id.replace("/", "-")
