"""Finds and loads tasks and expert projects, in a checkout, a wheel, or a user's folder."""

from __future__ import annotations

import fnmatch
import hashlib
import importlib.util
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from harness.errors import UsageError, did_you_mean, refuse_url
from harness.expressions import evaluate
from harness.files import data_directory
from harness.records import Project, ProjectFile, Task
from harness.records.reasons import reason_of

_PROJECT_LIMIT = 32 << 20


@dataclass(frozen=True)
class LoadedTask:
    task: Task
    directory: Path

    @property
    def reference_path(self) -> Path:
        return self.directory / "reference.py"

    def reference_module(self) -> ModuleType:
        """Import reference.py afresh. It is ours or the user's, never the student's."""
        name = f"liftbench_reference_{self.task.level}_{self.task.name}"
        spec = importlib.util.spec_from_file_location(name, self.reference_path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module


def load_task(directory: Path) -> LoadedTask:
    """Read one task folder. Raises UsageError with the file and the fault."""
    path = directory / "task.toml"
    try:
        toml_bytes = path.read_bytes()
        reference_bytes = (directory / "reference.py").read_bytes()
    except OSError as error:
        raise UsageError(f"{error.filename} cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(toml_bytes + b"\0" + reference_bytes).hexdigest()
    try:
        fields: dict[str, Any] = tomllib.loads(toml_bytes.decode())
        fields["operands"] = fields.pop("operand", [])
        fields["scalars"] = fields.pop("scalar", [])
        fields["workloads"] = fields.pop("workload", [])
        for key in {"name", "level", "digest"} & fields.keys():
            raise ValueError(f"{key}: is not written here: the folder gives it")
        task = Task(name=directory.name, level=directory.parent.name, digest=digest, **fields)
        _check_expressions(task)
    except (ValidationError, ValueError, TypeError) as error:
        raise UsageError(f"{path}: {reason_of(error)}") from error
    return LoadedTask(task, directory)


def _check_expressions(task: Task) -> None:
    if task.hidden is not None:
        for end in (0, 1):
            dims = {name: extent[end] for name, extent in task.hidden.dims.items()}
            for axis in (axis for operand in task.operands for axis in operand.shape):
                if evaluate(axis, dims) < 0:
                    raise ValueError(f"hidden.dims: {axis} is below 0 for {dims}")
    for workload in task.workloads:
        for operand in task.operands:
            for axis in (*operand.shape, *([] if operand.touched is None else [operand.touched])):
                evaluate(axis, workload.dims)
        if task.flops is not None:
            evaluate(task.flops, workload.dims)
        missing = {s.name for s in task.scalars} - set(workload.scalars)
        if missing:
            raise ValueError(f"workload {workload.name}: no value for scalar {', '.join(sorted(missing))}")


def all_tasks(root: Path | None = None) -> list[LoadedTask]:
    """All tasks below `root` (default: the shipped ones), sorted by id. UsageError for a missing folder."""
    base = data_directory("tasks") if root is None else root
    if not base.is_dir():
        refuse_url(str(base))
        raise UsageError(f"{base} is no folder: give one with tasks, as LEVEL/NAME/task.toml")
    return [load_task(path.parent) for path in sorted(base.glob("*/*/task.toml"))]


def select_tasks(patterns: Sequence[str], root: Path | None = None) -> list[LoadedTask]:
    """Tasks whose id or name matches one of the glob patterns; all tasks without patterns.

    Raises UsageError with the nearest names for a pattern that matches nothing.
    """
    tasks = all_tasks(root)
    if not patterns:
        return tasks
    chosen: dict[str, LoadedTask] = {}
    for pattern in patterns:
        found = [t for t in tasks if any(fnmatch.fnmatchcase(n, pattern) for n in (t.task.id, t.task.name))]
        if not found:
            meant = did_you_mean(pattern, [t.task.id for t in tasks])
            raise UsageError(f"no task matches {pattern!r} (`liftbench tasks list` has all){meant}")
        chosen.update({t.task.id: t for t in found})
    return [chosen[key] for key in sorted(chosen)]


def expert_project(task: Task) -> Project | None:
    """The expert project for a task, or None. Raises UsageError."""
    path = data_directory("kernels_ref") / task.level / task.name
    return read_project(path) if (path / "build.toml").is_file() else None


def _wanted(relative: Path) -> bool:
    """Whether a path is UTF-8 and neither hidden nor build output (build/ at the top, bytecode)."""
    odd = any("\udc80" <= char <= "\udcff" for char in str(relative))  # no build.toml can list it
    hidden = odd or any(part.startswith(".") or part == "__pycache__" for part in relative.parts)
    return not hidden and relative.parts[0] != "build" and relative.suffix != ".pyc"


def read_project(directory: Path) -> Project:
    """A project from a folder, without hidden files and build output.

    Binary files and links are recorded in `left_out`, so that a build.toml that lists them gets a clear
    message. Raises UsageError if there is no build.toml, a file cannot be read, or all text exceeds 32 MiB.
    """
    refuse_url(str(directory))
    if not (directory / "build.toml").is_file():
        raise UsageError(f"{directory} is no kernel-builder project: it has no build.toml")
    texts: dict[str, str] = {}
    left_out: dict[str, str] = {}
    total = 0
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if not _wanted(path.relative_to(directory)) or not (path.is_symlink() or path.is_file()):
            continue
        text, why = _read_text(path)
        if text is None:
            left_out[name] = why
            continue
        texts[name] = text
        total += len(text)
        if total > _PROJECT_LIMIT:
            raise UsageError(f"{directory} holds more than 32 MiB of text; a project is source only")
    if "build.toml" in left_out:
        raise UsageError(f"{directory / 'build.toml'} {left_out['build.toml']}")
    files = tuple(ProjectFile(path=name, text=texts[name]) for name in sorted(texts))
    return Project(files=files, left_out=left_out)


def _read_text(path: Path) -> tuple[str | None, str]:
    """(text, ""), or (None, reason)."""
    if path.is_symlink():
        return None, "is a symbolic link, which is never followed"
    if path.suffix in {".so", ".o"}:
        return None, "is what a compiler made"
    try:
        with path.open("rb") as file:
            data = file.read(_PROJECT_LIMIT + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _PROJECT_LIMIT:
        return None, "is larger than 32 MiB"
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return None, "is not text (UTF-8)"
