"""A version of a task has one digest for ever."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.files import data_directory
from harness.records import Task
from harness.suite.catalogue import all_tasks
from tests.fakes.overlays import throw_away_task
from tools.freeze import FILE_NAME, Frozen


def task(version: int = 1, digest: str = "a" * 64) -> Task:
    return throw_away_task("scale").task.model_copy(update={"version": version, "digest": digest})


def test_a_changed_task_needs_a_new_version() -> None:
    """The digest of a version never changes; a new version makes a new suite; files round-trip."""
    frozen = Frozen().with_tasks([task()])
    assert (frozen.suite, Frozen.parse(frozen.text())) == (1, frozen)
    assert frozen.with_tasks([task()]) is frozen
    with pytest.raises(UsageError, match=r"t/scale \(version 1\)"):
        frozen.with_tasks([task(digest="b" * 64)])
    after = frozen.with_tasks([task(version=2, digest="b" * 64)])
    assert (after.suite, after.tasks["t/scale"]) == (2, (2, "b" * 64))


def test_differences_are_named() -> None:
    """What is new, changed or gone."""
    frozen = Frozen().with_tasks([task()])
    assert frozen.differences([task()]) == []
    assert frozen.differences([task(digest="b" * 64)]) == ["t/scale is not what version 1 was"]
    assert frozen.differences([]) == ["t/scale is frozen and not there"]
    assert Frozen().differences([task()]) == ["t/scale is not frozen"]


@pytest.mark.parametrize("text", ["", "suite one", "suite 1\nt/scale 1 abc"])
def test_a_broken_file_is_refused(text: str) -> None:
    """With the line and what to do."""
    with pytest.raises(UsageError, match="tasks/VERSION"):
        Frozen.parse(text)


def test_the_shipped_suite_is_as_it_was_frozen() -> None:
    """A changed task: raise its `version`, then `make freeze`."""
    frozen = Frozen.parse((data_directory("tasks") / FILE_NAME).read_text())
    assert frozen.differences([loaded.task for loaded in all_tasks()]) == []
