"""`liftbench export`: tasks and figures in the formats of other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from harness import __version__
from harness.board.runs import read_run
from harness.cli.options import (
    DEFAULT_RUNS,
    PatternsOption,
    ProtocolOption,
    RunArgument,
    RunsDirOption,
    TargetOption,
    TasksRootOption,
)
from harness.errors import UsageError
from harness.files import write_atomically, write_files
from harness.interop.harbor import folder_name, harbor_task
from harness.interop.hub import hub_files
from harness.interop.kernels_benchmark import benchmark_script, script_name
from harness.interop.timing_samples import samples_of
from harness.records import Briefing
from harness.report.figures import plural
from harness.study.store import find_run
from harness.suite.catalogue import select_tasks

FolderArgument = Annotated[Path, typer.Argument(metavar="DIR", help="A folder that is new or empty.")]


def harbor_command(
    directory: FolderArgument,
    *,
    tasks: PatternsOption = None,
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    briefing: Annotated[Briefing, typer.Option(help="How much instructions say of kernel-builder.")] = "full",
    install: Annotated[
        str | None,
        typer.Option(help="What pip installs in the verifier's image: a release, wheel or git URL."),
    ] = None,
    tasks_root: TasksRootOption = None,
) -> None:
    """Harbor 0.25, schema 1.4; a separate verifier runs `liftbench grade`."""
    requirement = install or f"liftbench{'[cuda]' if target == 'cuda' else ''}=={__version__}"
    found = select_tasks(tasks or [], tasks_root)
    made = {folder_name(one): harbor_task(one, target, protocol, briefing, requirement) for one in found}
    _write(
        directory, {f"{name}/{path}": text for name, files in made.items() for path, text in files.items()}
    )
    for script in directory.glob("*/*/*.sh"):
        script.chmod(0o755)
    print(f"{plural(len(made), 'task')}: {directory}")


def kernels_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A project: a folder with build.toml.")],
    *,
    task: Annotated[str, typer.Option(help="Such as l1/rms_norm.")],
    target: TargetOption = "cuda",
    tasks_root: TasksRootOption = None,
) -> None:
    """Adds benchmarks/benchmark_TASK.py to the project."""
    found = select_tasks([task], tasks_root)
    if len(found) != 1:
        raise UsageError(f"--task {task} matches {len(found)} tasks; name one")
    if not (directory / "build.toml").is_file():
        raise UsageError(f"{directory} is no kernel-builder project: it has no build.toml")
    path = directory / script_name(found[0].task)
    _write_new(path, benchmark_script(found[0], target))


def samples_command(
    source: Annotated[
        str, typer.Argument(metavar="RUN|FILE", help="A run, or what `grade --json` printed, in a file.")
    ],
    file: Annotated[Path, typer.Argument(metavar="OUT", help="The JSON file to write.")],
    *,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
) -> None:
    """Raw samples of projects and references, by device."""
    _write_new(file, json.dumps(samples_of(source, runs_dir), indent=1) + "\n")


def hub_command(
    run: RunArgument,
    directory: FolderArgument,
    *,
    dataset: Annotated[str, typer.Option(help="The benchmark's dataset on the Hub, as OWNER/NAME.")],
    runs_dir: RunsDirOption = DEFAULT_RUNS,
) -> None:
    """eval.yaml for the dataset, and .eval_results/ for each model; nothing is sent."""
    files = hub_files(read_run(find_run(runs_dir, run).folder), dataset)
    _write(directory, files)
    print(f"{plural(len(files), 'file')}: {directory}")


def _write(directory: Path, files: Mapping[str, str]) -> None:
    """Raises UsageError where the folder is not empty."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} exists and is not empty: give a new folder")
    write_files(files, directory)


def _write_new(path: Path, text: str) -> None:
    """Raises UsageError where the file exists."""
    if path.exists():
        raise UsageError(f"{path} exists: move it, or give another name")
    write_atomically(path, text)
    print(path)
