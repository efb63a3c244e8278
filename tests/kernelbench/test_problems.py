"""Which files a pattern names, what they are called, and what is filled in for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.kernelbench.conversion import reference_py
from harness.kernelbench.problems import ProblemFacts, TensorFacts, find_problems
from tests.fakes.kernelbench import write_checkout


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two levels."""
    write_checkout(tmp_path, ("1_Scaled_linear", "2_Copy", "10_Hidden_state"))
    (tmp_path / "KernelBench" / "level2").mkdir()
    (tmp_path / "KernelBench" / "level2" / "7_Fused_Op_.py").write_text("")
    return tmp_path


def test_a_checkout_is_all_its_problems_by_number(checkout: Path) -> None:
    """Levels in order, and 2 before 10."""
    assert [problem.id for problem in find_problems(f"kernelbench:{checkout}")] == [
        "kernelbench_level1/1_scaled_linear",
        "kernelbench_level1/2_copy",
        "kernelbench_level1/10_hidden_state",
        "kernelbench_level2/7_fused_op",
    ]


@pytest.mark.parametrize(
    "rest",
    ["level1/2_*", "KernelBench/level1/2_Copy.py", "level?/*Copy", "level1/2_Copy"],
)
def test_a_level_and_a_glob_select_problems(checkout: Path, rest: str) -> None:
    """With or without the inner folder, with or without .py."""
    (found,) = find_problems(f"kernelbench:{checkout}/{rest}")
    assert found.id == "kernelbench_level1/2_copy"


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("level9", "no KernelBench problem matches"),
        ("level1/2_*/more", "no KernelBench problem matches"),
        ("KernelBench/level1/../../empty", "it has no level1"),
    ],
)
def test_a_pattern_that_matches_nothing_is_refused(checkout: Path, rest: str, said: str) -> None:
    """The message repeats the pattern, or says what a checkout looks like."""
    (checkout / "empty").mkdir()
    with pytest.raises(UsageError, match=said):
        find_problems(f"kernelbench:{checkout}/{rest}")


def test_the_adapter_is_filled_in_where_its_names_are_first_set() -> None:
    """Not below: defaults of its functions would be those of no problem."""
    x = TensorFacts(name="x", shape=(4,), dtype="float32", itemsize=4)
    facts = ProblemFacts(
        arguments=("x",),
        inputs=(x,),
        scalars=(),
        parameters=(),
        outputs=(x.model_copy(update={"name": "out"}),),
        init="[]",
        flops=0,
        kind="elementwise",
        convolves=False,
        peak_bytes=0,
        wide=True,
    )
    text = reference_py("import torch\n", facts)
    assert "_WIDE = True\n" in text
    assert "_WIDE = False\n" not in text
    assert text.index("_WIDE = True") < text.index("wide: bool = _WIDE")
