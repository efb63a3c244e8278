"""What a converted problem says, draws and computes."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import UsageError
from harness.judge.problem import Problem
from harness.kernelbench.admission import Admission
from harness.kernelbench.conversion import Converted, convert_pattern, select_with_problems
from harness.student.prompts import signature, task_text
from harness.suite.catalogue import LoadedTask
from tests.fakes.kernelbench import SCALED_LINEAR

pytestmark = pytest.mark.slow
Judged = dict[str, tuple[Converted, Admission]]


@pytest.fixture
def linear(judged: Judged) -> LoadedTask:
    """The scaled linear layer."""
    return judged["1"][0].task()


def problem_of(loaded: LoadedTask) -> Problem:
    """Its only one."""
    return Problem(loaded, loaded.task.workloads[0], "float32")


def test_the_student_reads_signature_and_module(linear: LoadedTask) -> None:
    """Parameters with `__` for dots and numbers are passed by name; the prompt holds the module's source."""
    assert signature(linear.task) == "forward(out, x, *, fc__weight, fc__bias, factor)"
    assert linear.task.also == "kernelbench"
    assert dict(linear.task.workloads[0].scalars) == {"factor": 1.5}
    text = task_text(linear.task, "cuda", "full")
    for said in (SCALED_LINEAR.strip(), "Model(*[16])(x, factor)", "keyword argument"):
        assert said in text


def test_values_are_secret_fresh_and_distributed_as_in_the_problem(linear: LoadedTask) -> None:
    """torch's seed has no effect; nn.Linear draws weights within 1 / sqrt(16), inputs are get_inputs'."""
    draws = []
    for _ in range(2):
        torch.manual_seed(42)
        draws.append(problem_of(linear).make_inputs())
    assert set(draws[0]) == {"x", "fc__weight", "fc__bias"}
    assert not any(torch.equal(draws[0][name], draws[1][name]) for name in draws[0])
    assert 0.15 < float(draws[0]["fc__weight"].abs().max()) <= 0.25
    assert -0.5 <= float(draws[0]["x"].min()) < -0.3 and 0.3 < float(draws[0]["x"].max()) <= 0.5


def test_the_reference_computes_what_the_module_does(linear: LoadedTask) -> None:
    """On the operands it is given, in their dtype; the truth in float64."""
    problem = problem_of(linear)
    inputs = problem.make_inputs()
    expected = torch.nn.functional.linear(inputs["x"], inputs["fc__weight"], inputs["fc__bias"]) * 1.5
    (found,), (truth,) = problem.reference(inputs), problem.truth(inputs)
    assert torch.equal(found, expected)
    assert truth.dtype is torch.float64 and torch.allclose(truth.float(), expected, atol=1e-5)


def test_the_truth_of_batch_norm_is_of_the_batch_and_stays(judged: Judged) -> None:
    """Running statistics change nothing: a call in between leaves the answer as it was."""
    problem = problem_of(judged["4"][0].task())
    one, other = problem.make_inputs(), problem.make_inputs()
    (before,) = problem.reference(one)
    problem.reference(other)
    (after,) = problem.reference(one)
    assert torch.equal(before, after)
    assert torch.allclose(before.mean(0), torch.zeros(16), atol=1e-5)


def test_the_digest_covers_the_problem(
    judged: Judged, bench_checkout: Path, bench_cache: Path, tmp_path: Path
) -> None:
    """Another source is another task; the same one in another place is the same."""
    problem, before = judged["1"][0].problem, judged["1"][0].task().task.digest
    moved = tmp_path / "KernelBench" / "level1"
    moved.mkdir(parents=True)
    shutil.copy(problem.path, moved)
    (same,) = convert_pattern(f"kernelbench:{moved}", bench_cache)
    assert same.task().task.digest == before
    (moved / problem.path.name).write_text(SCALED_LINEAR.replace("1.5", "2.5"))
    (changed,) = convert_pattern(f"kernelbench:{moved}", bench_cache)
    assert changed.task().task.digest != before


def test_a_problem_that_is_none_is_refused_by_name(
    bench_checkout: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Named alone, it is a usage error with the reason."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UsageError, match=r"7_Dictionary.py cannot be a task: its outputs are no"):
        select_with_problems([f"kernelbench:{bench_checkout}/level1/7_*"])
