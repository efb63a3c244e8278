"""`liftbench build`: kernel-builder projects, without a task.

Exits 0 when every project was built, 3 when one was not; a project that cannot be read is a usage error
before anything is compiled.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.setup import (
    CacheOption,
    JsonOption,
    SandboxOption,
    TargetOption,
    cache_folder,
    make_workshop,
    parse_target,
)

if TYPE_CHECKING:
    from harness.builder.build import Built


def build(
    directories: Annotated[
        list[Path], typer.Argument(help="kernel-builder projects: folders with build.toml.")
    ],
    target: TargetOption = "cuda",
    sandbox: SandboxOption = "auto",
    out: Annotated[
        Path | None,
        typer.Option(help="Put the variants under OUT/NAME/build, as kernel-builder lays them out."),
    ] = None,
    wall_s: Annotated[float, typer.Option(help="Time limit of one build, in seconds.")] = 600.0,
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Build projects as kernel-builder does.

    Exit code 3 if one does not build.
    """
    from rich.console import Console

    from harness.builder.build import build as build_project
    from harness.cli.card import print_build
    from harness.errors import UsageError
    from harness.suite.catalogue import read_project

    chosen = parse_target(target)
    projects = [(directory, read_project(directory)) for directory in directories]
    workshop = make_workshop(sandbox, cache)
    tracked, toolchain = workshop.sandbox, workshop.toolchain
    missing = toolchain.missing(chosen)
    if missing is not None:
        raise UsageError(f"cannot build for {chosen}: {missing}")
    builds = cache_folder(cache) / "builds"
    errors = Console(stderr=True)
    all_built = True
    try:
        for directory, project in projects:
            with errors.status(f"{directory.resolve().name}: build ..."):
                built = build_project(
                    project,
                    chosen,
                    sandbox=tracked,
                    toolchain=toolchain,
                    cache=builds,
                    wall_s=wall_s,
                )
            all_built = all_built and built.result.ok
            placed = _placed(built, out, directory.resolve().name)
            if json_output:
                print(built.result.model_dump_json())
            else:
                title = f"{directory.resolve().name}, {chosen}"
                print_build(built.result, Console(), title, placed)
    finally:
        tracked.stop()
    return 0 if all_built else 3


def _placed(built: Built, out: Path | None, name: str) -> Path | None:
    """Where the package lies; copied out of the cache when asked for."""
    if built.package is None or out is None:
        return built.package
    place = out / name / "build" / built.package.name
    shutil.copytree(built.package, place, dirs_exist_ok=True)
    return place
