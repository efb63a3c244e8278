"""Records that accompany a grade: traced calls, sanitizer runs, physical limits."""

from __future__ import annotations

from typing import Final, Literal, Self, get_args

from pydantic import model_validator

from harness.records.base import Record

OperatorKind = Literal["own", "harmless", "compute"]
SanitizerTool = Literal["memcheck", "racecheck", "initcheck", "synccheck"]
SANITIZER_TOOLS: tuple[SanitizerTool, ...] = get_args(SanitizerTool)
SanitizerStatus = Literal["clean", "findings", "not_present", "timed_out", "not_measured"]
LITTLE_OF_ITS_OWN: Final = 0.5
"""A smaller share of device time in the project's own kernels is flagged. Chosen, not calibrated."""
LOADS_CODE: Final = "loads code at run time"
"""Flag of a library that imports dlopen, and of Python that loaded a library."""


class OperatorCalls(Record):
    """One operator that a traced call dispatched, as the worker reports it."""

    name: str
    """With namespace, without overload: `aten::mm`."""
    calls: int
    kind: OperatorKind
    """`own`: of the project's library; `harmless`: allocates, inspects, moves or fills memory."""


class TracedKernel(Record):
    """One kernel, copy or fill that a traced call ran on the device, as the worker reports it."""

    name: str
    launches: int
    device_us: float
    """Sum over all launches."""
    own: bool | None
    """Whether the project's library has a kernel of this name; None where unknown, and for copies."""
    copy_or_fill: bool = False


class Evidence(Record):
    """Trace of one call in a fresh worker after the check. The worker reports it, so what it admits counts
    and what it omits proves nothing."""

    workload: str
    dtype: str
    operators: tuple[OperatorCalls, ...] | None
    """Most called first; None where `trouble` says why."""
    kernels: tuple[TracedKernel, ...] | None = None
    """Longest first; None on cpu, and where they were not measured (`notes`)."""
    loads: tuple[str, ...] = ()
    """Libraries, functions and native modules that its Python loaded, other than its own and torch's."""
    traced_right: bool | None = None
    """Whether the traced call's outputs were right; None where it produced none."""
    trouble: str | None = None
    """Why there is no trace."""
    notes: tuple[str, ...] = ()
    """What was not measured or not kept."""

    @model_validator(mode="after")
    def _trace_or_trouble(self) -> Self:
        if (self.operators is None) != (self.trouble is not None):
            raise ValueError("evidence is a trace, or says why there is none")
        return self

    @property
    def computing(self) -> tuple[str, ...]:
        """Names of PyTorch operators that compute."""
        return tuple(o.name for o in self.operators or () if o.kind == "compute")

    @property
    def launches(self) -> int | None:
        """Kernel launches in the call, without copies and fills."""
        if self.kernels is None:
            return None
        return sum(k.launches for k in self.kernels if not k.copy_or_fill)

    @property
    def own_share(self) -> float | None:
        """Share of device time in the project's own kernels, 0 to 1; None where unknown."""
        total = sum(k.device_us for k in self.kernels or ())
        known = all(k.own is not None or k.copy_or_fill for k in self.kernels or ())
        if total <= 0 or not known:
            return None
        return sum(k.device_us for k in self.kernels or () if k.own) / total

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags that the trace raises."""
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
    """One message of a sanitizer, which runs inside the worker and can be forged by it."""

    message: str
    """First line."""
    kernel: str | None = None
    """None where the tool names none (a failed API call)."""
    count: int = 1
    """Equal messages."""


class SanitizerRun(Record):
    """One compute-sanitizer tool on the smallest workload that is not trivial."""

    tool: SanitizerTool
    status: SanitizerStatus
    total: int | None = None
    """Errors and hazards in the tool's summary (with racecheck's warnings); None without a summary."""
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
    """A time compared with the speed of light of the board."""

    board: str
    time_us: float
    """The student's score."""
    limit_us: float
    """T_sol by the datasheet: max(operations / peak, bytes / bandwidth)."""
    bound_by: Literal["compute", "memory", "launch"]
    fraction: float
    """limit_us / time_us; 1 is the limit."""
    measured_limit_us: float | None = None
    """The same with peaks measured on this board in this session."""
    score: float | None = None
    """1 / (1 + (T - T_sol) / (T_ref - T_sol)): 0.5 at the reference, 1 at the limit; None where the reference
    is at the limit."""
    floor_us: float
    """No correct answer can be faster; a time below it is impossible."""
    flags: tuple[str, ...] = ()
    """`above the limit`, `suspiciously fast`."""

    @property
    def impossible(self) -> bool:
        """Whether the time is below the floor."""
        return self.time_us < self.floor_us
