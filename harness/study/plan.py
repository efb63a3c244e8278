"""From a resolved configuration to the list of trials, and their keys.

Arms are interleaved: any prefix of the plan holds nearly as many trials of one arm as of another; the order
depends on the seed alone.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from harness.errors import UsageError
from harness.grading.grade import GRADER_VERSION
from harness.records import (
    Arm,
    Grade,
    Request,
    RunConfig,
    RunLock,
    RunRecord,
    Skill,
    TrialKey,
    digest_of,
)
from harness.student.prompts import make_request
from harness.suite.catalogue import LoadedTask
from sandboxes.job import IMAGES_FACT


def plan(config: RunConfig) -> list[TrialKey]:
    """Every trial: repeat by repeat, tasks and models shuffled, the arms of a task side by side."""
    order = random.Random(config.seed)
    trials: list[TrialKey] = []
    for repeat in range(config.repeats):
        cells = [(task, model.name) for task in config.tasks for model in config.models]
        order.shuffle(cells)
        for task, model in cells:
            arms = [arm.id for arm in config.arms]
            order.shuffle(arms)
            trials += [TrialKey(task=task, model=model, arm=arm, repeat=repeat) for arm in arms]
    return trials


def arm_by_id(config: RunConfig) -> dict[str, Arm]:
    """The run's arms."""
    return {arm.id: arm for arm in config.arms}


def request_for(
    key: TrialKey, config: RunConfig, tasks: Mapping[str, LoadedTask], skills: Mapping[str, Skill]
) -> Request:
    """The prompt of a trial. `skills` by digest."""
    arm = arm_by_id(config)[key.arm]
    sampling = config.sampling
    if sampling.seed is not None:
        # One seed for all repeats would make them one reply on servers that honour it.
        sampling = sampling.model_copy(update={"seed": sampling.seed + key.repeat})
    return make_request(
        tasks[key.task].task,
        config.target,
        arm,
        [skills[digest] for digest in arm.skills],
        sampling=sampling,
        repeat=key.repeat,
        turns=config.turns,
    )


def prompt_digests(
    config: RunConfig, tasks: Mapping[str, LoadedTask], skills: Mapping[str, Skill]
) -> dict[str, str]:
    """`task/arm` to prompt digest. Raises UsageError where arms would differ in more than their skills."""
    if len({arm.delivery for arm in config.arms}) > 1:
        raise UsageError("the arms of one run have one delivery: evaluate `body` and `disclosed` in two runs")
    keys: Iterator[TrialKey] = (
        TrialKey(task=t, model="", arm=a.id, repeat=0) for t in config.tasks for a in config.arms
    )
    return {f"{k.task}/{k.arm}": request_for(k, config, tasks, skills).prompt_digest for k in keys}


def generation_key(key: TrialKey, request: Request) -> str:
    """What was paid for: prompt (tools included), model, sampling and repeat."""
    return digest_of([request.prompt_digest, key.model, request.sampling.model_dump(), key.repeat])


def grading_key(grade: Grade) -> str | None:
    """What was judged, by what, where; None without a project."""
    if grade.project is None:
        return None
    facts = [grade.project, grade.task_digest, grade.target, grade.protocol, GRADER_VERSION]
    image = grade.sandbox_facts.get(IMAGES_FACT)
    return digest_of([*facts, grade.sandbox, *([image] if image else []), grade.machine])


def run_hash(config: RunConfig, lock: RunLock) -> str:
    """8 hex digits: the same command on the same inputs gives the same run."""
    pinned = lock.model_dump(include={"grader_version", "tasks", "families", "skills", "prompts", "image"})
    return digest_of([config.model_dump(mode="json"), pinned])[:8]


def owed(run: RunRecord, finished: set[TrialKey]) -> list[TrialKey]:
    """The trials that are still to be done."""
    return [key for key in plan(run.config) if key not in finished]
