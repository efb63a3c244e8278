"""Prompts, tasks, skills, expert kernels and recordings are data: a refactoring changes no byte of them."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from harness.records import Briefing
from harness.student.prompts import SYSTEM, task_text
from harness.suite.catalogue import all_tasks

ROOT = Path(__file__).resolve().parent.parent
PINNED = {
    "tasks": "f72c839e948eaa14",
    "kernels_ref": "8eb0de4f337d5680",
    "skills": "9e8e0944640d024d",
    "studies": "b9196c886f8a3d5a",
    "demo/recordings": "127ea9fafa2c8a25",
    "demo/tasks": "fe87d51773bc86a1",
    "demo/skills": "9fedcd90fee6c57d",
}
PROMPTS: dict[Briefing, str] = {"contract": "b51356e2680142b5", "full": "f7d728d40bdd9260"}


def _digest(folder: str) -> str:
    """SHA-256 over names and contents of the files under version control."""
    listed = subprocess.run(["git", "ls-files", "-z", folder], cwd=ROOT, capture_output=True, check=True)
    found = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.decode().split("\0"))):
        if Path(name).name in ("ADMISSION.json", "STATUS.md"):  # written by programs
            continue
        contents = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
        found.update(f"{name}\0{contents}\n".encode())
    return found.hexdigest()[:16]


def test_data_is_unchanged() -> None:
    """A deliberate change of data changes these digests in the same commit."""
    assert {folder: _digest(folder) for folder in PINNED} == PINNED


@pytest.mark.parametrize("briefing", PROMPTS)
def test_prompts_are_unchanged(briefing: Briefing) -> None:
    """Every task reads the same, for every target, to the byte."""
    texts = [SYSTEM]
    for loaded in all_tasks():
        texts += [task_text(loaded.task, target, briefing) for target in sorted(loaded.task.dtypes)]
    assert hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16] == PROMPTS[briefing]
