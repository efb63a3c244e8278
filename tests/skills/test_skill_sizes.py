"""Tokens of a skill, part by part."""

from __future__ import annotations

from pathlib import Path

from harness.skills.check import catalog_line, skill_size
from harness.skills.spec import read_skill
from harness.text import estimate_tokens


def test_every_part_is_counted_once(tmp_path: Path) -> None:
    """Catalog line, body without frontmatter, and each file; what is no text has no figure."""
    directory = tmp_path / "my-skill"
    for folder in ("references", "scripts", "other"):
        (directory / folder).mkdir(parents=True)
    (directory / "SKILL.md").write_text(
        "---\nname: my-skill\ndescription: >-\n  two\n  words\n---\n\nBody.\n"
    )
    (directory / "references" / "a.md").write_text("a" * 36)
    (directory / "references" / "b.md").write_text("b" * 72)
    (directory / "scripts" / "x.bin").write_bytes(b"\0\1")
    (directory / "other" / "c.txt").write_text("c" * 18)
    skill = read_skill(directory)
    assert catalog_line(skill) == "- my-skill: two words"
    size = skill_size(skill)
    assert (size.catalog, size.body) == (estimate_tokens("- my-skill: two words"), estimate_tokens("Body."))
    assert [(f.path, f.tokens) for f in size.files] == [
        ("other/c.txt", 5),
        ("references/a.md", 10),
        ("references/b.md", 20),
        ("scripts/x.bin", None),
    ]
    assert [f.path for f in size.in_folder("references")] == ["references/a.md", "references/b.md"]
    assert [f.path for f in size.in_folder(None)] == ["other/c.txt"]
    assert size.total == size.catalog + size.body + 35
