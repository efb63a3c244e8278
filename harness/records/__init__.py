"""The frozen records that flow through liftbench, from task to trial.

Owns: the shape of every stored fact. Does not own: any behaviour beyond validation and digests.
Invariant: a record that exists is legal; "not reached" is None, unknown is None, never -1 or 0.
"""

from __future__ import annotations

from harness.records.base import SCHEMA_VERSION, Protocol, Record, Role, Target, digest_of
from harness.records.build import (
    BINDING_WARNING,
    BinaryCalls,
    BuildResult,
    DeviceKernel,
    Diagnostic,
    DiagnosticKind,
)
from harness.records.evidence import (
    Evidence,
    OperatorCalls,
    PhysicalLimit,
    SanitizerFinding,
    SanitizerRun,
    TracedKernel,
)
from harness.records.grade import (
    CheckResult,
    ContenderTiming,
    Grade,
    Interference,
    KernelBenchScore,
    Lane,
    Ratio,
    Secondary,
    Spread,
    TimingResult,
    WorkloadCheck,
    WorkloadTiming,
)
from harness.records.project import Finding, Project, ProjectFile
from harness.records.provenance import Origin, Provenance
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
from harness.records.task import Hidden, Operand, Scalar, Task, Workload
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

__all__ = [
    "BINDING_WARNING",
    "SCHEMA_VERSION",
    "Arm",
    "BinaryCalls",
    "BuildResult",
    "CheckResult",
    "ContenderTiming",
    "DeviceKernel",
    "Diagnostic",
    "DiagnosticKind",
    "Evidence",
    "Finding",
    "Grade",
    "Hidden",
    "InfraFailure",
    "Interference",
    "KernelBenchScore",
    "Lane",
    "MachineFacts",
    "Message",
    "ModelSpec",
    "Operand",
    "OperatorCalls",
    "Origin",
    "PhysicalLimit",
    "Project",
    "ProjectFile",
    "Protocol",
    "Provenance",
    "Ratio",
    "Record",
    "Reply",
    "Request",
    "Role",
    "RunConfig",
    "RunLock",
    "RunRecord",
    "Sampling",
    "SanitizerFinding",
    "SanitizerRun",
    "Scalar",
    "Secondary",
    "Skill",
    "Spread",
    "Step",
    "Target",
    "Task",
    "Thinking",
    "TimingResult",
    "Tool",
    "ToolCall",
    "TracedKernel",
    "TrialKey",
    "TrialRecord",
    "Turn",
    "Usage",
    "Workload",
    "WorkloadCheck",
    "WorkloadTiming",
    "digest_of",
]
