"""Arms: what is compared with what, and that nothing is compared with itself."""

from __future__ import annotations

import pytest

from harness.errors import UsageError
from harness.records import Skill
from harness.study.study import make_arms


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
