"""The arms of a study: the skill texts that are compared. No two arms have the same texts."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from harness.errors import UsageError
from harness.records import Arm, Delivery, Skill
from harness.skills.placebo import placebo

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
