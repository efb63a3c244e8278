"""Writing skill folders, and deriving the next version of one."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.errors import UsageError
from harness.skills import frontmatter
from harness.skills.frontmatter import edited, folded
from harness.skills.spec import read_skill, validate_skill
from harness.skills.write_skill import SkillDraft, derive, write_skill

FAST = settings(max_examples=20, deadline=None)
TEXT = st.text(max_size=300).filter(lambda t: folded(t))
ODD = "Says: \"a\", 'b' # no comment – für {x}, [y] & *z |\n\tand yes\u2028more"


def draft(**given: object) -> SkillDraft:
    """A small draft with these fields."""
    fields: dict[str, object] = {"name": "my-skill", "description": "Does a thing.", "body": "# Body\n"}
    return SkillDraft(**{**fields, **given})  # type: ignore[arg-type]


def tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Everything in a folder: contents or link target, and permissions."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_symlink():
            found[name] = ("link", str(path.readlink()))
        elif path.is_file():
            found[name] = (path.read_bytes(), stat.S_IMODE(path.stat().st_mode))
        else:
            found[name] = ("folder",)
    return found


def skill_at(root: Path, text: bytes) -> Path:
    """A skill folder with this SKILL.md."""
    folder = root / "my-skill"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(text)
    return folder


def fields_of(data: bytes) -> dict[str, object]:
    """The frontmatter's fields, as text."""
    fields = frontmatter.parse(frontmatter.decode(data)).fields
    return {
        name: {k: v.text for k, v in entry.entries.items()} if entry.entries is not None else entry.text
        for name, entry in fields.items()
    }


def test_a_draft_becomes_a_valid_skill(tmp_path: Path) -> None:
    """Every field, the body and the files come out as they went in."""
    written = write_skill(
        draft(
            description=ODD,
            metadata={"version": "1.0", "on": "yes"},
            files={"references/a b.md": b"x", "assets/raw.bin": b"\xff\0"},
        ),
        tmp_path / "new" / "my-skill",
    )
    assert written == tmp_path / "new" / "my-skill"
    assert validate_skill(written) == []
    skill = read_skill(written)
    assert skill.description == folded(ODD)
    assert skill.body.strip() == "# Body"
    assert fields_of((written / "SKILL.md").read_bytes())["metadata"] == {"version": "1.0", "on": "yes"}
    assert (written / "assets/raw.bin").read_bytes() == b"\xff\0"
    assert sorted(p.name for p in written.parent.iterdir()) == ["my-skill"]


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"description": " \n"}, "description"),
        ({"description": "x" * 1025}, "1025 characters"),
        ({"files": {"../x": b""}}, "leaves"),
        ({"files": {"SKILL.md": b""}}, "written by itself"),
        ({"files": {"./SKILL.md": b""}}, "written by itself"),
        ({"files": {"a/./b": b""}}, "no plain path"),
        ({"files": {"a": b"", "a/b": b""}}, "cannot be written"),
    ],
)
def test_a_draft_that_would_be_invalid_is_refused(
    tmp_path: Path, given_: dict[str, object], said: str
) -> None:
    """The message names the fault, and nothing is left on disk."""
    with pytest.raises(UsageError, match=said):
        write_skill(draft(**given_), tmp_path / "my-skill")
    with pytest.raises(UsageError, match="differs from the directory's name"):
        write_skill(draft(), tmp_path / "other")
    assert list(tmp_path.iterdir()) == []


def test_what_exists_is_replaced_only_on_request(tmp_path: Path) -> None:
    """Without `replace`, or with a refused change, the old folder stays; else nothing of it does."""
    out, other = tmp_path / "my-skill", tmp_path / "other" / "my-skill"
    write_skill(draft(files={"old.txt": b"1"}), out)
    write_skill(draft(description="Other."), other)
    before = tree(out)
    for refused in (
        lambda: write_skill(draft(description="Other."), out),
        lambda: derive(other, out),
        lambda: derive(other, out, description=" ", replace=True),
    ):
        with pytest.raises(UsageError):
            refused()
        assert tree(out) == before
    derive(other, out, replace=True)
    assert tree(out) == tree(other)
    derive(out, out, body="# Next\n", replace=True)
    assert read_skill(out).body.strip() == "# Next"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["my-skill", "other"]


OLD = b"""\xef\xbb\xbf---\r
# a comment\r
name: my-skill\r
description: >-  # folded\r
  Folded over\r
  two lines: with a colon\r
\r
license: MIT # whose\r
made-by: "somebody" \r
metadata:\r
    version: '1.0'   # kept\r
    author: "A"\r
# after\r
disable-model-invocation: false\r
---\r
\r
# Body\r
\r
text\r
"""


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A skill as they are found in the wild."""
    folder = skill_at(tmp_path / "old", OLD)
    (folder / "scripts").mkdir()
    (folder / "scripts" / "run.sh").write_bytes(b"#!/bin/sh\r\necho \xff\r\n")
    (folder / "scripts" / "run.sh").chmod(0o755)
    (folder / "LICENSE").symlink_to("../LICENSE")
    (folder / ".hidden").write_bytes(b"\0\xfe")
    (folder / "references").mkdir()
    (folder / "references" / "a.md").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\n")
    return folder


def test_an_unchanged_skill_is_the_same_byte_for_byte(old: Path, tmp_path: Path) -> None:
    """Contents, permissions and links, of hidden files too."""
    out = derive(old, tmp_path / "new" / "my-skill")
    assert tree(out) == tree(old)
    again = derive(old, tmp_path / "again" / "my-skill", body=read_skill(old).body)
    assert tree(again) == tree(old)


def test_only_the_touched_lines_change(old: Path, tmp_path: Path) -> None:
    """Other fields, their comments, CRLF and the byte order mark stay where they are."""
    out = derive(
        old,
        tmp_path / "new" / "my-skill",
        body="# New\n\nbody: x",
        description="Now: this.",
        metadata_updates={"version": "1.1", "looks": "2"},
    )
    assert (out / "SKILL.md").read_bytes() == (
        OLD.replace(b">-  # folded\r\n  Folded over\r\n  two lines: with a colon\r\n", b"'Now: this.'\r\n")
        .replace(
            b"    version: '1.0'   # kept\r\n    author: \"A\"\r\n",
            b"  version: '1.1'\r\n  author: A\r\n  looks: '2'\r\n",
        )
        .replace(b"# Body\r\n\r\ntext\r\n", b"# New\r\n\r\nbody: x\r\n")
    )
    rest = {name: entry for name, entry in tree(old).items() if name != "SKILL.md"}
    assert {name: entry for name, entry in tree(out).items() if name != "SKILL.md"} == rest


def test_files_are_changed_added_and_removed(old: Path, tmp_path: Path) -> None:
    """A changed file keeps its line ends, mark and permissions; an empty folder goes with its last file."""
    out = derive(
        old,
        tmp_path / "my-skill",
        changed={"references/a.md": "three\nfour\n", "scripts/run.sh": "#!/bin/sh\n", "new/b.txt": "5\n"},
        removed=["LICENSE"],
    )
    assert (out / "references/a.md").read_bytes() == b"\xef\xbb\xbfthree\r\nfour\r\n"
    assert stat.S_IMODE((out / "scripts/run.sh").stat().st_mode) == 0o755
    assert (out / "new/b.txt").read_bytes() == b"5\n"
    assert not os.path.lexists(out / "LICENSE")
    bare = derive(old, tmp_path / "bare" / "my-skill", removed=["references/a.md"])
    assert not (bare / "references").exists()
    assert tree(old)["LICENSE"] == ("link", "../LICENSE")


@pytest.mark.parametrize(
    ("changed", "removed", "said"),
    [
        ({"../x": ""}, [], "leaves"),
        ({"SKILL.md": ""}, [], "written by itself"),
        ({}, ["./SKILL.md"], "written by itself"),
        ({"LICENSE": "x"}, [], "symbolic link"),
        ({}, ["none.md"], "cannot be removed"),
        ({"references": "x"}, [], "cannot be written"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(
    old: Path, tmp_path: Path, changed: dict[str, str], removed: list[str], said: str
) -> None:
    """The message says why, the old skill stays, and no new folder appears."""
    before = tree(old)
    with pytest.raises(UsageError, match=said):
        derive(old, tmp_path / "new" / "my-skill", changed=changed, removed=removed)
    assert tree(old) == before
    assert list((tmp_path / "new").iterdir() if (tmp_path / "new").exists() else []) == []


HEADERS = {
    "null": "name: my-skill\nmetadata: ~  # none\ndescription: D.\n",
    "block": "name: my-skill\ndescription: D.\nmetadata:\n  a: b\n\n",
    "flow": "description: D.\nname: my-skill\nmetadata: {a: b}",
    "folded": "name: my-skill\ndescription: D.\nmetadata:\n  a: >-\n    b\n    c\nlicense: MIT\n",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
@FAST
@given(text=TEXT, body=st.text(max_size=200), key=st.sampled_from(["a", "looks", "yes", "1", "a b"]))
def test_any_text_is_edited_into_any_form(header: str, key: str, text: str, body: str) -> None:
    """Description, metadata entry and body say what was asked, all else what it said before."""
    old = f"---\n{header.rstrip(chr(10))}\n---\n# B\n".encode()
    new = edited(old, "SKILL.md", metadata_updates={key: text}, description=text, body=body)
    before = fields_of(old)
    entries = before.get("metadata")
    kept = entries if isinstance(entries, dict) else {}
    wanted = {"description": folded(text), "metadata": {**kept, key: folded(text)}}
    assert fields_of(new) == {**before, **wanted}
    written = frontmatter.parse(frontmatter.decode(new)).body
    plain = body.encode("utf-8", "replace").decode().replace("\r\n", "\n").replace("\r", "\n")
    assert written.strip("\n") == plain.strip("\n")


@pytest.mark.parametrize(
    "header",
    [
        "name: &n my-skill\ndescription: D.\nmetadata: &m\n  a: b\nother: *m\n",
        "name: my-skill\ndescription: D.\nmetadata: text\n",
    ],
)
def test_frontmatter_that_cannot_be_edited_is_refused(tmp_path: Path, header: str) -> None:
    """An edit that would change more than was asked is a usage error that says what to do."""
    old = skill_at(tmp_path, f"---\n{header}---\nB\n".encode())
    with pytest.raises(UsageError, match=r"metadata|cannot be edited"):
        derive(old, tmp_path / "new" / "my-skill", metadata_updates={"a": "c"})
    (old / "SKILL.md").write_text("# Body\n")
    with pytest.raises(UsageError, match=r"SKILL\.md:1 has no frontmatter"):
        derive(old, tmp_path / "new" / "my-skill")
