"""Frozen records that flow through liftbench, from task to trial.

Validators reject illegal states. "Not reached" and unknown are None, never -1 or 0.
"""

from __future__ import annotations

from harness.records.base import (
    SCHEMA_VERSION,
    ArmKind,
    ClockName,
    Delivery,
    LaneName,
    Metric,
    Precision,
    Protocol,
    Record,
    Role,
    Target,
    digest_of,
)
from harness.records.build import (
    BINDING_WARNING,
    BinaryCalls,
    BuildResult,
    DeviceKernel,
    Diagnostic,
    DiagnosticKind,
)
from harness.records.evidence import (
    SANITIZER_TOOLS,
    Evidence,
    OperatorCalls,
    PhysicalLimit,
    SanitizerFinding,
    SanitizerRun,
    TracedKernel,
)
from harness.records.grade import (
    GRADER_VERSION,
    REPEATED,
    SCALED,
    CheckResult,
    Grade,
    KernelBenchScore,
    WorkloadCheck,
)
from harness.records.project import COPIED, Finding, Origin, Project, ProjectFile, Provenance
from harness.records.request import (
    Arm,
    Message,
    ModelSpec,
    Reply,
    Request,
    Sampling,
    Skill,
    Thinking,
    Tool,
    ToolCall,
    Usage,
)
from harness.records.task import Admission, Hidden, Operand, Parts, Rule, Scalar, Task, Workload
from harness.records.timing import (
    ContenderTiming,
    Interference,
    Lane,
    Ratio,
    Secondary,
    Spread,
    TimingResult,
    WorkloadTiming,
)
from harness.records.trial import (
    InfraFailure,
    MachineFacts,
    RunConfig,
    RunLock,
    RunRecord,
    Step,
    TrialKey,
    TrialRecord,
    Turn,
)
