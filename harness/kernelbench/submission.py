"""A plain KernelBench answer, one file with `ModelNew`, as a universal kernel-builder project.

The student's file is in the project byte for byte, and everything behind this sees an ordinary project.
"""

from __future__ import annotations

import ast
from pathlib import Path

from harness.errors import UsageError
from harness.kernelbench.conversion import Converted, state_names
from harness.records import Project, ProjectFile

_MOST_BYTES = 1 << 20
_PACKAGE = Path(__file__).with_name("submission_package.py")
_TOML = """\
[general]
name = "{name}"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""


def read_submission(path: Path) -> str:
    """The file's text. Raises UsageError where it cannot be one with `ModelNew`."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read as text: {error}") from error
    if len(data) > _MOST_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB")
    if not defines_model_new(text):
        raise UsageError(
            f"{path} defines no class ModelNew, as KernelBench's answers do; "
            "a kernel-builder project is graded by its folder"
        )
    return text


def defines_model_new(text: str) -> bool:
    """Whether `ModelNew` is bound at the top level; a file with a syntax error is left to the worker."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "ModelNew" in text
    for node in body:
        if isinstance(node, ast.ClassDef) and node.name == "ModelNew":
            return True
        names = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(name, ast.Name) and name.id == "ModelNew" for name in names):
            return True
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == "ModelNew" for a in node.names):
            return True
    return False


def wrapped(text: str, converted: Converted) -> Project:
    """The project that answers the problem with that file. Raises UsageError for a refused problem."""
    task = converted.task().task
    facts = converted.facts
    assert facts is not None  # a task came of it
    problem = converted.problem.path.read_text()
    head, _, rest = _PACKAGE.read_text().partition("# --- filled in by submission.py")
    _, _, body = rest.partition("# --- end")
    filled = (
        f"# --- the names of {task.id}\n"
        f"_ARGUMENTS = {facts.arguments!r}\n"
        f"_STATE = {state_names(task, facts)!r}\n"
        f"_OUTPUTS = {len(facts.outputs)}\n"
        "# --- end"
    )
    package = f"torch-ext/{task.module}"
    files = {
        "build.toml": _TOML.format(name=task.package),
        f"{package}/__init__.py": f"{head}{filled}{body}",
        f"{package}/problem.py": problem,
        f"{package}/submission.py": text,
    }
    return Project(files=tuple(ProjectFile(path=path, text=files[path]) for path in sorted(files)))
