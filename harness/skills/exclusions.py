"""Tasks that cannot speak for a skill: those it was refined on, and those whose solution it holds.

An excluded task leaves every comparison of the run, in all arms.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness.skills.leakage import overlaps
from harness.skills.lineage import lineage_of, seen_tasks
from harness.skills.spec import LoadedSkill
from harness.suite.catalogue import LoadedTask


def excluded_tasks(skills: Sequence[LoadedSkill], tasks: Sequence[LoadedTask]) -> dict[str, str]:
    """Task id to the reason, for every task that any of the skills has an unfair advantage on."""
    found: dict[str, str] = {}
    families = {t.task.id: t.task.family for t in tasks}
    for loaded in skills:
        name = loaded.skill.name
        for leak in overlaps(loaded.skill.documents, tasks):
            found.setdefault(
                leak.task,
                f"{name} repeats {leak.source_file} ({leak.file}:{leak.line}, {leak.longest} tokens)",
            )
        lineage = lineage_of(loaded.directory)
        if lineage is not None:
            found |= seen_tasks(families, lineage.seen)
    return found
