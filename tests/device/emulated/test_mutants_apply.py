"""Every mutant of the CUDA experts is the expert but for its patch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.suite.catalogue import read_project
from tests.device.emulated.mutants import Mutant, mutants, projects

MUTANTS = mutants()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_differs_from_its_expert_only_in_the_patch(mutant: Mutant) -> None:
    """The files are the expert's, and the patched one is equal before and behind the patch."""
    before = {file.path: file.text for file in read_project(mutant.folder).files}
    after = {file.path: file.text for file in mutant.project().files}
    assert before.keys() == after.keys()
    assert [path for path in before if before[path] != after[path]] == [mutant.path]
    head, _, tail = before[mutant.path].partition(mutant.old)
    assert after[mutant.path] == head + mutant.new + tail


def test_the_table_covers_every_kind_and_many_experts() -> None:
    """At least 44 mutants of at least 20 experts, with unique names and known outcomes."""
    assert len({name for name, _ in projects()}) == len(MUTANTS) >= 44
    assert len({mutant.task for mutant in MUTANTS}) >= 20
    outcomes = {outcome for mutant in MUTANTS for outcome in mutant.found_by}
    assert outcomes == {"wrong_result", "race", "uninitialized", "crashed", "deadlock", "timed_out"}


def test_a_patch_that_does_not_fit_is_an_error() -> None:
    """A text that is not there once is refused with the name of the mutant and how often it occurs."""
    for old, count in (("no such text", 0), ("float", "[0-9]{2,}")):
        with pytest.raises(ValueError, match=rf"{MUTANTS[0].name}: .* {count} times"):
            replace(MUTANTS[0], old=old).project()
