"""Three splits by family: what the teacher sees, what chooses a candidate, what is reported.

No family is in two splits, none that a skill's lineage was refined on is in the test split, and the same
families always give the same splits.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from harness.errors import UsageError
from harness.suite.catalogue import LoadedTask

Split = Literal["development", "selection", "test"]
_TEST_SHARE: Final = 0.4
"""Of the families: only they are inferred from. What is left is halved."""
_SALT: Final = "liftbench splits 1"


@dataclass(frozen=True)
class Splits:
    """Tasks by split."""

    development: tuple[LoadedTask, ...]
    selection: tuple[LoadedTask, ...]
    test: tuple[LoadedTask, ...]

    def families(self, split: Split) -> tuple[str, ...]:
        """The families of a split, sorted."""
        tasks: tuple[LoadedTask, ...] = getattr(self, split)
        return tuple(sorted({t.task.family for t in tasks}))

    @property
    def seen(self) -> tuple[str, ...]:
        """Families on which the skill is refined or chosen: never again its test."""
        return tuple(sorted({*self.families("development"), *self.families("selection")}))


def split_tasks(tasks: Sequence[LoadedTask], seen: Collection[str] = ()) -> Splits:
    """Split by family; `seen`: families that this lineage was refined on before.

    Raises UsageError with fewer than three families, or none that is unseen.
    """
    families = sorted({t.task.family for t in tasks}, key=_rank)
    fresh = [family for family in families if family not in seen]
    if len(families) < 3 or not fresh:
        raise UsageError(
            f"{len(families)} families of tasks, {len(fresh)} of them new to this skill: refining takes "
            "three, one a split, and one that the skill was not refined on. Take more --tasks, or --no-eval"
        )
    test = set(fresh[: min(math.ceil(_TEST_SHARE * len(families)), len(families) - 2)])
    rest = [family for family in families if family not in test]
    development, selection = set(rest[::2]), set(rest[1::2])

    def of(chosen: set[str]) -> tuple[LoadedTask, ...]:
        return tuple(t for t in tasks if t.task.family in chosen)

    return Splits(of(development), of(selection), of(test))


def _rank(family: str) -> str:
    return hashlib.sha256(f"{_SALT}:{family}".encode()).hexdigest()
