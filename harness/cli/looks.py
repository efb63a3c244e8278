"""Looks of an eval at what a skill was not refined on: counted, told, noted.

A look is noted before its first trial; a dry run is none.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from harness.skills.lineage import Look, LookLog, lineage_of, look_at, looks_file
from harness.skills.spec import LoadedSkill
from harness.study.run import now
from harness.study.study import Study


def counted_look(
    study: Study, skills: Sequence[LoadedSkill], *, fresh: bool = False
) -> tuple[Study, tuple[Look, ...]]:
    """The study at the level that is left for it, and its looks: none for skills that no one refined here.

    `fresh`: an earlier run of the same is not gone on with, so this is another look.
    """
    log = LookLog(looks_file())
    looks = []
    for loaded in skills:
        lineage = lineage_of(loaded.directory)
        if lineage is not None:
            looks.append(look_at(log, lineage, loaded.skill.digest, study.design, now(), fresh=fresh))
    for look in looks:
        print(
            f"look {look.number} of lineage {look.lineage} at tasks that it was not refined on: decided at "
            f"alpha {look.alpha:g}",
            file=sys.stderr,
        )
    return replace(study, alpha=min([study.alpha, *(look.alpha for look in looks)])), tuple(looks)


def note_looks(looks: Sequence[Look]) -> None:
    """Before the first trial."""
    log = LookLog(looks_file())
    for look in looks:
        log.add(look)
