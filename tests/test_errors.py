"""What messages to users are made of."""

from __future__ import annotations

import pytest

from harness.errors import UsageError, did_you_mean, refuse_url
from harness.skills.spec import load_skill
from harness.suite.catalogue import all_tasks, select_tasks

TASKS = [loaded.task.id for loaded in all_tasks()]


def test_a_mistyped_name_brings_the_nearest() -> None:
    """The nearest first, three at most, with or without its level; nothing for what is near nothing."""
    for word, first in (("rmsnorm", "l1/rms_norm"), ("l1/RMS-Norm", "l1/rms_norm")):
        said = did_you_mean(word, TASKS)
        assert said.startswith(f"; did you mean {first}") and said.count(" or ") <= 2
    assert did_you_mean("nope", TASKS) == did_you_mean("x" * 100_000, TASKS) == ""


def test_an_unknown_task_is_one_short_message() -> None:
    """Not the list of all, but the command that prints it."""
    with pytest.raises(UsageError) as error:
        select_tasks(["l1/rmsnorm"])
    said = str(error.value)
    assert "did you mean l1/rms_norm" in said
    assert "liftbench tasks list" in said
    assert sum(task in said for task in TASKS) <= 4


def test_a_mistyped_skill_brings_the_nearest() -> None:
    """Of those that are shipped."""
    with pytest.raises(UsageError, match="did you mean cuda-kernel-builder"):
        load_skill("cuda-kernl-builder")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("https://hf.co/a", "https://hf.co/a"),
        ("https:/hf.co/a", "https://hf.co/a"),  # what pathlib has left
        ("git@github.com:a/b", "git@github.com:a/b"),
    ],
)
def test_a_url_is_refused_as_it_was_given(given: str, shown: str) -> None:
    """With what to do instead."""
    with pytest.raises(UsageError, match=f"^{shown} is a URL; liftbench reads only local paths: download it"):
        refuse_url(given)


def test_folders_are_no_urls() -> None:
    """Only the start counts."""
    for given in ("", "skills/a", "https", "a/https:/b", "kernelbench:KernelBench/level1"):
        refuse_url(given)
