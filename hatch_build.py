"""Puts tasks, skills, expert kernels and the demo into the wheel under harness/_data/.

Files are listed one by one: including whole folders would ship build leftovers.
"""

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FOLDERS = ("tasks", "skills", "kernels_ref", "demo")
LEFTOVERS = {"__pycache__", "build", "runs"}
SUFFIXES = {".so", ".o", ".pyc"}


def is_wanted(relative: Path) -> bool:
    """Whether a file is ours rather than something that a build or an editor left."""
    hidden = any(part.startswith(".") or part in LEFTOVERS for part in relative.parts)
    return not hidden and relative.suffix not in SUFFIXES


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the data files; an editable install finds them in the checkout instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before the wheel is made."""
        if version == "editable":
            return
        root = Path(self.root)
        for folder in FOLDERS:
            for path in sorted((root / folder).rglob("*")):
                relative = path.relative_to(root)
                if path.is_file() and is_wanted(relative):
                    build_data["force_include"][str(path)] = f"harness/_data/{relative.as_posix()}"
