"""Run folders for the board, of made-up trials."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness.board.runs import BoardRun, read_run
from harness.board.submission import Shipped
from harness.board.tables import Claim, claims_of
from harness.outcome import Cause
from harness.records import Project, ProjectFile, RunRecord, TrialRecord, Turn
from harness.study.plan import generation_key, plan, prompt_digests, request_for
from harness.study.store import RunStore
from harness.suite.catalogue import select_tasks
from tests.fakes.trials import A_SKILL
from tests.report import factories as make

GOOD = Cause.PASSED
N_FAMILIES = 10
TEXT = "```toml build.toml\n[general]\n# {}\n```\n"

Speed = Callable[[bool, int], float]


def speed(with_skill: float, without: float = 1.2) -> Speed:
    """Speedups of both arms; families differ a little."""
    return lambda skilled, family: (with_skill if skilled else without) * (1 + family / 100)


def store(root: Path, name: str, speedup: Speed, **changes: Any) -> Path:
    """A finished run: every trial is correct, with that speedup."""
    run_id = changes.pop("run_id", name)
    regraded_from = changes.pop("regraded_from", None)
    text, graded = changes.pop("text", ""), changes.pop("graded", {})
    tasks = make.families(N_FAMILIES)
    given: dict[str, Any] = {"protocol": "full", "repeats": 5}
    record = make.run(tasks, **(given | changes)).model_copy(
        update={"run_id": run_id, "regraded_from": regraded_from}
    )
    lines = []
    for model in record.config.models:
        for arm in record.config.arms:
            for index, task in enumerate(tasks):
                for repeat in range(record.config.repeats):
                    value = speedup(arm is not record.config.arms[0], index)
                    answer = make.reply(text=text and f"{text} {task} {arm.id} {repeat}")
                    place = {"model": model.name, "repeat": repeat, "speedup": value, "answer": answer}
                    lines.append(make.trial(task, arm, GOOD, **place, **graded).model_dump_json())
    made = RunStore.create(root / name, record)
    (made.folder / "trials.jsonl").write_text("\n".join(lines) + "\n")
    return made.folder


def board_run(root: Path, name: str, speedup: Speed, **changes: Any) -> BoardRun:
    """The same, read."""
    return read_run(store(root, name, speedup, **changes))


def claims(*runs: BoardRun, own: tuple[BoardRun, ...] = ()) -> list[Claim]:
    """Entries of runs, as tables need them."""
    return [claim for one in runs for claim in claims_of(one, own)]


@functools.cache
def shipped() -> Shipped:
    """Ten of our tasks, of as many families, and the skill of the made-up runs."""
    first = {one.task.family: one for one in reversed(select_tasks([]))}
    chosen = sorted(first.values(), key=lambda one: one.task.id)[:N_FAMILIES]
    return Shipped({one.task.id: one for one in chosen}, {A_SKILL.digest: A_SKILL})


def submitted(root: Path, name: str = "one", speedup: float = 2.0, **changes: Any) -> Path:
    """A run over our tasks whose prompts, replies and projects are what was asked, answered and graded."""
    tasks, skills = shipped().tasks, shipped().skills
    graded = changes.pop("graded", {})
    record = make.run({task: one.task.family for task, one in tasks.items()}, protocol="full", repeats=5)
    lock = {
        "tasks": {task: one.task.digest for task, one in tasks.items()},
        "families": {task: one.task.family for task, one in tasks.items()},
        "prompts": prompt_digests(record.config, tasks, skills),
    }
    update = {"run_id": name, "lock": record.lock.model_copy(update=lock)} | changes
    record = record.model_copy(update=update)
    made, lines = RunStore.create(root / name, record), []
    for key in plan(record.config):
        request = request_for(key, record.config, tasks, skills)
        text = TEXT.format(f"{name} {key.task} {key.arm} {key.repeat} " + "x" * 200)
        project = Project(files=(ProjectFile(path="build.toml", text=text.partition("\n")[2][:-4]),))
        value = speedup if key.arm.startswith("with_") else 1.2
        facts = {"task_digest": tasks[key.task].task.digest, "project": project.digest}
        grade = make.grade(key, speedup=value, timing=make.timed(value), **(facts | graded))
        turn = Turn(
            index=0,
            prompt_digest=request.prompt_digest,
            reply=make.reply(text=text),
            project=project.digest,
            grade=grade,
        )
        trial = TrialRecord(
            key=key,
            generation_key=generation_key(key, request),
            grading_key=None,
            turns=(turn,),
            started="2026-03-14T10:20:00Z",
            finished="2026-03-14T10:22:00Z",
        )
        lines.append(trial.model_dump_json())
        folder = made.turn_folder(key)
        (folder / "project").mkdir(parents=True)
        (folder / "prompt.json").write_text(request.model_dump_json())
        (folder / "project" / "build.toml").write_text(project.files[0].text)
        (folder / "build.log").write_text("nvcc says nothing\n")
    (made.folder / "trials.jsonl").write_text("\n".join(lines) + "\n")
    return made.folder


def edit_run(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change run.json."""
    data = json.loads((folder / "run.json").read_text())
    change(data)
    (folder / "run.json").write_text(RunRecord.model_validate(data).model_dump_json())


def edit_trials(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change every trial."""
    path = folder / "trials.jsonl"
    trials = [json.loads(line) for line in path.read_text().splitlines()]
    for trial in trials:
        change(trial)
    path.write_text("".join(json.dumps(trial) + "\n" for trial in trials))
