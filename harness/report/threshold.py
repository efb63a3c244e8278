"""The threshold of `--fail-under`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from harness.errors import UsageError
from harness.report.records import Summary


@dataclass(frozen=True)
class Threshold:
    """`--fail-under METRIC=LIFT`."""

    metric: str
    lift: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """`correct=0.1` is +10 points; `deployed=1.05` is a ratio. Raises UsageError."""
        found = re.fullmatch(r"(compiles|correct|deployed)=([-+]?\d*\.?\d+)", text)
        if found is None:
            raise UsageError(f"--fail-under {text}: write compiles=0.1, correct=0.1 or deployed=1.05")
        return cls(found[1], float(found[2]))

    def missed(self, summary: Summary) -> tuple[str, ...]:
        """Each comparison with without_skill that did not measure this much, in words; none if all did.

        Nothing measured is a threshold missed, too.
        """
        compared = [one for one in summary.comparisons if one.control == "without_skill"]
        wanted = f"--fail-under wanted a lift of {self.metric}={self.lift:g}"
        if not compared:
            return (f"{wanted}, and no skill was compared with no skill",)
        missed = []
        for one in compared:
            row = next((row for row in one.rows if row.metric == self.metric), None)
            lift = None if row is None else row.lift
            if lift is None or lift < self.lift:
                got = "not measured" if lift is None else f"measured {lift:.4g}"
                why = f" ({row.not_measured})" if row is not None and row.not_measured else ""
                missed.append(f"{wanted}, {one.model} x {one.label}: {got}{why}")
        return tuple(missed)
