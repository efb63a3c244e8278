"""How many tokens a skill costs, part by part.

The total is the sum of what can be read as text, the catalog line included.
"""

from __future__ import annotations

from harness.records import Record, Skill
from harness.skills.spec import FILE
from harness.text import estimate_tokens

FOLDERS = ("references", "scripts", "assets")


class FileSize(Record):
    """One file beside SKILL.md."""

    path: str
    tokens: int | None
    """None where it is no text."""


class SkillSize(Record):
    """Tokens of a skill, estimated."""

    catalog: int
    """Name and description: in every conversation."""
    body: int
    """SKILL.md without frontmatter: once the skill is used."""
    files: tuple[FileSize, ...]
    """The others, read on demand, sorted by path."""

    @property
    def total(self) -> int:
        """All that can be read."""
        return self.catalog + self.body + sum(file.tokens or 0 for file in self.files)

    def folder(self, name: str) -> int:
        """Of the files below that folder."""
        return sum(file.tokens or 0 for file in self.files if file.path.startswith(f"{name}/"))

    def in_folder(self, name: str | None) -> list[FileSize]:
        """The files below that folder; with None, those in none of the usual ones."""
        known = tuple(f"{folder}/" for folder in FOLDERS)
        if name is None:
            return [file for file in self.files if not file.path.startswith(known)]
        return [file for file in self.files if file.path.startswith(f"{name}/")]


def catalog_line(skill: Skill) -> str:
    """What a client tells a model of a skill that is not in use yet."""
    return f"- {skill.name}: {' '.join(skill.description.split())}"


def skill_size(skill: Skill) -> SkillSize:
    """The parts of `skill`."""
    texts = skill.documents
    files = tuple(
        FileSize(path=name, tokens=estimate_tokens(texts[name]) if name in texts else None)
        for name in skill.files
        if name != FILE
    )
    return SkillSize(
        catalog=estimate_tokens(catalog_line(skill)), body=estimate_tokens(skill.body.strip()), files=files
    )
