"""Which problems make fair tasks, and the reason where they do not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.cli.options import GradingOptions
from harness.cli.tasks import chosen_tasks, list_problems
from harness.errors import UsageError
from harness.judge.problem import Problem
from harness.kernelbench import admission
from harness.kernelbench.admission import Admission, admit_all
from harness.kernelbench.conversion import Converted
from harness.kernelbench.problems import CPU_BYTES, find_problems
from harness.suite.sizes import HOST_BYTES, size_of

pytestmark = pytest.mark.slow
Judged = dict[str, tuple[Converted, Admission]]


@pytest.mark.parametrize("number", ["1", "4", "11", "15", "17", "21", "22"])
def test_a_fair_problem_is_admitted(judged: Judged, number: str) -> None:
    """A linear layer, a batch norm over the batch, two outputs, names that a task's functions have, a ReLU of
    inputs that take both signs, a recurrent network, a loss."""
    assert judged[number][1].reasons == ()


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        ("2", "an answer without work passes: x as it is"),
        ("3", "draws random numbers"),
        ("5", "its output is constant"),
        ("16", "too large for cpu"),
        ("7", "its outputs are no tensors: dict"),
        ("8", "needs the module no_such_module"),
        ("9", "its forward writes to x"),
        ("10", "keeps the tensor h as a plain attribute"),
        ("12", "passes: mean"),
        ("13", "not all finite"),
        ("14", "died (signal 9)"),
    ],
)
def test_an_unfair_problem_is_not_and_why(judged: Judged, number: str, reason: str) -> None:
    """Each for its own reason, and a file that kills its process takes no other down."""
    (found,) = judged[number][1].reasons
    assert reason in found


def test_what_the_cpu_does_not_take_is_scaled_there_and_says_so(judged: Judged) -> None:
    """256 GiB of input: nothing of that size is allocated; a GPU gets the problem's own size."""
    one, found = judged["6"]
    assert one.facts is not None and one.facts.inputs[0].size_bytes == 256 << 30
    assert found.admitted and found.scaled is not None and found.scaled[1] == 1 << 16
    assert f"scaled: {found.scaled[0]} of 65536 rows" in found.notes
    task = one.task().task
    (own,), (scaled,) = task.workloads_for("cuda"), task.workloads_for("cpu")
    assert (own.dims, own.scaled_from) == ({"rows": 1 << 16}, None) and not task.scaled("cuda")
    assert (scaled.dims, scaled.scaled_from) == ({"rows": found.scaled[0]}, 1 << 16) and task.scaled("cpu")
    assert size_of(task, scaled, "float32").judged_bytes <= HOST_BYTES == CPU_BYTES


def test_only_the_first_operand_is_scaled_where_the_others_share_no_rows(judged: Judged) -> None:
    """A square product: A has rows, B has none."""
    one, found = judged["20"]
    assert found.scaled is not None and found.scaled[0] < 8192
    assert one.facts is not None and one.facts.rows is not None and one.facts.rows.inputs == ("x",)


@pytest.mark.parametrize(
    ("number", "by", "apart"), [("6", "rows", True), ("18", "parts", False), ("19", "parts", False)]
)
def test_how_a_large_problem_is_judged_on_a_gpu(judged: Judged, number: str, by: str, apart: bool) -> None:
    """By rows only where trials show that they are apart; a loss and a mean over the batch are not."""
    one, _ = judged[number]
    assert one.loaded is not None and one.facts is not None and one.facts.rows is not None
    assert one.facts.rows.apart is apart
    assert admission.judged_by(one.loaded, admission.Limits("cuda", 1 << 34, None)) == by


def test_a_relu_is_judged_on_inputs_of_both_signs(judged: Judged) -> None:
    """On KernelBench's own the input would pass for the output; by its own rules they are kept."""
    one, found = judged["17"]
    assert one.facts is not None and one.facts.wide
    assert any("inputs from (-3, 3]" in note for note in found.notes)
    problem = Problem(one.task(), one.task().task.workloads[0], "float32")
    ours, theirs = problem.make_inputs()["x"], problem.published_inputs()["x"]
    assert ours.min() < -1 and ours.max() > 1 and theirs.min() >= 0 and theirs.max() <= 1
    assert "(-3, 3]" in one.task().task.semantics


def test_a_recurrent_network_is_read_in_one_step(judged: Judged) -> None:
    """Its work is that of its matrices at every step."""
    one, _ = judged["21"]
    assert one.facts is not None and one.facts.outputs[0].shape == (2, 500, 32)
    matrices = sum(t.shape[0] * t.shape[1] for t in one.facts.parameters if len(t.shape) == 2)
    assert one.facts.flops == 2 * 2 * 500 * matrices and one.facts.kind == "contraction"


def test_batch_norm_in_training_mode_is_told(judged: Judged) -> None:
    """Its output is a function of the batch; what it would update is no operand."""
    one, found = judged["4"]
    assert any("train-mode batch norm" in note for note in found.notes)
    assert one.facts is not None
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
    """Limits are the target's: 512 GiB of operands, in parts, fit in 4 TiB and not in 2."""
    one, _ = judged["6"]
    assert one.loaded is not None and one.facts is not None
    for memory, reasons in ((1 << 42, 0), (1 << 41, 1)):
        limits = admission.Limits("cuda", memory, None)
        assert len(admission.static_reasons(one.loaded, one.facts, limits)) == reasons


def test_the_table_says_what_is_admitted_and_why_not(
    judged: Judged, bench_checkout: Path, bench_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line for each problem, and the count at the end."""
    list_problems([f"kernelbench:{bench_checkout}/level1/[14]_*"], "cpu", bench_cache, json_output=False)
    text = capsys.readouterr().out
    assert "level1/1_scaled_linear" in text and "0.0 GiB" in text
    assert "2 of 2 admitted on cpu" in text


def test_the_list_as_json_has_reasons_and_scaled_rows(
    judged: Judged, bench_checkout: Path, bench_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The records as they are, and whether each is admitted."""
    list_problems([f"kernelbench:{bench_checkout}/level1/[36]_*"], "cpu", bench_cache, json_output=True)
    dropout, scaled = json.loads(capsys.readouterr().out)
    assert not dropout["admitted"] and "random" in dropout["reasons"][0]
    assert scaled["admitted"] and scaled["scaled"][1] == 65536 and scaled["by"] == "whole"


def test_only_what_is_admitted_is_chosen(
    judged: Judged, bench_checkout: Path, bench_cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are told on stderr."""
    pattern = f"kernelbench:{bench_checkout}/level1/[13]_*"
    found = chosen_tasks([pattern], GradingOptions(target="cpu", cache=bench_cache))
    assert [loaded.task.name for loaded in found] == ["1_scaled_linear"]
    assert "not admitted: kernelbench_level1/3_dropout" in capsys.readouterr().err


def test_a_problem_that_is_not_admitted_cannot_be_named(
    judged: Judged, bench_checkout: Path, bench_cache: Path
) -> None:
    """Nothing is left: a usage error with the reason."""
    with pytest.raises(UsageError, match="x as it is"):
        chosen_tasks(
            [f"kernelbench:{bench_checkout}/level1/2_Copy.py"],
            GradingOptions(target="cpu", cache=bench_cache),
        )
