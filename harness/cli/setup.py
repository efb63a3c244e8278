"""Builds what grades projects on this machine from options: sandbox, toolchain, GPU, grader."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from harness.builder.toolchain import find_toolchain, toolchain_of_image
from harness.cli.options import cache_folder
from harness.device.machine import machine_facts
from harness.errors import SandboxError, UsageError
from harness.records import Protocol, Target
from harness.study.execute import Bench, Workshop
from sandboxes.cgroups import Cgroups
from sandboxes.orphans import remove_orphans
from sandboxes.pool import StoppableSandbox
from sandboxes.registry import LOCAL_WARNING, choose_sandbox


def make_workshop(sandbox: str, cache: Path | None) -> Workshop:
    """The sandbox of that name; stderr says which it is and why, and warns if nothing isolates.

    Removes what killed runs have left. Raises UsageError when there is no such sandbox.
    """
    _tidy()
    choice = choose_sandbox(sandbox)
    print(f"sandbox {choice.sandbox.name}: {choice.why}", file=sys.stderr)
    if choice.sandbox.name == "local":
        print(f"warning: {LOCAL_WARNING}", file=sys.stderr)
    image, folder = choice.sandbox.image, cache_folder(cache)
    if image is None:
        toolchain = find_toolchain()
    else:
        toolchain = toolchain_of_image(image.description(), image.view(folder))
    return Workshop(StoppableSandbox(choice.sandbox), toolchain, folder)


def _tidy() -> None:
    """Remove what killed runs have left; a failure is a warning."""
    try:
        remove_orphans(groups=Cgroups.find())
    except SandboxError as error:
        print(f"warning: something of an earlier run is left: {error}", file=sys.stderr)


def make_bench(
    target: Target,
    protocol: Protocol,
    sandbox: str,
    cache: Path | None,
    *,
    sanitize: bool = False,
    timed: bool = True,
) -> Bench:
    """A grader for this machine. For CUDA the GPU is opened. Raises UsageError."""
    if sanitize and target == "cpu":
        raise UsageError("--sanitize: compute-sanitizer is for CUDA; use --target cuda")
    workshop = make_workshop(sandbox, cache)
    missing = workshop.toolchain.missing(target)
    if missing is not None:
        raise UsageError(f"cannot build for {target}: {missing}")
    # They import torch, which listing, building and a dry run do without.
    from harness.grading.grade import Grader
    from harness.grading.workers import GradeSettings
    from harness.judge.gpu import open_gpu

    machine = machine_facts(workshop.toolchain)
    settings = GradeSettings(
        target=target, protocol=protocol, cache=workshop.cache, sanitize=sanitize, timed=timed
    )
    gpu = None
    if target == "cuda" and machine.gpu_uuid is not None:
        found = open_gpu(machine)
        if isinstance(found, str):
            print(f"GPU {machine.gpu}: not measured: {found}", file=sys.stderr)
            settings = replace(settings, no_device=found)
        else:
            print(f"GPU {machine.gpu}: memory is shared by {found.transport.name}", file=sys.stderr)
            settings, gpu = replace(settings, device=found.uuid), found
    grader = Grader(settings, workshop.sandbox, workshop.toolchain, machine, gpu=gpu)
    return Bench(workshop.sandbox, workshop.toolchain, workshop.cache, grader, machine)
