"""Turns a resolved configuration into trials, their requests and keys.

Arms are interleaved, so that any prefix of the plan is nearly balanced; the order depends only on the seed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from harness.errors import UsageError
from harness.records import Grade, Request, RunConfig, RunLock, Skill, TrialKey, digest_of
from harness.records.grade import GRADER_VERSION
from harness.student.prompts import make_request
from harness.suite.catalogue import LoadedTask
from sandboxes.job import IMAGES_FACT


def plan(config: RunConfig) -> list[TrialKey]:
    """All trials: repeat by repeat, tasks and models shuffled, the arms of a task adjacent."""
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


def request_for(
    key: TrialKey, config: RunConfig, tasks: Mapping[str, LoadedTask], skills: Mapping[str, Skill]
) -> Request:
    """The first request of a trial. `skills` by digest."""
    arm = next(arm for arm in config.arms if arm.id == key.arm)
    sampling = config.sampling
    if sampling.seed is not None:
        # Servers that honor a seed would give all repeats the same reply.
        sampling = sampling.model_copy(update={"seed": sampling.seed + key.repeat})
    return make_request(
        tasks[key.task].task,
        config.target,
        arm,
        [skills[digest] for digest in arm.skills],
        sampling=sampling,
        repeat=key.repeat,
        briefing=config.briefing,
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
    """Digest of what was paid for: prompt (briefing and tools included), model, sampling and repeat."""
    return digest_of([request.prompt_digest, key.model, request.sampling.model_dump(), key.repeat])


def grading_key(grade: Grade) -> str | None:
    """Digest of what was judged, by which grader, where; None without a project."""
    if grade.project is None:
        return None
    facts = [grade.project, grade.task_digest, grade.target, grade.protocol, GRADER_VERSION]
    image = grade.sandbox_facts.get(IMAGES_FACT)
    return digest_of([*facts, grade.sandbox, *([image] if image else []), grade.machine])


def run_hash(config: RunConfig, lock: RunLock) -> str:
    """8 hex digits, equal for the same command on the same inputs."""
    pinned = lock.model_dump(include={"grader_version", "tasks", "families", "skills", "prompts", "image"})
    # The prompts differ by briefing already, and runs from before there was one keep their hash.
    return digest_of([config.model_dump(mode="json", exclude={"briefing"}), pinned])[:8]
