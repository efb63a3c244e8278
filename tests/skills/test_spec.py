"""Reading skills leniently and validating them strictly."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.skills.spec import list_skills, read_skill, validate_skill

SHIPPED = Path(__file__).parents[2] / "skills"


def make_skill(root: Path, text: str | bytes, name: str = "my-skill") -> Path:
    """A skill directory with this SKILL.md."""
    directory = root / name
    directory.mkdir()
    (directory / "SKILL.md").write_bytes(text if isinstance(text, bytes) else text.encode())
    return directory


def with_fields(*lines: str, body: str = "# Body\n") -> str:
    """SKILL.md with these frontmatter lines."""
    return "\n".join(["---", *lines, "---", "", body])


GOOD = with_fields("name: my-skill", "description: Does a thing. Use it when a thing is wanted.")


def messages(directory: Path, severity: str = "error") -> list[str]:
    return [str(f) for f in validate_skill(directory) if f.severity == severity]


def test_line_ends_and_a_byte_order_mark_are_read_over(tmp_path: Path) -> None:
    """A CRLF file reads like the LF file; a BOM is readable, but invalid."""
    texts = {"lf": GOOD, "crlf": GOOD.replace("\n", "\r\n"), "bom": "\ufeff" + GOOD}
    lf, crlf, bom = (make_skill(tmp_path, text, name) for name, text in texts.items())
    assert len({(one.body, one.description) for one in map(read_skill, (lf, crlf, bom))}) == 1
    assert not any("byte order mark" in one for one in messages(crlf))
    assert "byte order mark" in messages(bom)[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "first line must be `---`"),
        (b"---\nname: my-skill\ndescription: a: b\n---\n", "SKILL.md:3"),
        (b"---\nname: my-skill\ndescription: a: b\n---\n", "in quotes"),
        (b"---\nname: my-skill\ndescription: \xff\xfe\n---\n", "SKILL.md:3 is not UTF-8"),
        (b"---\nname: my-skill\n---\n", "no description"),
        (b"---\nname: my-skill\ndescription: \x00\n---\n", "no YAML"),
        pytest.param(b"---\na: " + b"[" * 5000 + b"\n---\n", "no YAML", marks=pytest.mark.slow),
    ],
)
def test_an_unusable_skill_is_a_usage_error_that_names_the_file(
    tmp_path: Path, content: bytes, said: str
) -> None:
    """Whatever is wrong with SKILL.md, the user learns which file, what, and never sees a traceback."""
    directory = make_skill(tmp_path, content)
    with pytest.raises(UsageError) as caught:
        read_skill(directory)
    assert said in str(caught.value)
    assert str(directory / "SKILL.md") in str(caught.value)
    assert messages(directory) != []


def test_the_digest_covers_every_file_its_path_and_its_bytes(tmp_path: Path) -> None:
    """Changing, adding or renaming any file changes it; junk files and the skill's place do not."""
    directory = make_skill(tmp_path, GOOD)
    (tmp_path / "x").mkdir()
    seen = [read_skill(directory).digest]
    assert read_skill(make_skill(tmp_path / "x", GOOD)).digest == seen[0]
    (directory / "references").mkdir()
    for data in (b"\xff\x00", b"\xff\x01"):
        (directory / "references" / "a.bin").write_bytes(data)
        seen.append(read_skill(directory).digest)
    (directory / "references" / "a.bin").rename(directory / "references" / "b.bin")
    seen.append(read_skill(directory).digest)
    assert len(set(seen)) == 4
    (directory / ".DS_Store").write_bytes(b"junk")
    (directory / "scripts" / "__pycache__").mkdir(parents=True)
    (directory / "scripts" / "__pycache__" / "x.pyc").write_bytes(b"junk")
    assert read_skill(directory).digest == seen[-1]
    assert read_skill(directory).files == ("SKILL.md", "references/b.bin")


def test_links_to_the_outside_are_no_part_of_a_skill(tmp_path: Path) -> None:
    """Neither a linked file nor a linked folder is read."""
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "key").write_text("secret")
    directory = make_skill(tmp_path, GOOD)
    (directory / "references").symlink_to(tmp_path / "secrets")
    (directory / "key.md").symlink_to(tmp_path / "secrets" / "key")
    assert read_skill(directory).files == ("SKILL.md",)


@pytest.mark.parametrize(
    ("lines", "body", "said"),
    [
        (["metadata:", "  version: 1.0", "  author: me"], "B\n", ["SKILL.md:5: warning: metadata.version"]),
        ([], "word word word\n" * 2_000, ["2000 lines", "estimated"]),
        ([], "", ["body is empty"]),
        (["user-invocable: false", "argument-hint: x"], "B\n", ["Claude Code's", "Claude Code's"]),
    ],
)
def test_advice_is_a_warning(tmp_path: Path, lines: list[str], body: str, said: list[str]) -> None:
    """Unquoted numbers, long and empty bodies, and fields of one client make no skill invalid."""
    text = with_fields("name: my-skill", "description: d", *lines, body=body)
    directory = make_skill(tmp_path, text)
    assert messages(directory) == []
    warnings = messages(directory, "warning")
    assert len(warnings) == len(said) and all(a in b for a, b in zip(said, warnings, strict=True))


def test_links_are_followed_inside_the_skill_only(tmp_path: Path) -> None:
    """A dead link is an error, whether meant from its file or from the root; web links and code are none."""
    body = "\n".join(
        [
            "[fine](references/a.md) [part](references/a.md#part) [folder](references) [web](https://x.y/z)",
            "[here](#top) [mail](mailto:a@b.c) `[code](nowhere.md)` ![picture](assets/p%201.png 'title')",
            "[dead](references/b.md)",
            "[up](../other/SKILL.md)",
            "[root](/etc/passwd)",
            "",
            "[ref]: references/c.md",
            "",
            "```md",
            "[in a fence](nowhere.md)",
            "```",
            "[deep](references/deep/x.md) [holder](assets/tree) [sample](references/<name>.md)",
            "",
            "    [in indented code](nowhere.md)",
            "<!-- [in a comment](nowhere.md) -->",
        ]
    )
    directory = make_skill(tmp_path, with_fields("name: my-skill", "description: d", body=body))
    (directory / "assets").mkdir()
    (directory / "assets" / "p 1.png").write_bytes(b"")
    (directory / "references" / "deep").mkdir(parents=True)
    (directory / "assets" / "tree" / "leaf").mkdir(parents=True)
    (directory / "assets" / "tree" / "leaf" / "x.txt").write_text("x")
    (directory / ".hidden.md").write_text("x")
    (directory / "references" / "a.md").write_text(
        "[back](../SKILL.md) [from the root](references/a.md) [dead](z.md)\n\n"
        "[x.md](x.md) [h](../.hidden.md)\n"
    )
    (directory / "references" / "deep" / "x.md").write_text("x\n")
    found = [(f.file, f.line, f.severity, f.message.split("'")[1::2][:1]) for f in validate_skill(directory)]
    assert found == [
        ("SKILL.md", 8, "error", ["references/b.md"]),
        ("SKILL.md", 9, "warning", ["../other/SKILL.md"]),
        ("SKILL.md", 10, "warning", ["/etc/passwd"]),
        ("SKILL.md", 12, "error", ["references/c.md"]),
        ("SKILL.md", 17, "warning", ["references/deep/x.md"]),
        ("references/a.md", 1, "error", ["z.md"]),
        ("references/a.md", 3, "error", ["../.hidden.md"]),
        ("references/a.md", 3, "error", ["x.md"]),
    ]


def test_a_broken_skill_does_not_hide_the_others(tmp_path: Path) -> None:
    """Listing gives every folder with a SKILL.md, sorted, with the reason where one cannot be read."""
    make_skill(tmp_path, GOOD, "b")
    make_skill(tmp_path, "nothing", "a")
    (tmp_path / "no-skill").mkdir()
    broken, fine = list_skills(tmp_path)
    assert (broken.directory.name, broken.skill) == ("a", None)
    assert broken.problem is not None
    assert fine.skill is not None
    assert fine.skill.name == "my-skill"


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_skill_md_that_is_no_file_is_named_and_never_read(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """A folder or a pipe of that name, or none: an error of the check, a usage error of the reader."""
    with pytest.raises(UsageError, match=r"SKILL\.md cannot be read"):
        read_skill(tmp_path)
    assert "no SKILL.md" in messages(tmp_path)[0] and "not a directory" in messages(tmp_path / "absent")[0]
    make(tmp_path / "SKILL.md")
    assert [str(finding) for finding in validate_skill(tmp_path)] == ["SKILL.md: error: SKILL.md is no file"]
    with pytest.raises(UsageError, match=r"SKILL\.md is no file"):
        read_skill(tmp_path)


def test_our_own_skills_are_valid_without_a_warning() -> None:
    """What we ship follows the specification and its advice."""
    listed = list_skills(SHIPPED)
    assert listed
    for entry in listed:
        assert entry.problem is None
        assert validate_skill(entry.directory) == []


LONG = "x" * 1024
VALID = {
    "minimal": "---\nname: minimal\ndescription: d\n---\nbody\n",
    "all-fields": (
        "---\nname: all-fields\ndescription: d\nlicense: MIT\ncompatibility: needs nvcc\n"
        "metadata:\n  author: me\n  version: '1'\nallowed-tools: Bash(git:*) Read\n---\n\nbody\n"
    ),
    "folded": "---\nname: folded\ndescription: >-\n  a: b\n  c\n---\n",
    "literal": "---\nname: literal\ndescription: |\n  a\n  b\n---\n",
    "quoted": "---\nname: 'quoted'\ndescription: \"a: b # c\"\n---\n",
    "long": f"---\nname: long\ndescription: {LONG}\n---\n",
    "digits-1-2": "---\nname: digits-1-2\ndescription: d\n---\n",
    "123": "---\nname: 123\ndescription: d\n---\n",
    "crlf": "---\r\nname: crlf\r\ndescription: d\r\n---\r\nbody\r\n",
    "spaced": "---\nname:   spaced  \ndescription: d\n---\n",
    "commented": "---\n# comment\nname: commented\ndescription: d # why\n---\n",
    "unquoted": "---\nname: unquoted\ndescription: yes\nmetadata:\n  version: 1.0\n---\n",
    "a": "---\nname: a\ndescription: d\n---\n",
    "a" * 64: f"---\nname: {'a' * 64}\ndescription: d\n---\n",
    "single-quotes": "---\nname: single-quotes\ndescription: 'it''s: fine'\n---\n",
    "hash": "---\nname: hash\ndescription: C#1 is no comment\n---\n",
    "url": "---\nname: url\ndescription: see https://example.org/a\n---\n",
    "null-license": "---\nname: null-license\ndescription: d\nlicense: 'null'\n---\n",
    "date": "---\nname: date\ndescription: 2026-01-01\n---\n",
    "number": "---\nname: number\ndescription: 0x10\n---\n",
    "body-rules": "---\nname: body-rules\ndescription: d\n---\n\n---\n\n- not: yaml: at all\n",
    "folded-plain": "---\nname: folded-plain\ndescription: one\n  two\n---\n",
    "keep": "---\nname: keep\ndescription: |+\n  a\n\n---\n",
    "emoji": '---\nname: emoji\ndescription: "\U0001f680 fast"\n---\n',
    "blank-lines": "---\nname: blank-lines\n\ndescription: d\n\n---\n",
    "compat-500": f"---\nname: compat-500\ndescription: d\ncompatibility: {'x' * 500}\n---\n",
    "order": "---\ndescription: d\nname: order\n---\n",
    "größe": "---\nname: größe\ndescription: d\n---\n",
}
INVALID = {
    "no-frontmatter": ("# hello\n", "first line must be"),
    "unclosed": ("---\nname: unclosed\ndescription: d\n", "never closed"),
    "empty-frontmatter": ("---\n---\nbody\n", "no list of"),
    "colon": ("---\nname: colon\ndescription: a: b\n---\n", "in quotes"),
    "list": ("---\n- a\n---\n", "no list of"),
    "Upper": ("---\nname: Upper\ndescription: d\n---\n", "lowercase"),
    "under_score": ("---\nname: under_score\ndescription: d\n---\n", "lowercase letters, digits and hyphens"),
    "double--hyphen": ("---\nname: double--hyphen\ndescription: d\n---\n", "two in a row"),
    "-edge": ("---\nname: -edge\ndescription: d\n---\n", "begin or end"),
    "mismatch": ("---\nname: other\ndescription: d\n---\n", "differs from the directory's name 'mismatch'"),
    "no-name": ("---\ndescription: d\n---\n", "no name"),
    "no-description": ("---\nname: no-description\n---\n", "no description"),
    "empty-description": ("---\nname: empty-description\ndescription: ''\n---\n", "description is empty"),
    "too-long": (f"---\nname: too-long\ndescription: {LONG}x\n---\n", "1025 characters"),
    "a" * 65: (f"---\nname: {'a' * 65}\ndescription: d\n---\n", "65 characters"),
    "unknown": ("---\nname: unknown\ndescription: d\nversion: '1'\n---\n", "unknown field 'version'"),
    "compatibility": (
        f"---\nname: compatibility\ndescription: d\ncompatibility: {'x' * 501}\n---\n",
        "compatibility has 501",
    ),
    "twice": ("---\nname: twice\ndescription: d\ndescription: e\n---\n", "stands twice"),
    "flow": ("---\nname: flow\ndescription: d\nmetadata: {a: b}\n---\n", "one entry to a line"),
    "anchor": ("---\nname: anchor\ndescription: &d d\nlicense: *d\n---\n", "anchors"),
    "tag": ("---\nname: tag\ndescription: !!str d\n---\n", "tags"),
    "edge-": ("---\nname: edge-\ndescription: d\n---\n", "begin or end"),
    "sp ace": ("---\nname: sp ace\ndescription: d\n---\n", "lowercase"),
    "dot.ted": ("---\nname: dot.ted\ndescription: d\n---\n", "lowercase"),
    "empty-name": ("---\nname: ''\ndescription: d\n---\n", "name is empty"),
    "blank-description": ("---\nname: blank-description\ndescription: '   '\n---\n", "description is empty"),
    "tab": ("---\nname: tab\n\tdescription: d\n---\n", "no YAML"),
    "scalar": ("---\njust text\n---\n", "no list of"),
    "Name-Case": ("---\nName: Name-Case\nDescription: d\n---\n", "unknown field 'Name'"),
    "flow-list": (
        "---\nname: flow-list\ndescription: d\nallowed-tools: [Read, Bash]\n---\n",
        "one entry to a line",
    ),
    "author": ("---\nname: author\ndescription: d\nauthor: me\n---\n", "unknown field 'author'"),
    "unbalanced": ('---\nname: unbalanced\ndescription: "d\n---\n', "no YAML"),
    "bom": ("\ufeff---\nname: bom\ndescription: d\n---\n", "byte order mark"),
}
STRICTER = {
    "nested": (
        "---\nname: nested\ndescription: d\nmetadata:\n  a:\n    b: c\n---\n",
        "metadata.a must be text",
    ),
    "scalar-metadata": (
        "---\nname: scalar-metadata\ndescription: d\nmetadata: x\n---\n",
        "metadata must be a map",
    ),
    "tool-list": (
        "---\nname: tool-list\ndescription: d\nallowed-tools:\n  - Read\n---\n",
        "allowed-tools must be text",
    ),
    "no-compatibility": (
        "---\nname: no-compatibility\ndescription: d\ncompatibility: ''\n---\n",
        "compatibility has 0",
    ),
}
"""Breaches of the specification's text that skills-ref 0.1.1 lets pass."""


@pytest.mark.parametrize("name", sorted(VALID | INVALID | STRICTER))
def test_a_frontmatter_is_judged_as_by_the_reference_validator(tmp_path: Path, name: str) -> None:
    """Each violation is an error that names it; skills-ref, where installed, agrees."""
    text, said = (INVALID | STRICTER).get(name, (VALID.get(name, ""), None))
    directory = make_skill(tmp_path, text, name)
    errors = messages(directory)
    assert any(said in one for one in errors) if said else errors == [], errors
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    assert (skills_ref.validate(directory) == []) == (said is None or name in STRICTER)
