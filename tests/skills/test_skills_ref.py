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
    "no-frontmatter": "# hello\n",
    "unclosed": "---\nname: unclosed\ndescription: d\n",
    "empty-frontmatter": "---\n---\nbody\n",
    "colon": "---\nname: colon\ndescription: a: b\n---\n",
    "list": "---\n- a\n---\n",
    "Upper": "---\nname: Upper\ndescription: d\n---\n",
    "under_score": "---\nname: under_score\ndescription: d\n---\n",
    "double--hyphen": "---\nname: double--hyphen\ndescription: d\n---\n",
    "-edge": "---\nname: -edge\ndescription: d\n---\n",
    "mismatch": "---\nname: other\ndescription: d\n---\n",
    "no-name": "---\ndescription: d\n---\n",
    "no-description": "---\nname: no-description\n---\n",
    "empty-description": "---\nname: empty-description\ndescription: ''\n---\n",
    "too-long": f"---\nname: too-long\ndescription: {LONG}x\n---\n",
    "a" * 65: f"---\nname: {'a' * 65}\ndescription: d\n---\n",
    "unknown": "---\nname: unknown\ndescription: d\nversion: '1'\n---\n",
    "compatibility": f"---\nname: compatibility\ndescription: d\ncompatibility: {'x' * 501}\n---\n",
    "twice": "---\nname: twice\ndescription: d\ndescription: e\n---\n",
    "flow": "---\nname: flow\ndescription: d\nmetadata: {a: b}\n---\n",
    "anchor": "---\nname: anchor\ndescription: &d d\nlicense: *d\n---\n",
    "tag": "---\nname: tag\ndescription: !!str d\n---\n",
    "edge-": "---\nname: edge-\ndescription: d\n---\n",
    "sp ace": "---\nname: sp ace\ndescription: d\n---\n",
    "dot.ted": "---\nname: dot.ted\ndescription: d\n---\n",
    "empty-name": "---\nname: ''\ndescription: d\n---\n",
    "blank-description": "---\nname: blank-description\ndescription: '   '\n---\n",
    "tab": "---\nname: tab\n\tdescription: d\n---\n",
    "scalar": "---\njust text\n---\n",
    "Name-Case": "---\nName: Name-Case\nDescription: d\n---\n",
    "flow-list": "---\nname: flow-list\ndescription: d\nallowed-tools: [Read, Bash]\n---\n",
    "author": "---\nname: author\ndescription: d\nauthor: me\n---\n",
    "unbalanced": '---\nname: unbalanced\ndescription: "d\n---\n',
    "bom": "\ufeff---\nname: bom\ndescription: d\n---\n",
}
STRICTER = {
    "nested": "---\nname: nested\ndescription: d\nmetadata:\n  a:\n    b: c\n---\n",
    "scalar-metadata": "---\nname: scalar-metadata\ndescription: d\nmetadata: x\n---\n",
    "tool-list": "---\nname: tool-list\ndescription: d\nallowed-tools:\n  - Read\n---\n",
    "no-compatibility": "---\nname: no-compatibility\ndescription: d\ncompatibility: ''\n---\n",
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
    """Each broken frontmatter is refused, with or without skills-ref at hand."""
    assert not we_accept(make(tmp_path, name, (INVALID | STRICTER)[name]))


@pytest.mark.parametrize("name", sorted(VALID | INVALID))
def test_we_agree_with_the_reference_validator(tmp_path: Path, name: str) -> None:
    """skills-ref calls a skill valid exactly when we do."""
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    directory = make(tmp_path, name, (VALID | INVALID)[name])
    assert (skills_ref.validate(directory) == []) == we_accept(directory)


@pytest.mark.parametrize("name", sorted(STRICTER))
def test_we_are_stricter_only_where_the_text_of_the_specification_is(tmp_path: Path, name: str) -> None:
    """The known differences: rules of the specification that skills-ref does not check."""
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    directory = make(tmp_path, name, STRICTER[name])
    assert skills_ref.validate(directory) == []
    assert not we_accept(directory)


def test_the_reference_validator_accepts_our_own_skills() -> None:
    """What we ship is valid by the specification's own validator."""
    skills_ref = pytest.importorskip("skills_ref", reason="needs skills-ref (pip install skills-ref)")
    for path in sorted((Path(__file__).parents[2] / "skills").glob("*/SKILL.md")):
        assert skills_ref.validate(path.parent) == []
