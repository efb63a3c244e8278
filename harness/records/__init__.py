"""Frozen records that flow through liftbench, from task to trial.

Validators reject illegal states. "Not reached" and unknown are None, never -1 or 0.
"""

from __future__ import annotations

from harness.records.base import (
    Briefing,
    ClockName,
    Delivery,
    LaneName,
    Metric,
    Protocol,
    Record,
    Target,
    digest_of,
    utc_now,
)
from harness.records.build import (
    BINDING_WARNING,
    PARSER_SAYS,
    BinaryCalls,
    BuildResult,
    DeviceKernel,
    Diagnostic,
    DiagnosticKind,
)
from harness.records.grade import (
    CheckResult,
    EmulatedCheck,
    EmulatedFinding,
    Evidence,
    Grade,
    KernelBenchScore,
    Place,
    SanitizerRun,
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
from harness.records.task import Admission, Hidden, Operand, Rule, Task, Workload
from harness.records.timing import ContenderTiming, Lane, Ratio, Spread, TimingResult, WorkloadTiming
from harness.records.trial import (
    GraderFacts,
    InfraFailure,
    MachineFacts,
    RunConfig,
    RunLock,
    RunRecord,
    RunSettings,
    Step,
    TrialKey,
    TrialRecord,
    Turn,
)
