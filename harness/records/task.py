"""Records of a task: one kernel to write."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from harness.records.base import Record, Role, Target


class Operand(Record):
    """One tensor in an op's signature."""

    name: str
    role: Role
    """`out` is only written, `in` only read, `inout` both, `partial` written where `mask` is true."""
    shape: tuple[str, ...]
    """One arithmetic expression over the workload's dims per axis; () is a scalar tensor."""
    dtype: str = "$dtype"
    """A torch dtype name, or `$dtype` for the workload's dtype."""
    mask: str | None = None
    """For `partial`: name of the boolean `in` operand of the same shape."""

    @model_validator(mode="after")
    def _mask_only_for_partial(self) -> Self:
        if (self.role == "partial") != (self.mask is not None):
            raise ValueError(f"operand {self.name}: `mask` is needed by, and only for, role partial")
        return self


class Scalar(Record):
    """One keyword-only scalar argument of an op."""

    name: str
    type: Literal["float", "int", "bool"]


class Workload(Record):
    """One concrete problem: sizes and scalar values; a dtype is added per target."""

    name: str
    dims: dict[str, int]
    scalars: dict[str, float | int | bool] = Field(default_factory=dict)
    timed: bool = False
    """Whether speed is measured on it; every workload is checked."""


class Task(Record):
    """One kernel to write: a PyTorch reference, a signature, workloads and a tolerance."""

    name: str
    level: str
    family: str
    """Tasks that share an idea; inference is by family."""
    version: int
    title: str
    op: str
    """Name of the Python function that the project's package exports."""
    package: str
    """`general.name` of the project; the Python package is this with `_` for `-`."""
    semantics: str
    """What the op computes, as the student reads it (Markdown)."""
    operands: tuple[Operand, ...]
    """In call order: all `out` first, then the rest."""
    scalars: tuple[Scalar, ...] = ()
    workloads: tuple[Workload, ...]
    dtypes: dict[Target, tuple[str, ...]]
    tolerance: Literal["elementwise", "reduction", "contraction", "exact"]
    flops: str | None = None
    """Arithmetic expression over dims; None where counting operations says nothing."""
    library_calls: Literal["forbid", "flag", "allow"] = "flag"
    """What it means when a project's library calls PyTorch operators that compute, cuBLAS or the like:
    a failure (the student is told beforehand), a flag beside the result, or nothing."""
    digest: str
    """Over task.toml and reference.py, byte for byte."""

    @property
    def id(self) -> str:
        """`level/name`, as the user types it."""
        return f"{self.level}/{self.name}"

    @property
    def module(self) -> str:
        """The Python package that the project must export."""
        return self.package.replace("-", "_")

    @property
    def outputs(self) -> tuple[Operand, ...]:
        """Operands whose contents the judge checks, in call order."""
        return tuple(o for o in self.operands if o.role != "in")

    @model_validator(mode="after")
    def _outs_first(self) -> Self:
        roles = [o.role == "out" for o in self.operands]
        if roles != sorted(roles, reverse=True):
            raise ValueError(f"task {self.name}: `out` operands come first")
        if not any(o.role != "in" for o in self.operands):
            raise ValueError(f"task {self.name}: nothing is written")
        if not any(w.timed for w in self.workloads):
            raise ValueError(f"task {self.name}: no workload is timed")
        by_name = {o.name: o for o in self.operands}
        for operand in self.operands:
            mask = by_name.get(operand.mask or "")
            if operand.mask is not None and (
                mask is None or (mask.role, mask.dtype, mask.shape) != ("in", "bool", operand.shape)
            ):
                raise ValueError(
                    f"task {self.name}: the mask of {operand.name} must be an `in` operand, bool, same shape"
                )
        names = [o.name for o in self.operands] + [s.name for s in self.scalars]
        if len(set(names)) != len(names):
            raise ValueError(f"task {self.name}: operand and scalar names repeat")
        return self
