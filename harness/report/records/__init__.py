"""What a report says, as frozen records: the one input of every renderer.

None is "not computable", "unknown" or "not measured", never 0; nothing here is rounded, and text that a
student or provider wrote has been cleaned of control characters.
"""

from __future__ import annotations

from harness.report.records.arm import ArmSummary, FastLevel, PassPoint, Rate, ReadFile, Reading
from harness.report.records.comparison import (
    Comparison,
    Conclusion,
    ErrorClass,
    Matrix,
    MatrixCell,
    MatrixRow,
    Movement,
    Spending,
    Transition,
    Transitions,
)
from harness.report.records.lift import (
    FamilyLift,
    FastPoint,
    KernelBenchPoint,
    MetricRow,
    PassLift,
    TaskLift,
    TurnPoint,
)
from harness.report.records.run import (
    REPORT_SCHEMA_VERSION,
    Detectable,
    Gap,
    Head,
    Leak,
    MetricName,
    NamedDigest,
    Progress,
    Quartiles,
    Replies,
    Timings,
    Unit,
    Usages,
)
from harness.report.records.summary import Summary
from harness.report.records.trial import (
    ArmCount,
    BuildFailureGroup,
    FailureGroup,
    TaskCell,
    TaskRow,
    TrialRow,
)

__all__ = [
    "REPORT_SCHEMA_VERSION",
    "ArmCount",
    "ArmSummary",
    "BuildFailureGroup",
    "Comparison",
    "Conclusion",
    "Detectable",
    "ErrorClass",
    "FailureGroup",
    "FamilyLift",
    "FastLevel",
    "FastPoint",
    "Gap",
    "Head",
    "KernelBenchPoint",
    "Leak",
    "Matrix",
    "MatrixCell",
    "MatrixRow",
    "MetricName",
    "MetricRow",
    "Movement",
    "NamedDigest",
    "PassLift",
    "PassPoint",
    "Progress",
    "Quartiles",
    "Rate",
    "ReadFile",
    "Reading",
    "Replies",
    "Spending",
    "Summary",
    "TaskCell",
    "TaskLift",
    "TaskRow",
    "Timings",
    "Transition",
    "Transitions",
    "TrialRow",
    "TurnPoint",
    "Unit",
    "Usages",
]
