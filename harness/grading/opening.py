"""Opens a grader of this machine. Imports torch, which listing, building and a dry run do without."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from harness.device.machine import Cores, cores_of_gpu, machine_facts
from harness.grading.grade import Grader
from harness.grading.setup import BuildSetup, GradingSetup, open_build_setup
from harness.grading.workers import GradeSettings
from harness.judge.usable_gpu import open_gpu
from harness.records import Protocol, Target


@dataclass(frozen=True)
class LocalGradingSetup(GradingSetup):
    """Grades in this process."""

    grader: Grader


def open_grading_setup(
    sandbox: str,
    cache: Path,
    say: Callable[[str], None],
    *,
    target: Target,
    protocol: Protocol,
    sanitize: bool = False,
    timed: bool = True,
    emulate: bool = True,
    gpu: str | None = None,
    cores: Cores | None = None,
) -> LocalGradingSetup:
    """For CUDA the GPU is opened: that with the UUID `gpu`, by default the first.

    `cores`: by default those of a single GPU; this process then runs on `cores.others`. Raises UsageError.
    """
    setup: BuildSetup = open_build_setup(sandbox, cache, say, target)
    machine = machine_facts(setup.toolchain, gpu)
    settings = GradeSettings(
        target=target, protocol=protocol, cache=setup.cache, sanitize=sanitize, timed=timed
    )
    opened = None
    if target == "cuda" and machine.gpu_uuid is not None:
        found = open_gpu(machine)
        if isinstance(found, str):
            say(f"GPU {machine.gpu}: not measured: {found}")
            settings = replace(settings, no_device=found)
        else:
            say(f"GPU {machine.gpu}: memory is shared by {found.transport.name}")
            settings, opened = replace(settings, device=found.uuid), found
            cores = cores or cores_of_gpu(0, 1)
            os.sched_setaffinity(0, cores.others)
    settings = replace(settings, emulate=emulate and target == "cuda" and opened is None)
    grader = Grader(settings, setup.sandbox, setup.toolchain, machine, gpu=opened, cores=cores)
    return LocalGradingSetup(setup.sandbox, setup.toolchain, setup.cache, grader, machine)
