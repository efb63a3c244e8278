"""The plan: which trials, in which order."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.errors import UsageError
from harness.study.plan import owed, plan, prompt_digests, run_hash
from tests.fakes.trials import config, run_record


def test_the_plan_is_every_combination_once_and_balanced_in_every_prefix() -> None:
    """tasks x arms x models x repeats; however early a run stops, no arm is more than one trial ahead."""
    trials = plan(config(repeats=3, models=("fake/one", "fake/two")))
    assert len(trials) == len(set(trials)) == 2 * 2 * 2 * 3
    counts: Counter[str] = Counter()
    for key in plan(config(repeats=5)):
        counts[key.arm] += 1
        assert max(counts.values()) - min(counts.get(a.id, 0) for a in config().arms) <= 1


def test_arms_are_shuffled_by_the_seed_alone() -> None:
    """Either arm may come first in a pair; the same seed gives the same order, another seed another one."""
    assert len({key.arm for key in plan(config(repeats=8))[::2]}) == 2
    assert plan(config(8)) == plan(config(8))
    assert plan(config(8)) != plan(config(8).model_copy(update={"seed": 1}))


def test_only_unfinished_trials_are_owed() -> None:
    """A resume does the rest, in the plan's order."""
    run = run_record()
    trials = plan(run.config)
    assert owed(run, set(trials[:3])) == trials[3:]


def test_the_hash_follows_what_is_judged() -> None:
    """Another skill text, task or model is another run; another machine is not."""
    run = run_record()
    same = run.lock.model_copy(update={"machine": run.lock.machine.model_copy(update={"cpu": "other"})})
    other = run.lock.model_copy(update={"skills": {"a-skill": "6" * 64}})
    assert run_hash(run.config, run.lock) == run_hash(run.config, same)
    assert run_hash(run.config, run.lock) != run_hash(run.config, other)
    assert run_hash(run.config, run.lock) != run_hash(config(repeats=3), run.lock)


def test_arms_of_two_deliveries_are_no_run() -> None:
    """They would differ in more than their skills: in what comes first, and in a tool."""
    arms = (config().arms[0], config().arms[1].model_copy(update={"delivery": "disclosed"}))
    with pytest.raises(UsageError, match="one delivery"):
        prompt_digests(config().model_copy(update={"arms": arms}), {}, {})
