"""From teachers' replies to skill folders, or to faults that the teacher can correct."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.records import Reply
from harness.skills.lineage import Lineage, lineage_of
from harness.skills.spec import SkillFinding, error, validate_skill
from harness.teaching.workshop import Changes, DraftError, read_changes, write_draft
from harness.text import slug
from tests.fakes.teaching import ORDER, FakeTeacher, given, skill_text, workshop

LINEAGE = Lineage("abc", ("scan",), 1)
SKILL = "---\nname: fast-rows\ndescription: 'Rows: fast.'\n---\n\n# Rows\n\n```cpp\nint x;\n```\n"


def reply(text: str, stop: str = "end") -> Reply:
    return Reply(text=text, stop=stop, model_label="t", created="2026-01-01T00:00:00Z")  # type: ignore[arg-type]


def test_files_keep_their_fences_and_lines() -> None:
    """Files with code blocks are read whole, text around them is dropped; a bare SKILL.md counts too."""
    changes = read_changes(
        reply(
            f'Sure!\n<file path="SKILL.md">\n{SKILL}</file>\n'
            '<file path="references/a.md">\nA\n</file>\n<delete path="references/b.md"/>\nDone.'
        )
    )
    assert changes.files == {"SKILL.md": SKILL, "references/a.md": "A\n"}
    assert changes.removed == ("references/b.md",)
    assert read_changes(reply("\n" + SKILL)).files["SKILL.md"] == SKILL


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
def test_an_unusable_reply_says_why(text: str, stop: str, fault: str) -> None:
    """Every unusable reply has a fault that its writer can act on."""
    with pytest.raises(DraftError, match=fault):
        read_changes(reply(text, stop))


@pytest.mark.parametrize(("chosen", "name"), [(None, "fast-rows"), ("my-skill", "my-skill")])
def test_a_new_skill_is_valid_and_carries_its_lineage(tmp_path: Path, chosen: str | None, name: str) -> None:
    """The folder has the teacher's name or the user's; YAML survives a colon; the marks are there."""
    changes = Changes({"SKILL.md": SKILL, "references/a.md": "A\n"})
    made = write_draft(changes, None, tmp_path, LINEAGE, chosen)
    assert made == tmp_path / name
    assert [f for f in validate_skill(made) if f.severity == "error"] == []
    assert lineage_of(made) == LINEAGE
    assert (made / "references/a.md").read_text() == "A\n"


@pytest.mark.parametrize("text", ["no frontmatter", "---\nname: x\n---\nbody\n", "---\nname: [\n---\n"])
def test_broken_frontmatter_is_a_fault(tmp_path: Path, text: str) -> None:
    """Missing or broken frontmatter goes back to the teacher, and nothing is written."""
    with pytest.raises(DraftError, match=r"SKILL\.md"):
        write_draft(Changes({"SKILL.md": text}), None, tmp_path, LINEAGE)
    assert list(tmp_path.iterdir()) == []


def test_a_next_version_keeps_what_was_not_given(tmp_path: Path) -> None:
    """Licence, other files and unknown frontmatter fields of the old skill survive byte for byte."""
    old = tmp_path / "old" / "fast-rows"
    old.mkdir(parents=True)
    (old / "SKILL.md").write_bytes(
        b"---\nname: fast-rows\ndescription: >\n  Old\n  words.\n"
        b"license: MIT # really\ncustom: [1, 2]\n---\nOld.\n"
    )
    (old / "LICENSE").write_bytes(b"MIT\r\n\xff")
    changes = Changes({"SKILL.md": SKILL, "references/new.md": "N\n"})
    made = write_draft(changes, old, tmp_path / "new", LINEAGE)
    text = (made / "SKILL.md").read_text()
    assert all(kept in text for kept in ("license: MIT # really", "custom: [1, 2]", "# Rows"))
    assert "Old." not in text
    assert (made / "LICENSE").read_bytes() == b"MIT\r\n\xff"
    assert lineage_of(made) == LINEAGE
    with pytest.raises(DraftError):  # to remove nothing is a fault that the teacher is told
        write_draft(Changes({}, ("references/none.md",)), old, tmp_path / "other", LINEAGE)


def test_faults_go_back_to_the_teacher_until_the_code_builds(tmp_path: Path) -> None:
    """Findings are quoted with their place, and the corrected version builds on the faulty one."""

    def check(directory: Path) -> list[SkillFinding]:
        text = (directory / "SKILL.md").read_text()
        return [error("SKILL.md", 6, "this code does not compile")] if "bad" in text else []

    teacher = FakeTeacher(
        [
            "no files at all",
            given(skill_text("bad 5")) + given("kept\n", "references/a.md"),
            given(skill_text("good 5 [a](references/a.md)")),
        ]
    )
    made = workshop(tmp_path, teacher, check).first(ORDER)
    assert "good 5" in made.skill.body
    assert (made.folder / "references/a.md").read_text() == "kept\n"
    assert "no file was given" in teacher.asked[1].messages[-1].content
    assert "SKILL.md:6: error: this code does not compile" in teacher.asked[2].messages[-1].content


def test_slugs_are_names() -> None:
    """Any words make a valid name."""
    assert (slug("Write CUDA kernels!"), slug("é ü")) == ("write-cuda-kernels", "generated-skill")
    assert len(slug("word " * 100)) <= 64 == len(slug("w" * 100))
