"""Every rule of admission can fail, and says why; what could not be tried is not measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.grading import admission
from harness.grading.admission import admit, sizes_rule
from harness.judge.problem import Problem
from harness.outcome import Cause, Stage
from harness.records import Grade, Project, Target, TrialKey
from harness.records.task import Admission, Rule
from harness.suite.catalogue import LoadedTask, load_task, select_tasks
from tests.report import factories as make

KEY = TrialKey(task="l1/softmax", model="m/m", arm="a", repeat=0)


class FakeGrader:
    """The expert is right; of its mutants those are caught whose text says so."""

    target: Target = "cpu"

    def __init__(self, expert: Cause = Cause.PASSED, survivors: int = 0, built: bool = True) -> None:
        self.graded: list[Project] = []
        self._expert, self._survivors, self._built = expert, survivors, built

    def grade(self, project: Project, loaded: LoadedTask) -> Grade:
        """As Grader.grade."""
        self.graded.append(project)
        count = len(self.graded)
        if count == 1:
            cause = self._expert
        elif not self._built:
            cause = Cause.COMPILE_ERROR
        else:
            cause = Cause.PASSED if count - 2 < self._survivors else Cause.WRONG_VALUES
        return make.grade(KEY, cause=cause, stage=Stage.CHECK if cause is Cause.PASSED else Stage.BUILD)


def softmax(changes: Mapping[str, str] | None = None, folder: Path | None = None) -> LoadedTask:
    """l1/softmax, or a copy in `folder` with some text replaced in both of its files."""
    (loaded,) = select_tasks(["l1/softmax"])
    if folder is None:
        return loaded
    copy = folder / "l1" / "softmax"
    copy.mkdir(parents=True)
    for name in ("task.toml", "reference.py"):
        text = (loaded.directory / name).read_text()
        for old, new in (changes or {}).items():
            text = text.replace(old, new)
        (copy / name).write_text(text)
    return load_task(copy)


def rules(admission: Admission) -> dict[str, Rule]:
    return {rule.name: rule for rule in admission.rules}


def admitted(loaded: LoadedTask, grader: FakeGrader, mutants: int = 0) -> dict[str, Rule]:
    return rules(admit(loaded, grader, mutants))  # type: ignore[arg-type]


def test_a_sound_task_is_admitted() -> None:
    """All rules hold but for the speed of light, which needs a GPU."""
    grader = FakeGrader()
    found = admit(softmax(), grader, 5)  # type: ignore[arg-type]
    assert found.admitted
    by_name = rules(found)
    assert {name for name, rule in by_name.items() if rule.status == "holds"} == set(by_name) - {"light"}
    assert by_name["light"].status == "not_measured"
    assert by_name["mutants"].said.startswith("5 of 5 caught")
    assert len(grader.graded) == 6
    assert len({project.digest for project in grader.graded}) == 6


@pytest.mark.parametrize(
    ("changes", "rule", "said"),
    [
        ({'source = "Attention': 'source = ""\n# "Attention'}, "sources", "attention_2048"),
        ({"F.softmax(": "0.0 * F.softmax("}, "trivial", "zeros passes"),
        ({"F.softmax(": "0.0 * F.softmax("}, "inputs", "ignores x passes"),
    ],
)
def test_a_broken_rule_is_named(changes: dict[str, str], rule: str, said: str, tmp_path: Path) -> None:
    """With the workload that breaks it."""
    found = admitted(softmax(changes, tmp_path), FakeGrader())
    assert found[rule].status == "fails"
    assert said in found[rule].said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rows = 384,": "rows = 3000000,"}, "attention_2048 float32 takes [0-9.e+]+ GiB on cpu"),
        ({"rows = 24576,": "rows = 30000000,"}, "on cuda, which allows 20 GiB"),
    ],
)
def test_a_size_beyond_the_limit_is_named(changes: dict[str, str], said: str, tmp_path: Path) -> None:
    """On the target whose limit it is; nothing of that size is made."""
    rule = sizes_rule(softmax(changes, tmp_path))
    assert rule.status == "fails"
    assert re.search(said, rule.said)


def test_a_reference_that_fails_its_own_check_is_found(tmp_path: Path) -> None:
    """Its answer in float32 is not near its answer in float64."""
    changes = {'inputs["x"]': 'inputs["x"] * (1.0 if inputs["x"].dtype == torch.float64 else 1.1)'}
    found = admitted(softmax(changes, tmp_path), FakeGrader())
    assert found["reference"].status == "fails"
    assert "out of tolerance" in found["reference"].said


def test_a_reference_that_fails_on_some_inputs_only_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timed workloads are tried on several draws, the others on one."""
    seen: dict[str, int] = {}

    def sometimes(problem: Problem) -> str | None:
        seen[problem.label] = seen.get(problem.label, 0) + 1
        return "just over" if seen[problem.label] == 5 else None

    monkeypatch.setattr(admission, "reference_fails", sometimes)
    rule = admitted(softmax(), FakeGrader())["reference"]
    assert rule.status == "fails"
    assert rule.said.startswith("just over")
    assert set(seen.values()) == {1, 5}


def test_an_expert_that_is_wrong_keeps_its_task_out() -> None:
    """And its mutants say nothing then."""
    found = admitted(softmax(), FakeGrader(expert=Cause.WRONG_VALUES), mutants=5)
    assert found["expert"].status == "fails"
    assert found["mutants"].status == "not_measured"


def test_mutants_that_survive_are_named() -> None:
    """One of eight is too many."""
    found = admitted(softmax(), FakeGrader(survivors=1), mutants=8)
    assert found["mutants"].status == "fails"
    assert "7 of 8 caught" in found["mutants"].said
    assert "survives: softmax_cpu/softmax.cpp:" in found["mutants"].said


def test_mutants_that_cannot_be_built_are_no_evidence() -> None:
    """Not measured, not caught."""
    found = admitted(softmax(), FakeGrader(built=False), mutants=3)
    assert found["mutants"].status == "not_measured"
