"""Lineages: looks at a test split are counted, and each costs half of what is left."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.skills.lineage import Lineage, Look, LookLog, alpha_of, lineage_of
from harness.skills.spec import read_skill

LINEAGE = Lineage("abc", ("scan",), 0)


def look(number: int, run: str) -> Look:
    return Look(
        lineage="abc", number=number, run=run, skill="s", alpha=alpha_of(number), at="2026-01-01T00:00:00Z"
    )


def test_all_looks_together_stay_below_five_percent() -> None:
    """The k-th level is 0.05 / 2^k, so that their sum never reaches 0.05."""
    assert alpha_of(1) == 0.025
    assert alpha_of(3) == 0.05 / 8
    assert sum(alpha_of(k) for k in range(1, 31)) < 0.05
    with pytest.raises(UsageError, match="anew"):
        alpha_of(31)


def test_a_new_run_is_a_new_look_and_the_same_run_is_none(tmp_path: Path) -> None:
    """Looks are numbered by run; a resumed run keeps its number, and one with new replies (`fresh`) does not.

    The count that a skill brings along from another machine is added.
    """
    log = LookLog(tmp_path / "deep" / "looks.jsonl")
    assert log.number(LINEAGE, "r1") == 1
    log.add(look(1, "r1"))
    log.add(look(1, "r1"))
    assert log.number(LINEAGE, "r1") == 1
    assert log.number(LINEAGE, "r2") == 2
    log.add(look(2, "r2"))
    assert log.number(LINEAGE, "r3") == 3
    assert log.number(LINEAGE, "r2", fresh=True) == 3
    assert log.number(Lineage("another order", (), 0), "r9") == 1
    assert log.number(Lineage("another", (), 4), "r1") == 5


def test_a_damaged_log_is_refused(tmp_path: Path) -> None:
    """A look that is lost would make the next test too lenient, so nothing is skipped."""
    path = tmp_path / "looks.jsonl"
    path.write_text("{}\n")
    with pytest.raises(UsageError, match=r"looks.jsonl:1"):
        LookLog(path).number(LINEAGE, "r1")


def test_marks_come_back_from_the_frontmatter(tmp_path: Path) -> None:
    """What is written into a skill's metadata is read from it; another skill has no lineage."""
    skill = tmp_path / "a"
    skill.mkdir()
    known = Lineage("abc", ("scan", "softmax"), 2)
    marks = "".join(f'  {name}: "{value}"\n' for name, value in known.metadata.items())
    (skill / "SKILL.md").write_text(f"---\nname: a\ndescription: d\nmetadata:\n{marks}---\nx\n")
    assert lineage_of(skill) == known
    told = read_skill(skill).documents["SKILL.md"]
    assert "liftbench" not in told
    assert "description: d" in told
    (skill / "SKILL.md").write_text("---\nname: a\ndescription: d\n---\nx\n")
    assert lineage_of(skill) is None
    assert lineage_of(tmp_path / "nothing") is None
