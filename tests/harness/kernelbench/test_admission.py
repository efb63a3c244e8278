"""Which problems make fair tasks, and the reason where they do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.kernelbench import admission
from harness.kernelbench.admission import Admission, admit_all
from harness.kernelbench.checkout import find_problems
from harness.kernelbench.conversion import Converted

pytestmark = pytest.mark.slow
Judged = dict[str, tuple[Converted, Admission]]


@pytest.mark.parametrize("number", ["1", "4", "11", "15"])
def test_a_fair_problem_is_admitted(judged: Judged, number: str) -> None:
    """A linear layer, a batch norm over the batch, two outputs, names that a task's functions have."""
    assert judged[number][1].reasons == ()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("2", "an answer without work passes: the operand x"),
        ("3", "draws random numbers"),
        ("5", "its output is constant"),
        ("6", "too large for cpu"),
        ("7", "its outputs are no tensors: dict"),
        ("8", "needs the module no_such_module"),
        ("9", "its forward writes to x"),
        ("10", "keeps the tensor h as a plain attribute"),
        ("12", "the output of other inputs"),
        ("13", "not all finite"),
        ("14", "died (signal 9)"),
    ],
)
def test_an_unfair_problem_is_not_and_why(judged: Judged, number: str, reason: str) -> None:
    """Each for its own reason, and a file that kills its process takes no other down."""
    (found,) = judged[number][1].reasons
    assert reason in found


def test_too_large_a_problem_is_looked_at_in_part_and_says_so(judged: Judged) -> None:
    """256 GiB of input: nothing of that size was allocated, and the rows looked at are told."""
    one, found = judged["6"]
    assert one.facts is not None and one.facts.inputs[0].size_bytes == 256 << 30
    assert found.notes == ("values looked at on 8 of 65536 rows only",)


def test_batch_norm_in_training_mode_is_told(judged: Judged) -> None:
    """Its output is a function of the batch; what it would update is no operand."""
    one, found = judged["4"]
    assert any("train-mode batch norm" in note for note in found.notes)
    assert one.facts is not None
    assert set(one.facts.written_state) == {"bn.num_batches_tracked", "bn.running_mean", "bn.running_var"}
    assert [t.name for t in one.facts.parameters] == ["bn__weight", "bn__bias"]


def test_what_was_judged_before_comes_from_the_cache(
    judged: Judged, bench_checkout: Path, bench_cache: Path
) -> None:
    """Nothing is read or run again, and the result is the same."""
    steps: list[str] = []
    problems = find_problems(f"kernelbench:{bench_checkout}/level1/1_*")
    ((_, again),) = admit_all(problems, "cpu", bench_cache, steps.append)
    assert again == judged["1"][1]
    assert steps == ["read kernelbench_level1/1_scaled_linear"]


def test_a_larger_device_admits_more(judged: Judged) -> None:
    """Limits are the target's: on 16 TiB it would fit."""
    one, _ = judged["6"]
    assert one.loaded is not None and one.facts is not None
    wide = admission.Limits("cuda", 1 << 44, None)
    assert admission.static_reasons(one.loaded, one.facts, wide) == []
