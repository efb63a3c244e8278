"""The plan: which arms and trials, in which order."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.errors import UsageError
from harness.records import Skill
from harness.study.plan import plan, prompt_digests, run_hash
from harness.study.study import make_arms
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


# Arms


def skill(name: str, digest: str | None = None) -> Skill:
    return Skill(name=name, description="d", body=f"About {name}.", files=(), digest=digest or name)


def test_all_combinations_of_three_skills_each_with_its_placebo() -> None:
    """Three skills make seven sets, in the order in which they were named, and seven placebos beside them."""
    made = make_arms([skill(n) for n in "abc"], combine=True, with_placebo=True)
    sets = [arm.skills for arm in made.arms if arm.kind == "with_skill"]
    assert sets == [("a",), ("b",), ("c",), ("a", "b"), ("a", "c"), ("b", "c"), ("a", "b", "c")]
    placebos = [arm for arm in made.arms if arm.kind == "placebo"]
    assert [len(arm.skills) for arm in placebos] == [1, 1, 1, 2, 2, 2, 3]
    assert len({arm.id for arm in made.arms}) == len(made.arms) == 15
    for arm in made.arms:
        assert all(digest in made.library for digest in arm.skills)


def test_an_old_version_of_the_same_name_is_its_own_arm() -> None:
    """Both versions are in the lock, under names that differ."""
    made = make_arms([skill("a", "n" * 64)], old=skill("a", "o" * 64), with_placebo=True)
    assert [arm.kind for arm in made.arms] == ["without_skill", "old_skill", "with_skill", "placebo"]
    assert made.digests["a"] == "n" * 64
    assert made.digests["a@oooooooo"] == "o" * 64


def test_disclosed_arms_are_other_arms() -> None:
    """The delivery is part of every arm's id, of the one without skill too: its prompt holds the tool."""
    body = {arm.id for arm in make_arms([skill("a")]).arms}
    disclosed = {arm.id for arm in make_arms([skill("a")], delivery="disclosed").arms}
    assert not body & disclosed


@pytest.mark.parametrize(
    ("skills", "options", "message"),
    [
        (["a", "a"], {}, "same skill"),
        (list("abcde"), {"combine": True}, "--combine takes 2 to 4"),
        (["a", "b"], {"old": skill("c")}, "give one skill only"),
        (["a"], {"old": skill("b", "a")}, "same skill"),
    ],
)
def test_what_could_show_no_lift_is_refused(
    skills: list[str], options: dict[str, object], message: str
) -> None:
    """Twins, one skill to combine, too many, and an old version of one of several are usage errors."""
    with pytest.raises(UsageError, match=message):
        make_arms([skill(name) for name in skills], **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="two skills have one name"):
        make_arms([skill("a", "1"), skill("a", "2")])
