"""gpu-check with the zoo's projects for a GPU: `make gpu-check`. A row passes only for its own reason."""

from __future__ import annotations

import sys
from functools import partial

from harness.errors import DeviceLost
from harness.records.gpu_check import Fact
from tests.fakes.zoo import HonestScores, row, row_names, try_row
from tools.gpu_check.__main__ import main
from tools.gpu_check.item import Bench, FellShort, Item
from tools.gpu_check.judging import judging

_WORKER_S, _CALL_S = 90.0, 8.0
"""The projects are tiny; a worker that starts CUDA and fills the device's memory takes seconds."""
_ESTIMATE_S = {"cheated": 150.0, "correct": 120.0}
"""By verdict, else 60: a claim is called a cheat only after two more processes, and a score is compared with
that of the honest base. Guesses until the first run on a GPU."""


def zoo_row(name: str, bench: Bench) -> dict[str, Fact]:
    """Grade a row on the bench's GPU. Raises FellShort where it does not hold, or was left open."""
    wanted = row(name)
    with judging(bench, worker_wall_s=_WORKER_S, call_wall_s=_CALL_S) as judge, judge.grader() as grader:
        try:
            seen = try_row(wanted, grader, HonestScores(grader))
        except DeviceLost:
            # As a run does: the trial is owed once, and the second time it is the project's own.
            seen = try_row(wanted, grader, HonestScores(grader))
    facts: dict[str, Fact] = {
        "protocol": seen.grade.protocol,
        "verdict": seen.grade.verdict.value,
        "cause": seen.grade.finding.cause.value,
        "said": seen.grade.finding.message[:200],
        "gain": seen.gain,
        "wall_s": round(seen.seconds, 1),
    }
    if seen.wrong or seen.open:
        raise FellShort("; ".join((*seen.wrong, *seen.open)), facts)
    return facts


def zoo_items() -> list[Item]:
    """All rows that need a GPU; the hostile ones first."""
    rows = sorted((r for r in map(row, row_names()) if r.gpu), key=lambda r: (r.kind != "hostile", r.name))
    return [
        Item(
            f"zoo/{one.name}",
            f"{one.kind}: {one.why}; ends {one.verdict} ({one.cause})",
            _ESTIMATE_S.get(one.verdict.value, 60.0),
            partial(zoo_row, one.name),
        )
        for one in rows
    ]


if __name__ == "__main__":
    sys.exit(main(zoo=zoo_items()))
