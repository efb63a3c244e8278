"""Teachers' replies: files out of them, or what their writer can mend."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records import Reply
from harness.skills.lineage import Lineage, lineage_of
from harness.skills.spec import validate_skill
from harness.teaching.draft import Changes, Unusable, read_changes, write_new, write_next
from harness.text import slug

LINEAGE = Lineage("abc", ("scan",), 1)
SKILL = "---\nname: fast-rows\ndescription: 'Rows: fast.'\n---\n\n# Rows\n\n```cpp\nint x;\n```\n"


def reply(text: str, stop: str = "end") -> Reply:
    return Reply(text=text, stop=stop, model_label="t", created="2026-01-01T00:00:00Z")  # type: ignore[arg-type]


def test_files_keep_their_fences_and_lines() -> None:
    """A skill with code blocks comes through whole, and what stands around it is dropped."""
    changes = read_changes(
        reply(
            f'Sure!\n<file path="SKILL.md">\n{SKILL}</file>\n'
            '<file path="references/a.md">\nA\n</file>\n<delete path="references/b.md"/>\nDone.'
        )
    )
    assert isinstance(changes, Changes)
    assert changes.files == {"SKILL.md": SKILL, "references/a.md": "A\n"}
    assert changes.removed == ("references/b.md",)


def test_a_reply_that_is_a_skill_is_one() -> None:
    """Without any tag, text that begins like SKILL.md is taken for it."""
    changes = read_changes(reply("\n" + SKILL))
    assert isinstance(changes, Changes)
    assert changes.files["SKILL.md"] == SKILL


@pytest.mark.parametrize(
    ("text", "stop", "fault"),
    [
        ("", "end", "no file was given"),
        ("I cannot do that.", "end", "no file was given"),
        ('<file path="SKILL.md">\nhalf', "length", "cut at the output limit"),
        ("", "refusal", "refused"),
        ("", "overflow", "context"),
        ('<file path="../x">\na\n</file>', "end", "leaves the project"),
        ('<file path="/etc/x">\na\n</file>', "end", "absolute"),
        (f'<file path="SKILL.md">\n{SKILL}</file>\n<delete path="SKILL.md"/>', "end", "cannot be removed"),
        ('<file path="a.md">\n' + "x" * 1_100_000 + "\n</file>", "end", "at most"),
    ],
)
def test_what_cannot_be_used_says_why(text: str, stop: str, fault: str) -> None:
    """Every unusable reply has a fault that its writer can act on."""
    found = read_changes(reply(text, stop))
    assert isinstance(found, Unusable)
    assert fault in " ".join(found.faults)


def test_a_new_skill_is_valid_and_carries_its_lineage(tmp_path: Path) -> None:
    """The folder is named as the skill is, its YAML survives a colon, and its marks are there."""
    made = write_new(Changes({"SKILL.md": SKILL, "references/a.md": "A\n"}), tmp_path, LINEAGE, None)
    assert made == tmp_path / "fast-rows"
    assert [f for f in validate_skill(made) if f.severity == "error"] == []
    assert lineage_of(made) == LINEAGE
    assert (made / "references/a.md").read_text() == "A\n"


def test_a_name_that_the_user_chose_wins(tmp_path: Path) -> None:
    """`-o DIR` names the skill, whatever the teacher called it."""
    made = write_new(Changes({"SKILL.md": SKILL}), tmp_path, LINEAGE, "my-skill")
    assert made == tmp_path / "my-skill"
    assert [f for f in validate_skill(made) if f.severity == "error"] == []


@pytest.mark.parametrize("text", ["no frontmatter", "---\nname: x\n---\nbody\n", "---\nname: [\n---\n"])
def test_a_skill_md_that_cannot_be_read_is_a_fault(tmp_path: Path, text: str) -> None:
    """Missing or broken frontmatter goes back to the teacher, and nothing is written."""
    assert isinstance(write_new(Changes({"SKILL.md": text}), tmp_path, LINEAGE, None), Unusable)
    assert list(tmp_path.iterdir()) == []


def test_a_next_version_keeps_what_was_not_given(tmp_path: Path) -> None:
    """Licence, assets and unknown frontmatter fields of the old skill survive byte for byte."""
    old = tmp_path / "old" / "fast-rows"
    (old / "assets").mkdir(parents=True)
    (old / "SKILL.md").write_bytes(
        b"---\nname: fast-rows\ndescription: >\n  Old\n  words.\n"
        b"license: MIT # really\ncustom: [1, 2]\n---\nOld.\n"
    )
    (old / "assets/logo.bin").write_bytes(bytes(range(256)))
    (old / "LICENSE").write_bytes(b"MIT\r\n")
    changes = Changes({"SKILL.md": SKILL, "references/new.md": "N\n"})
    made = write_next(changes, old, tmp_path / "new" / "fast-rows", LINEAGE)
    assert isinstance(made, Path)
    text = (made / "SKILL.md").read_text()
    assert "license: MIT # really" in text
    assert "custom: [1, 2]" in text
    assert "# Rows" in text
    assert "Old." not in text
    assert (made / "assets/logo.bin").read_bytes() == bytes(range(256))
    assert (made / "LICENSE").read_bytes() == b"MIT\r\n"
    assert lineage_of(made) == LINEAGE


def test_a_removal_of_nothing_is_a_fault(tmp_path: Path) -> None:
    """The teacher is told, rather than the user."""
    old = tmp_path / "fast-rows"
    old.mkdir()
    (old / "SKILL.md").write_text(SKILL)
    made = write_next(Changes({}, ("references/none.md",)), old, tmp_path / "n" / "fast-rows", LINEAGE)
    assert isinstance(made, Unusable)


@pytest.mark.parametrize(
    ("text", "name"),
    [("Write CUDA kernels!", "write-cuda-kernels"), ("", "generated-skill"), ("é ü", "generated-skill")],
)
def test_slugs_are_names(text: str, name: str) -> None:
    """Any words make a valid name."""
    assert slug(text) == name
    assert len(slug("word " * 100)) <= 64
    assert len(slug("w" * 100)) == 64
