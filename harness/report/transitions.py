"""Which verdict in the control arm becomes which in the treatment arm: where a lift comes from.

Weights are those of the lift, so the net flow into `correct` is the lift in correctness.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final

from harness.outcome import Verdict
from harness.report.figures import percent
from harness.report.records import Movement, Transition, Transitions
from harness.report.scoring import Score

ORDER: Final = (
    Verdict.CORRECT, Verdict.NOT_MEASURED, Verdict.WRONG_RESULT, Verdict.TIMED_OUT, Verdict.CRASHED,
    Verdict.LOAD_FAILED, Verdict.BUILD_FAILED, Verdict.NO_PROJECT, Verdict.CHEATED,
)  # fmt: skip
"""Best first: by how far a project came; last what is worse than nothing."""
_MOVEMENTS: Final = 5
_LEAST: Final = 0.005
"""Below half a per cent of the trials a movement is not put in words."""

Shares = Mapping[Verdict, float]


def _by_task(scores: Sequence[Score]) -> dict[tuple[str, str], Shares]:
    found: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for score in scores:
        found[score.family, score.task].append(score.verdict)
    return {
        key: {verdict: count / len(verdicts) for verdict, count in Counter(verdicts).items()}
        for key, verdicts in found.items()
    }


def transitions(treatment: Sequence[Score], control: Sequence[Score]) -> Transitions | None:
    """The expected joint of both arms' verdicts; None without a task in both."""
    after, before = _by_task(treatment), _by_task(control)
    tasks = sorted(after.keys() & before.keys())
    if not tasks:
        return None
    in_family = Counter(family for family, _ in tasks)
    parts: dict[tuple[Verdict, Verdict], list[float]] = defaultdict(list)
    for key in tasks:
        weight = 1.0 / (in_family[key[0]] * len(in_family))
        for old, p in before[key].items():
            for new, q in after[key].items():
                parts[old, new].append(weight * p * q)
    joint = {pair: math.fsum(found) for pair, found in parts.items()}
    seen = {verdict for pair in joint for verdict in pair}
    order = [verdict for verdict in ORDER if verdict in seen]
    return Transitions(
        n_tasks=len(tasks),
        verdicts=tuple(order),
        cells=tuple(
            Transition(control=old, treatment=new, share=joint[old, new])
            for old in order
            for new in order
            if (old, new) in joint
        ),
        movements=tuple(sorted(_movements(joint, order), key=lambda m: -m.net)[:_MOVEMENTS]),
    )


def _movements(
    joint: Mapping[tuple[Verdict, Verdict], float], order: Sequence[Verdict]
) -> Iterable[Movement]:
    for one, other in combinations(order, 2):
        up, down = joint.get((other, one), 0.0), joint.get((one, other), 0.0)
        before, after = (other, one) if up >= down else (one, other)
        there, back = max(up, down), min(up, down)
        if there - back < _LEAST:
            continue
        words = f"{before.value} -> {after.value}: {percent(there - back)} of trials"
        yield Movement(before=before, after=after, net=there - back, there=there, back=back, words=words)
