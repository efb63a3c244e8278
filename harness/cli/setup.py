"""From options to the objects that do the work: shared by the commands.

Nothing is started here; for CUDA the GPU is opened, and why it could not be is kept.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from harness.judge.gpu import Gpu
    from harness.records import MachineFacts, Protocol, Target
    from harness.study.bench import Bench, Workshop

TargetOption = Annotated[
    str, typer.Option(help="`cuda`: sm_90, an H100 or H200. `cpu`: everything on any machine.")
]
ProtocolOption = Annotated[str, typer.Option(help="`quick`, or `full` for leaderboards.")]
SandboxOption = Annotated[str, typer.Option(help="auto, docker, bubblewrap, landlock or local.")]
SanitizeOption = Annotated[
    bool,
    typer.Option("--sanitize", help="CUDA only: also run compute-sanitizer's four tools, up to 120 s each."),
]
TimedOption = Annotated[bool, typer.Option("--time/--no-time", help="Whether correct projects are timed.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the record as JSON on stdout.")]
TasksRootOption = Annotated[
    Path | None, typer.Option(help="Folder with tasks of your own (default: those that are shipped).")
]
CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Folder for builds (default: the user's cache folder).")
]


def parse_target(name: str) -> Target:
    """Raises UsageError for anything but cuda and cpu."""
    from harness.errors import UsageError

    if name == "cuda":
        return "cuda"
    if name == "cpu":
        return "cpu"
    raise UsageError(f"--target {name}: there are cuda and cpu")


def parse_protocol(name: str) -> Protocol:
    """Raises UsageError for anything but quick and full."""
    from harness.errors import UsageError

    if name == "quick":
        return "quick"
    if name == "full":
        return "full"
    raise UsageError(f"--protocol {name}: there are quick and full")


def cache_folder(given: Path | None) -> Path:
    """Where builds are kept."""
    if given is not None:
        return given.resolve()
    import platformdirs

    return Path(platformdirs.user_cache_dir("liftbench"))


def make_workshop(sandbox: str, cache: Path | None) -> Workshop:
    """The sandbox of that name; says on stderr which it is and why, and warns where nothing isolates.

    Removes what killed runs have left. Raises UsageError when there is no such sandbox.
    """
    from harness.builder.description import toolchain_of_image
    from harness.builder.toolchain import find_toolchain
    from harness.study.bench import Workshop
    from sandboxes.pool import StoppableSandbox
    from sandboxes.registry import LOCAL_WARNING, choose_sandbox

    _tidy()
    choice = choose_sandbox(sandbox)
    print(f"sandbox {choice.sandbox.name}: {choice.why}", file=sys.stderr)
    if choice.sandbox.name == "local":
        print(f"warning: {LOCAL_WARNING}", file=sys.stderr)
    image = choice.sandbox.image
    if image is None:
        toolchain = find_toolchain()
    else:
        toolchain = toolchain_of_image(image.description(), image.view(cache_folder(cache)))
    return Workshop(StoppableSandbox(choice.sandbox), toolchain, cache_folder(cache))


def _tidy() -> None:
    """Remove what killed runs have left; what cannot be removed is a warning, for it does no harm."""
    from harness.errors import SandboxError
    from sandboxes.cgroups import Cgroups
    from sandboxes.orphans import remove_orphans

    groups = Cgroups.find()
    try:
        if groups is not None:
            groups.sweep()
    except SandboxError as error:
        print(f"warning: something of an earlier run is left: {error}", file=sys.stderr)
    remove_orphans()


def make_bench(
    target: str,
    protocol: str,
    sandbox: str,
    cache: Path | None,
    *,
    sanitize: bool = False,
    timed: bool = True,
) -> Bench:
    """A grader for this machine. Raises UsageError."""
    from harness.device.machine import machine_facts
    from harness.errors import UsageError
    from harness.grading.grade import Grader
    from harness.grading.workers import GradeSettings
    from harness.study.bench import Bench

    settings = GradeSettings(
        target=parse_target(target),
        protocol=parse_protocol(protocol),
        cache=cache_folder(cache),
        sanitize=sanitize,
        timed=timed,
    )
    if sanitize and settings.target == "cpu":
        raise UsageError("--sanitize: compute-sanitizer is for CUDA; use --target cuda")
    workshop = make_workshop(sandbox, cache)
    machine = machine_facts(workshop.toolchain)
    gpu, why = _gpu(settings.target, machine)
    settings = replace(settings, device=None if gpu is None else gpu.uuid, no_device=why)
    grader = Grader(settings, workshop.sandbox, workshop.toolchain, machine, gpu=gpu)
    return Bench(workshop.sandbox, workshop.toolchain, workshop.cache, grader, machine)


def _gpu(target: Target, machine: MachineFacts) -> tuple[Gpu | None, str | None]:
    """The GPU that projects run on, or why the one that is here cannot be used; said on stderr."""
    if target != "cuda" or machine.gpu_uuid is None:
        return None, None
    from harness.judge.gpu import open_gpu

    found = open_gpu(machine)
    if isinstance(found, str):
        print(f"GPU {machine.gpu}: not measured on: {found}", file=sys.stderr)
        return None, found
    print(f"GPU {machine.gpu}: memory is shared by {found.transport.name}", file=sys.stderr)
    return found, None
