"""Everything a report says about one run, as one record.

Nothing here is rounded; old fields keep their meaning.
"""

from __future__ import annotations

from typing import Literal

from harness.records import Record
from harness.report.records.arm import ArmSummary, Reading
from harness.report.records.comparison import Comparison, Matrix
from harness.report.records.run import (
    REPORT_SCHEMA_VERSION,
    Detectable,
    Gap,
    Head,
    Progress,
    Replies,
    Timings,
    Usages,
)
from harness.report.records.trial import BuildFailureGroup, FailureGroup, TaskRow, TrialRow


class Summary(Record):
    """Everything a report says about one run."""

    schema_version: Literal[1] = REPORT_SCHEMA_VERSION
    head: Head
    progress: Progress
    replies: Replies
    totals: Usages
    """Of every reply, scored or not."""
    timings: Timings
    build_gap: Gap | None
    """Why compiling was not measured; None when it was."""
    check_gap: Gap | None
    """Why correctness and speed were not measured; None when they were."""
    detectable: Detectable
    warnings: tuple[str, ...]
    arms: tuple[ArmSummary, ...]
    comparisons: tuple[Comparison, ...]
    matrices: tuple[Matrix, ...] = ()
    """Where there is more than one model or more than one skill or combination."""
    readings: tuple[Reading, ...] = ()
    """Where a skill was disclosed."""
    tasks: tuple[TaskRow, ...]
    failures: tuple[FailureGroup, ...]
    build_failures: tuple[BuildFailureGroup, ...] = ()
    trials: tuple[TrialRow, ...]

    def arm(self, model: str, arm: str) -> ArmSummary:
        """One model in one arm."""
        return next(a for a in self.arms if (a.model, a.arm) == (model, arm))
