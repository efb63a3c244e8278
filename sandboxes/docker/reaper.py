"""Removes containers that a dead harness has left.

A container of a living harness is never touched before its deadline, which lies far beyond the end of any
job.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import docker.errors

from sandboxes.docker.engine import DockerEngine, asking
from sandboxes.owners import Owner

MARK_LABEL: Final = "org.liftbench.job"
OWNER_LABEL: Final = "org.liftbench.owner"
DEADLINE_LABEL: Final = "org.liftbench.deadline"
"""Seconds since 1970. For owners that cannot be seen: in another container with the engine's socket."""


def remove_orphans(engine: DockerEngine) -> list[str]:
    """Names of those that were removed. Raises SandboxError when the engine fails."""
    removed = []
    with asking("list containers"):
        found = engine.api.containers(all=True, filters={"label": MARK_LABEL})
    for entry in found:
        if not is_orphan(entry.get("Labels") or {}, time.time()):
            continue
        with asking("remove a container of a dead harness"):
            try:
                engine.api.remove_container(entry["Id"], force=True, v=True)
            except docker.errors.NotFound:
                continue  # somebody else was quicker
            except docker.errors.APIError as error:
                if error.status_code != 409:  # "removal is already in progress"
                    raise
        removed.append(str(entry["Names"][0]).lstrip("/"))
    return removed


def is_orphan(labels: Mapping[str, str], now_s: float) -> bool:
    """Whether what carries these labels has outlived its harness, or its time where that cannot be seen."""
    owner = Owner.parse(labels.get(OWNER_LABEL, ""))
    deadline = labels.get(DEADLINE_LABEL, "")
    if owner is None or not deadline.isdigit():
        return True  # marked as ours, by nobody of ours
    return owner.is_dead() if owner.is_visible() else now_s > int(deadline)
