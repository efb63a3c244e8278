"""Our validity of frontmatters against the specification's own validator (PyPI `skills-ref`).

Where it is not installed, the corpus still tests our own validator, and the comparison is skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.skills.spec import validate_skill

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


def make(root: Path, name: str, text: str) -> Path:
    directory = root / name
    directory.mkdir()
    (directory / "SKILL.md").write_bytes(text.encode())
    return directory


def we_accept(directory: Path) -> bool:
    return all(f.severity != "error" for f in validate_skill(directory))


@pytest.mark.parametrize("name", sorted(VALID))
def test_valid_skills_are_valid(tmp_path: Path, name: str) -> None:
    """Each valid form of a frontmatter is accepted, with or without skills-ref at hand."""
    assert we_accept(make(tmp_path, name, VALID[name]))


@pytest.mark.parametrize("name", sorted(INVALID | STRICTER))
def test_invalid_skills_are_invalid(tmp_path: Path, name: str) -> None:
    """Each violation of the specification is an error whose message names it."""
    text, said = (INVALID | STRICTER)[name]
    errors = [str(f) for f in validate_skill(make(tmp_path, name, text)) if f.severity == "error"]
    assert any(said in one for one in errors), errors


@pytest.mark.parametrize("name", sorted(VALID | INVALID))
def test_we_agree_with_the_reference_validator(tmp_path: Path, name: str) -> None:
    """skills-ref calls a skill valid exactly when we do."""
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    directory = make(tmp_path, name, VALID[name] if name in VALID else INVALID[name][0])
    assert (skills_ref.validate(directory) == []) == we_accept(directory)


@pytest.mark.parametrize("name", sorted(STRICTER))
def test_we_are_stricter_only_where_the_text_of_the_specification_is(tmp_path: Path, name: str) -> None:
    """The known differences: rules of the specification that skills-ref does not check."""
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    directory = make(tmp_path, name, STRICTER[name][0])
    assert skills_ref.validate(directory) == []
    assert not we_accept(directory)


def test_the_reference_validator_accepts_our_own_skills() -> None:
    """What we ship is valid by the specification's own validator."""
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    for path in sorted((Path(__file__).parents[2] / "skills").glob("*/SKILL.md")):
        assert skills_ref.validate(path.parent) == []
