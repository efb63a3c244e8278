"""Skill folders written for the tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def make_skill(root: Path, body: str = "Body.\n", files: Mapping[str, str] | None = None) -> Path:
    """A valid skill `my-skill` with this body, whose first line is line 5 of SKILL.md."""
    directory = root / "my-skill"
    skill_md = f"---\nname: my-skill\ndescription: d\n---\n{body}"
    for name, text in {"SKILL.md": skill_md, **(files or {})}.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    return directory
