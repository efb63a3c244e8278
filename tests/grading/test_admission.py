"""Every rule of admission can fail, and says why; what could not be tried is not measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs torch (pip install torch)")

from harness.errors import UsageError
from harness.files import data_directory
from harness.grading.admission import FILE_NAME, RULES, Admitted, admit, sizes_rule
from harness.outcome import Cause, Stage
from harness.records import Admission, Grade, Project, ProjectFile, Rule, Target, Task, TrialKey
from harness.records.grade import GRADER_VERSION
from harness.suite.catalogue import (
    LoadedTask,
    all_tasks,
    expert_project,
    load_task,
    select_tasks,
)
from tests.fakes.overlays import throw_away_task
from tests.report import factories as make
from tools.status import admission_page

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
        mutant = Cause.PASSED if len(self.graded) - 2 < self._survivors else Cause.WRONG_VALUES
        cause = mutant if self._built else Cause.COMPILE_ERROR
        cause = self._expert if len(self.graded) == 1 else cause
        return make.grade(KEY, cause=cause, stage=Stage.CHECK if cause is Cause.PASSED else Stage.BUILD)


SMALL = {
    "rows = 384,": "rows = 6,", "rows = 192,": "rows = 5,", "rows = 4097,": "rows = 41,",
    "rows = 8191,": "rows = 81,", "cols = 50257": "cols = 503", "cols = 128256": "cols = 1283",
    "cols = 4095": "cols = 409",
}  # fmt: skip
"""What makes l1/softmax small enough to be tried in a second."""


def softmax(folder: Path, changes: Mapping[str, str] | None = None) -> LoadedTask:
    """A copy of l1/softmax, small, with some text replaced in both of its files."""
    (loaded,) = select_tasks(["l1/softmax"])
    copy = folder / "l1" / "softmax"
    copy.mkdir(parents=True)
    for name in ("task.toml", "reference.py"):
        text = (loaded.directory / name).read_text()
        for old, new in {**SMALL, **(changes or {})}.items():
            text = text.replace(old, new)
        (copy / name).write_text(text)
    return load_task(copy)


def tried(loaded: LoadedTask, grader: FakeGrader, mutants: int = 0) -> dict[str, Rule]:
    entry = admit(loaded, grader, mutants)  # type: ignore[arg-type]
    assert entry.grader_version == GRADER_VERSION
    return {rule.name: rule for rule in entry.rules}


@pytest.mark.slow
def test_a_sound_task_is_admitted(tmp_path: Path) -> None:
    """All rules hold but for the speed of light, which needs a GPU."""
    grader = FakeGrader()
    found = tried(softmax(tmp_path), grader, 5)
    assert {name for name, rule in found.items() if rule.status != "holds"} == {"light"}
    assert found["light"].status == "not_measured"
    assert found["mutants"].said.startswith("5 of 5 caught")
    assert len({project.digest for project in grader.graded}) == len(grader.graded) == 6


@pytest.mark.slow
def test_broken_rules_are_named(tmp_path: Path) -> None:
    """With the workload, or the trivial answer, that breaks each."""
    changes = {'source = "Attention': 'source = ""\n# "Attention', "F.softmax(": "0.0 * F.softmax("}
    found = tried(softmax(tmp_path, changes), FakeGrader())
    broken = {"sources": "attention_2048", "trivial": "zeros passes", "inputs": "ignores x passes"}
    for name, said in broken.items():
        assert found[name].status == "fails" and said in found[name].said


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (("384", "3000000"), "attention_2048 float32 takes [0-9.e+]+ GiB on cpu"),
        (("24576", "30000000"), "on cuda, which allows 20 GiB"),
    ],
)
def test_a_size_beyond_the_limit_is_named(rows: tuple[str, str], said: str, tmp_path: Path) -> None:
    """On the target whose limit it is; nothing of that size is made."""
    rule = sizes_rule(softmax(tmp_path, {f"rows = {rows[0]},": f"rows = {rows[1]},"}))
    assert rule.status == "fails" and re.search(said, rule.said)


def test_a_reference_that_fails_its_own_check_is_found(tmp_path: Path) -> None:
    """Its answer in float32 is not near its answer in float64."""
    changes = {'inputs["x"]': 'inputs["x"] * (1.0 if inputs["x"].dtype == torch.float64 else 1.1)'}
    rule = tried(softmax(tmp_path, changes), FakeGrader())["reference"]
    assert rule.status == "fails" and "out of tolerance" in rule.said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("grader", "rule", "status", "said"),
    [
        (FakeGrader(expert=Cause.WRONG_VALUES), "expert", "fails", ""),
        (FakeGrader(expert=Cause.WRONG_VALUES), "mutants", "not_measured", "needs an expert"),
        (FakeGrader(survivors=1), "mutants", "fails", "survives: softmax_cpu/softmax.cpp:"),
        (FakeGrader(built=False), "mutants", "not_measured", "could be built"),
    ],
)
def test_a_wrong_expert_and_surviving_mutants_are_named(
    grader: FakeGrader, rule: str, status: str, said: str, tmp_path: Path
) -> None:
    """One of eight is too many; mutants that cannot be built are no evidence."""
    found = tried(softmax(tmp_path), grader, mutants=8)[rule]
    assert found.status == status and said in found.said


# The record

TASK = throw_away_task("scale").task
EXPERT = Project(files=(ProjectFile(path="build.toml", text=""),))


def entry(task: Task = TASK, **statuses: str) -> Admission:
    """All rules hold, but for those named."""
    rules = tuple(
        Rule.model_validate({"name": name, "status": statuses.get(name, "holds"), "said": "7 of 8 caught"})
        for name in RULES
    )
    return Admission(
        task=task.id, version=1, task_digest=task.digest, expert=EXPERT.digest, target="cpu", rules=rules
    )


def test_it_reads_as_it_was_written(tmp_path: Path) -> None:
    """Replaced by task, with a page; an entry counts for its own files; broken files are refused."""
    path = tmp_path / "a.json"
    kept = Admitted(path)
    kept.add(entry(light="not_measured"))
    kept.add(entry(trivial="fails"))
    assert Admitted(path).entries == (entry(trivial="fails"),)
    table = admission_page(Admitted(path).entries)
    assert f"0 of 1 tasks break none. Tried by grader version {GRADER_VERSION}: 0." in table
    newer = entry().model_copy(update={"grader_version": GRADER_VERSION})
    assert f"Tried by grader version {GRADER_VERSION}: 1." in admission_page([newer])
    assert "| t/scale | 1 | yes | yes | yes | NO | yes | yes | yes | 7/8 | yes |" in table
    found = entry(trivial="fails")
    assert (kept.entry(TASK, EXPERT), kept.entry(TASK, None)) == (found, None)
    assert kept.entry(TASK.model_copy(update={"digest": "b" * 64}), EXPERT) is None
    kept.keep([TASK])
    assert kept.entries == (found,)
    kept.keep([])
    assert Admitted(path).entries == ()
    path.write_text("{}]")
    with pytest.raises(UsageError, match="move it away"):
        Admitted(path)


def test_every_shipped_task_was_admitted_as_it_is() -> None:
    """Make it so: liftbench tasks check --record tasks/ADMISSION.json."""
    kept = Admitted(data_directory("tasks") / FILE_NAME)
    owed, broken = [], []
    for loaded in all_tasks():
        found = kept.entry(loaded.task, expert_project(loaded.task))
        if found is None:
            owed.append(loaded.task.id)
        elif not found.admitted:
            broken.append(loaded.task.id)
    assert (owed, broken) == ([], [])
