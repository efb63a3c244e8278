"""A study: the tasks, arms and models that are compared, and the level at which it decides.

No two arms have the same texts; equal studies have equal hashes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Final

from harness import __version__
from harness.errors import UsageError
from harness.records import (
    Arm,
    Briefing,
    Delivery,
    MachineFacts,
    Metric,
    ModelSpec,
    Protocol,
    RunConfig,
    RunLock,
    RunSettings,
    Sampling,
    Skill,
    Target,
    digest_of,
    utc_now,
)
from harness.records.grade import GRADER_VERSION
from harness.skills.lineage import Look, LookLog, lineage_of, look_at, looks_file
from harness.skills.placebo import placebo
from harness.skills.spec import LoadedSkill
from harness.study.plan import prompt_digests
from harness.suite.catalogue import LoadedTask

MOST_COMBINED: Final = 4
"""Skills for --combine: 4 make 15 arms."""


@dataclass(frozen=True)
class Arms:
    """Arms, and the skill texts that they name by digest."""

    arms: tuple[Arm, ...]
    library: Mapping[str, Skill]
    named: tuple[str, ...]

    @property
    def digests(self) -> dict[str, str]:
        """Name to digest of every text; a second text of the same name is `NAME@DIGEST`."""
        found: dict[str, str] = {}
        for digest, text in self.library.items():
            found[f"{text.name}@{digest[:8]}" if text.name in found else text.name] = digest
        return found


def make_arms(
    skills: Sequence[Skill],
    *,
    combine: bool = False,
    with_placebo: bool = False,
    old: Skill | None = None,
    delivery: Delivery = "body",
    control: bool = True,
) -> Arms:
    """without_skill (if `control`), old_skill, each skill (and each combination), and a placebo for each.

    Raises UsageError for equal skills, too many skills to combine, or `old` with several skills.
    """
    _reject_equal(skills, old)
    if combine and not 2 <= len(skills) <= MOST_COMBINED:
        raise UsageError(f"--combine takes 2 to {MOST_COMBINED} skills, here are {len(skills)}")
    if old is not None and len(skills) != 1:
        raise UsageError("--arms old=DIR: an old version is compared with one skill; give one skill only")
    sets: list[tuple[Skill, ...]] = [(skill,) for skill in skills]
    if combine:
        for size in range(2, len(skills) + 1):
            sets += itertools.combinations(skills, size)
    arms = [Arm(kind="without_skill", delivery=delivery)] if control else []
    library = {skill.digest: skill for skill in skills}
    if old is not None:
        library[old.digest] = old
        arms.append(Arm(kind="old_skill", skills=(old.digest,), delivery=delivery))
    digests = [tuple(skill.digest for skill in chosen) for chosen in sets]
    arms += [Arm(kind="with_skill", skills=chosen, delivery=delivery) for chosen in digests]
    if with_placebo:
        texts = {skill.digest: placebo(skill, index) for index, skill in enumerate(skills)}
        library |= {text.digest: text for text in texts.values()}
        replaced = [tuple(texts[digest].digest for digest in chosen) for chosen in digests]
        arms += [Arm(kind="placebo", skills=chosen, delivery=delivery) for chosen in replaced]
    return Arms(tuple(arms), library, tuple(skill.name for skill in skills))


def _reject_equal(skills: Sequence[Skill], old: Skill | None) -> None:
    named = [*skills, *([old] if old is not None else [])]
    for first, second in itertools.combinations(named, 2):
        if first.digest == second.digest:
            raise UsageError(f"{first.name} and {second.name} are the same skill: no lift could be measured")
    names = [skill.name for skill in skills]
    if len(set(names)) != len(names):
        raise UsageError(f"two skills have one name: {', '.join(names)}")


@dataclass(frozen=True)
class Study:
    """What is measured, independent of this machine. Raises UsageError when nothing is left to compare."""

    arms: Arms
    tasks: Sequence[LoadedTask]
    models: tuple[ModelSpec, ...]
    _: KW_ONLY
    repeats: int
    target: Target
    protocol: Protocol
    sampling: Sampling
    metric: Metric
    briefing: Briefing
    turns: int = 1
    alpha: float = 0.05
    leaked: Mapping[str, str] = field(default_factory=dict)
    """Task id to where a skill contains its reference or expert project."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise UsageError("no tasks are left to run")
        unfit = [t.task.id for t in self.tasks if self.target not in t.task.dtypes]
        if unfit:
            raise UsageError(f"not for target {self.target}: {', '.join(unfit)}")

    @property
    def trials(self) -> int:
        return len(self.tasks) * len(self.models) * len(self.arms.arms) * self.repeats

    @property
    def design(self) -> str:
        """Digest of everything but alpha; with a skill's digest it identifies a look."""
        tasks = sorted(t.task.digest for t in self.tasks)
        models = [spec.model_dump(mode="json") for spec in self.models]
        how = [self.repeats, self.target, self.protocol, self.metric, self.turns]
        told = [] if self.briefing == "full" else [self.briefing]  # digests of earlier looks stay
        kinds = [[arm.kind, arm.delivery, len(arm.skills)] for arm in self.arms.arms]
        # Other arms make another run, with replies of its own.
        return digest_of(
            [tasks, models, how, kinds, sorted(self.arms.library), self.sampling.model_dump(), *told]
        )

    def resolve(self, sandbox: str, machine: MachineFacts, image: str | None) -> tuple[RunConfig, RunLock]:
        """Configuration and lock on this machine; `image`: digest of the sandbox image, if any."""
        here = {"sandbox": sandbox, "seed": 0}
        settings = {name: getattr(self, name) for name in RunSettings.model_fields if name not in here}
        config = RunConfig(
            tasks=tuple(t.task.id for t in self.tasks),
            skills=self.arms.named,
            models=self.models,
            arms=self.arms.arms,
            **(settings | here),
        )
        lock = RunLock(
            grader_version=f"{__version__}/{GRADER_VERSION}",
            tasks={t.task.id: t.task.digest for t in self.tasks},
            families={t.task.id: t.task.family for t in self.tasks},
            skills=self.arms.digests,
            briefing=self.briefing,
            prompts=prompt_digests(config, {t.task.id: t for t in self.tasks}, self.arms.library),
            machine=machine,
            image=image,
            leaked=dict(self.leaked),
        )
        return config, lock


def with_looks(
    study: Study, skills: Sequence[LoadedSkill], say: Callable[[str], None], *, fresh: bool = False
) -> tuple[Study, tuple[Look, ...]]:
    """The study with alpha reduced by earlier looks at the same tasks, and the looks that it takes itself.

    Only skills that were refined here have looks. With `fresh` an existing run of the same study is another
    look. Nothing is written; see `record_looks`.
    """
    log = LookLog(looks_file())
    looks = [
        look_at(log, lineage, loaded.skill.digest, study.design, utc_now(), fresh=fresh)
        for loaded in skills
        if (lineage := lineage_of(loaded.directory)) is not None
    ]
    for look in looks:
        say(
            f"look {look.number} of lineage {look.lineage} at tasks that it was not refined on: decided at "
            f"alpha {look.alpha:g}"
        )
    return replace(study, alpha=min([study.alpha, *(look.alpha for look in looks)])), tuple(looks)


def record_looks(looks: Sequence[Look]) -> None:
    """Write looks to the log, before the first trial."""
    log = LookLog(looks_file())
    for look in looks:
        log.add(look)
