"""The zoo's projects for a GPU. A row passes only for its own reason."""

from __future__ import annotations

import pytest

from harness.errors import DeviceLost
from tests.fakes.zoo import HonestScores, row, row_names, try_row
from tools.gpu_check.bench import Bench, judging
from tools.gpu_check.plugin import gpu
from tools.gpu_check.record import Fact

_WORKER_S, _CALL_S = 90.0, 8.0
"""The projects are tiny; a worker that starts CUDA and fills the device's memory takes seconds."""
_ESTIMATE_S = {"cheated": 150.0, "correct": 120.0}
"""By verdict, else 60: a claim is called a cheat only after two more processes, and a score is compared
with that of the honest base. Guesses until the first run on a GPU."""
ROWS = sorted((r for r in map(row, row_names()) if r.gpu), key=lambda r: (r.kind != "hostile", r.name))


def escaped(text: str) -> str:
    """For a mark, whose texts are formatted."""
    return text.replace("{", "{{").replace("}", "}}")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            one.name,
            marks=gpu(
                "zoo/{name}",
                escaped(f"{one.kind}: {one.why}; ends {one.verdict} ({one.cause})"),
                estimate_s=_ESTIMATE_S.get(one.verdict.value, 60.0),
                rank=4,
            ),
        )
        for one in ROWS
    ],
)
def test_zoo(name: str, bench: Bench, facts: dict[str, Fact]) -> None:
    """Grade a row on the GPU; it fails where the row does not hold, or was left open."""
    wanted = row(name)
    with judging(bench, worker_wall_s=_WORKER_S, call_wall_s=_CALL_S) as judge, judge.grader() as grader:
        try:
            seen = try_row(wanted, grader, HonestScores(grader))
        except DeviceLost:
            # As in a run: the trial is repeated once, and a second loss is the project's own.
            seen = try_row(wanted, grader, HonestScores(grader))
    facts |= {
        "protocol": seen.grade.protocol,
        "verdict": seen.grade.verdict.value,
        "cause": seen.grade.finding.cause.value,
        "said": seen.grade.finding.message[:200],
        "gain": seen.gain,
        "wall_s": round(seen.seconds, 1),
    }
    if seen.wrong or seen.open:
        pytest.fail("; ".join((*seen.wrong, *seen.open)))
