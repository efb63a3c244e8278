"""Which files a pattern names, and what they are called."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.kernelbench.checkout import find_problems
from tests.fakes.kernelbench import write_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two levels."""
    write_checkout(tmp_path, ("1_Scaled_linear", "2_Copy", "10_Hidden_state"))
    (tmp_path / "KernelBench" / "level2").mkdir()
    (tmp_path / "KernelBench" / "level2" / "7_Fused_Op_.py").write_text("")
    return tmp_path


def named(pattern: str) -> list[str]:
    """Ids."""
    return [problem.id for problem in find_problems(pattern)]


def test_a_checkout_is_all_its_problems_by_number(checkout: Path) -> None:
    """Levels in order, and 2 before 10."""
    assert named(f"kernelbench:{checkout}") == [
        "kernelbench_level1/1_scaled_linear",
        "kernelbench_level1/2_copy",
        "kernelbench_level1/10_hidden_state",
        "kernelbench_level2/7_fused_op",
    ]


@pytest.mark.parametrize(
    "rest",
    ["level1/2_*", "KernelBench/level1/2_Copy.py", "level1/2_Copy.py", "level?/*Copy", "level1/2_Copy"],
)
def test_a_level_and_a_glob_narrow_it(checkout: Path, rest: str) -> None:
    """With or without the inner folder, with or without .py."""
    assert named(f"kernelbench:{checkout}/{rest}") == ["kernelbench_level1/2_copy"]


def test_the_inner_folder_and_a_level_are_checkouts_too(checkout: Path) -> None:
    """Whatever part of a checkout somebody has."""
    assert len(named(f"kernelbench:{checkout}/KernelBench")) == 4
    assert len(named(f"kernelbench:{checkout}/KernelBench/level1")) == 3
    assert len(named(f"kernelbench:{checkout}/level2")) == 1


@pytest.mark.parametrize("rest", ["level9", "level1/nothing", "level1/2_*/more"])
def test_what_matches_nothing_is_refused(checkout: Path, rest: str) -> None:
    """By the pattern that was given."""
    with pytest.raises(UsageError, match="no KernelBench problem matches"):
        find_problems(f"kernelbench:{checkout}/{rest}")


def test_a_folder_without_levels_is_no_checkout(tmp_path: Path) -> None:
    """And the message says what one looks like."""
    with pytest.raises(UsageError, match="level1"):
        find_problems(f"kernelbench:{tmp_path}")
