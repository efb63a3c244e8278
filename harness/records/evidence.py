"""Records of what stands beside a grade: traced calls, sanitizer runs, physical limits."""

from __future__ import annotations

from typing import Literal, Self, get_args

from pydantic import model_validator

from harness.records.base import Record

OperatorKind = Literal["own", "harmless", "compute"]
SanitizerTool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
SANITIZER_TOOLS: tuple[SanitizerTool, ...] = get_args(SanitizerTool)
SanitizerStatus = Literal["clean", "findings", "not_present", "timed_out", "not_measured"]
LITTLE_OF_ITS_OWN = 0.5
"""Below this share of device time in the project's own kernels a flag is raised. Ours, not calibrated."""

LOADS_CODE = "loads code at run time"
"""The flag of a library that can (records/build.py), and of Python that did."""


class OperatorCalls(Record):
    """One operator that a traced call dispatched. As the process says."""

    name: str
    """With its namespace, without its overload: `aten::mm`."""
    calls: int
    kind: OperatorKind
    """`own`: of the project's library; `harmless`: allocates, looks at, moves or fills memory."""


class TracedKernel(Record):
    """One kernel, copy or fill that a traced call ran on the device. As the process says."""

    name: str
    launches: int
    device_us: float
    """Of all launches together."""
    own: bool | None
    """Whether its name is one in the project's library; None where that is not known, and for copies."""
    copy_or_fill: bool = False


class Evidence(Record):
    """What one call does, seen from inside a fresh process of the project's own after the check. Its
    figures are claims: what they admit counts, what they do not show proves nothing."""

    workload: str
    dtype: str
    operators: tuple[OperatorCalls, ...] | None
    """The most called first; None where `trouble` says why there are none."""
    kernels: tuple[TracedKernel, ...] | None = None
    """The longest first; None on cpu, and where they were not measured (`notes`)."""
    loads: tuple[str, ...] = ()
    """What its Python had the loader open or look up until the call was over: libraries, functions and native
    modules that are neither its own nor torch's doing."""
    traced_right: bool | None = None
    """Whether the traced call's outputs were right; None where it did not come that far."""
    trouble: str | None = None
    """Why there is no trace."""
    notes: tuple[str, ...] = ()
    """What was not measured, or not kept."""

    @model_validator(mode="after")
    def _trace_or_trouble(self) -> Self:
        if (self.operators is None) != (self.trouble is not None):
            raise ValueError("evidence is a trace, or says why there is none")
        return self

    @property
    def computing(self) -> tuple[str, ...]:
        """PyTorch operators that compute, by name."""
        return tuple(o.name for o in self.operators or () if o.kind == "compute")

    @property
    def launches(self) -> int | None:
        """Kernels launched in the call, copies and fills left out."""
        if self.kernels is None:
            return None
        return sum(k.launches for k in self.kernels if not k.copy_or_fill)

    @property
    def own_share(self) -> float | None:
        """Share of device time in the project's own kernels, 0 to 1; None where that is not known."""
        total = sum(k.device_us for k in self.kernels or ())
        known = all(k.own is not None or k.copy_or_fill for k in self.kernels or ())
        if total <= 0 or not known:
            return None
        return sum(k.device_us for k in self.kernels or () if k.own) / total

    @property
    def flags(self) -> tuple[str, ...]:
        """What a reader of the result should know."""
        share = self.own_share
        found = {
            "dispatches PyTorch operators": bool(self.computing),
            LOADS_CODE: bool(self.loads),
            "little device time in its own kernels": share is not None and share < LITTLE_OF_ITS_OWN,
            "differs when traced": self.traced_right is False,
            "not traced": self.trouble is not None,
        }
        return tuple(name for name, true in found.items() if true)


class SanitizerFinding(Record):
    """One report of a tool. As the process says: the tool runs inside it."""

    message: str
    """The tool's own first line."""
    kernel: str | None = None
    """As the tool names it; None where it names none (a failed API call)."""
    count: int = 1
    """Equal ones."""


class SanitizerRun(Record):
    """One of compute-sanitizer's tools on the smallest workload that is not trivial."""

    tool: SanitizerTool
    status: SanitizerStatus
    total: int | None = None
    """Errors and hazards by the tool's own summary (warnings of racecheck too); None without one."""
    findings: tuple[SanitizerFinding, ...] = ()
    """The first ones."""
    message: str | None = None
    """Why it was not measured, or what is missing."""
    workload: str | None = None
    wall_s: float | None = None

    @model_validator(mode="after")
    def _findings_iff_found(self) -> Self:
        if self.findings and self.status not in ("findings", "timed_out"):
            raise ValueError(f"a sanitizer run that is {self.status} has no findings")
        if self.status in ("not_present", "not_measured") and self.message is None:
            raise ValueError(f"a sanitizer run that is {self.status} says why")
        return self


class PhysicalLimit(Record):
    """How a figure compares with what the board can do."""

    board: str
    time_us: float
    """The figure that is compared: the student's score."""
    limit_us: float
    """T_sol by the datasheet: no faster than max(operations / peak, bytes / bandwidth)."""
    bound_by: Literal["compute", "memory", "launch"]
    fraction: float
    """limit_us / time_us: 1 is the limit."""
    measured_limit_us: float | None = None
    """The same with what this board was measured to do in this session."""
    score: float | None = None
    """1 / (1 + (T - T_sol) / (T_ref - T_sol)): 0.5 at the reference, 1 at the limit; None where the
    reference is at the limit itself."""
    floor_us: float
    """No correct answer can take less, whatever it does; a figure below it is impossible."""
    flags: tuple[str, ...] = ()
    """`above the limit`, `suspiciously fast`."""

    @property
    def impossible(self) -> bool:
        """Below the floor."""
        return self.time_us < self.floor_us
