"""The record of admissions keeps what was found, for exactly the files that it was found of."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.files import data_directory
from harness.grading.admitted import FILE_NAME, RULES, Admitted
from harness.records import Project, ProjectFile, Task
from harness.records.task import Admission, Rule
from harness.suite.catalogue import all_tasks, expert_directory, read_project
from tests.fakes.overlays import throw_away_task

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
    """Replaced by task, sorted, with a table beside it."""
    path = tmp_path / "a.json"
    kept = Admitted.open(path)
    kept.add(entry(light="not_measured"))
    kept.add(entry(trivial="fails"))
    assert Admitted.open(path).entries == (entry(trivial="fails"),)
    table = path.with_suffix(".md").read_text()
    assert "0 of 1 tasks break none" in table
    assert "| t/scale | 1 | yes | yes | yes | NO | yes | yes | yes | 7/8 | yes |" in table


def test_an_entry_counts_for_its_own_files(tmp_path: Path) -> None:
    """Another task.toml or another expert is another matter."""
    kept = Admitted.open(tmp_path / "a.json")
    kept.add(entry())
    assert kept.entry(TASK, EXPERT) == entry()
    assert kept.entry(TASK.model_copy(update={"digest": "b" * 64}), EXPERT) is None
    assert kept.entry(TASK, None) is None


def test_tasks_that_are_no_more_are_forgotten(tmp_path: Path) -> None:
    """And it is told whether there were any."""
    kept = Admitted.open(tmp_path / "a.json")
    kept.add(entry())
    assert not kept.keep([TASK])
    assert kept.keep([])
    assert kept.entries == ()


def test_a_broken_file_is_refused(tmp_path: Path) -> None:
    """Rather than written over."""
    path = tmp_path / "a.json"
    path.write_text("{}]")
    with pytest.raises(UsageError, match="move it away"):
        Admitted.open(path)


def test_every_shipped_task_was_admitted_as_it_is() -> None:
    """Make it so: liftbench tasks check --record tasks/ADMISSION.json."""
    kept = Admitted.open(data_directory("tasks") / FILE_NAME)
    owed, broken = [], []
    for loaded in all_tasks():
        directory = expert_directory(loaded.task)
        assert directory is not None
        found = kept.entry(loaded.task, read_project(directory))
        if found is None:
            owed.append(loaded.task.id)
        elif not found.admitted:
            broken.append(loaded.task.id)
    assert (owed, broken) == ([], [])
    assert (data_directory("tasks") / FILE_NAME).with_suffix(".md").read_text() == kept.table()
