"""`liftbench build` and `liftbench headers`: kernel-builder projects without a task."""

from __future__ import annotations

import json
import os
import shutil
import sys
from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from harness.builder.fetch_headers import Fetcher, index_url
from harness.builder.headers import ON_PYPI, HeaderSet, headers_root
from harness.builder.toolchain import find_toolchain
from harness.cli.card import print_build
from harness.cli.options import CacheOption, JsonOption, SandboxOption, TargetOption, make_build_setup
from harness.errors import UsageError
from harness.suite.catalogue import read_project

HEADER_NAMES = "cuda, cutlass_3_5, cutlass_3_6, cutlass_3_8, cutlass_4_0 or all"


def build(
    directories: Annotated[
        list[Path], typer.Argument(help="kernel-builder projects: folders with build.toml.")
    ],
    target: TargetOption = "cuda",
    sandbox: SandboxOption = "auto",
    out: Annotated[Path | None, typer.Option(help="Copy the variants to OUT/NAME/build.")] = None,
    wall_s: Annotated[float, typer.Option(help="Time limit of one build, in seconds.")] = 600.0,
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Exit code 3 if one does not build."""
    projects = [(directory.resolve().name, read_project(directory)) for directory in directories]
    setup = make_build_setup(sandbox, cache, target)
    errors = Console(stderr=True)
    all_built = True
    with closing(setup):
        for name, project in projects:
            with errors.status(f"{name}: build ..."):
                built = setup.build(project, target, wall_s=wall_s)
            all_built = all_built and built.result.ok
            package = built.package
            if package is not None and out is not None:
                place = out / name / "build" / package.name
                package = shutil.copytree(package, place, dirs_exist_ok=True)
            if json_output:
                print(built.result.model_dump_json())
            else:
                print_build(built.result, Console(), f"{name}, {target}", package)
    return 0 if all_built else 3


def headers(
    what: Annotated[list[str] | None, typer.Argument(help=f"{HEADER_NAMES} (default: cuda).")] = None,
    json_output: JsonOption = False,
) -> None:
    """They come from PyPI wheels; only the headers are kept, in the user's data folder. Builds never use
    the network.
    `cuda`: headers of cuBLAS, cuSPARSE and others for the nvcc in use, and those of torch that a
    CPU-only torch lacks. `cutlass_3_6` and the like: for projects whose build.toml depends on it.
    Another folder: LIFTBENCH_HEADERS. Another index: PIP_INDEX_URL.
    """
    names = what or ["cuda"]
    if "all" in names:
        names = ["cuda", *ON_PYPI]
    unknown = [name for name in names if name != "cuda" and not name.startswith("cutlass_")]
    if unknown:
        raise UsageError(f"headers {unknown[0]}: there are {HEADER_NAMES}")
    root = headers_root(os.environ)
    fetcher = Fetcher(root, index_url(os.environ), lambda line: print(line, file=sys.stderr, flush=True))
    found: list[HeaderSet] = []
    for name in dict.fromkeys(names):
        found += fetcher.cuda(find_toolchain()) if name == "cuda" else [fetcher.cutlass(name)]
    if json_output:
        print(json.dumps([one.model_dump(mode="json") for one in found], indent=1))
        return
    for one in found:
        print(f"{one.name}  {one.root}  ({one.sources})")
