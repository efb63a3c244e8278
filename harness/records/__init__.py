"""The frozen records that flow through liftbench, from task to trial.

Owns: the shape of every stored fact. Does not own: any behaviour beyond validation and digests.
Invariant: a record that exists is legal; "not reached" is None, unknown is None, never -1 or 0.
"""

from __future__ import annotations

from harness.records.base import SCHEMA_VERSION, Protocol, Record, Role, Target, digest_of
from harness.records.build import BinaryCalls, BuildResult, DeviceKernel, Diagnostic, DiagnosticKind
from harness.records.grade import (
    CheckResult,
    ContenderTiming,
    Grade,
    Lane,
    Ratio,
    Spread,
    TimingResult,
    WorkloadCheck,
    WorkloadTiming,
)
from harness.records.project import Finding, Project, ProjectFile
from harness.records.request import Arm, Message, ModelSpec, Reply, Request, Sampling, Skill, Usage
from harness.records.task import Operand, Scalar, Task, Workload
from harness.records.trial import (
    InfraFailure,
    MachineFacts,
    RunConfig,
    RunLock,
    RunRecord,
    TrialKey,
    TrialRecord,
    Turn,
)

__all__ = [
    "SCHEMA_VERSION",
    "Arm",
    "BinaryCalls",
    "BuildResult",
    "CheckResult",
    "ContenderTiming",
    "DeviceKernel",
    "Diagnostic",
    "DiagnosticKind",
    "Finding",
    "Grade",
    "InfraFailure",
    "Lane",
    "MachineFacts",
    "Message",
    "ModelSpec",
    "Operand",
    "Project",
    "ProjectFile",
    "Protocol",
    "Ratio",
    "Record",
    "Reply",
    "Request",
    "Role",
    "RunConfig",
    "RunLock",
    "RunRecord",
    "Sampling",
    "Scalar",
    "Skill",
    "Spread",
    "Target",
    "Task",
    "TimingResult",
    "TrialKey",
    "TrialRecord",
    "Turn",
    "Usage",
    "Workload",
    "WorkloadCheck",
    "WorkloadTiming",
    "digest_of",
]
