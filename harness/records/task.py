"""Records of a task (one kernel to write) and of its admission."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from harness.records.base import Precision, Record, Role, Target


class Operand(Record):
    name: str
    role: Role
    """`out` is only written, `in` only read, `inout` both, `partial` written where `mask` is true."""
    shape: tuple[str, ...]
    """One arithmetic expression over the workload's dims per axis; () is a scalar tensor."""
    dtype: str = "$dtype"
    """A torch dtype name, or `$dtype` for the workload's dtype."""
    mask: str | None = None
    """For `partial`: name of the boolean `in` operand of the same shape."""
    touched: str | None = None
    """Elements that a call touches, over dims, where an index selects them; None: all (speed of light)."""
    keyword: bool = False

    @model_validator(mode="after")
    def _fits_role(self) -> Self:
        if self.keyword and self.role != "in":
            raise ValueError(f"operand {self.name}: only an `in` operand can be passed by name")
        if (self.role == "partial") != (self.mask is not None):
            raise ValueError(f"operand {self.name}: `mask` is needed by, and only for, role partial")
        return self


Values = Literal[
    "normal", "tiny", "large", "offset", "outlier", "constant", "sorted", "reversed", "ties",
    "nan", "inf", "denormal", "negative_zero",
]  # fmt: skip
"""Kinds of adversarial values, derived from those of `make_inputs`."""
ANY_TASK: tuple[Values, ...] = ("sorted", "reversed", "ties")
"""Kinds that only reorder or repeat drawn values, so they are legal for every op."""
PROMISED: frozenset[Values] = frozenset({"nan", "inf", "denormal", "negative_zero"})
"""Kinds that occur only where the task names them; the prompt then says so."""
Arrangement = Literal["contiguous", "transposed", "stepped", "expanded", "misaligned"]
Range = tuple[int, int] | tuple[int, int, int]
"""Lowest value, highest value (inclusive), step (1 where left out)."""


class Hidden(Record):
    """Shapes that may be drawn at grading time, from a secret seed."""

    dims: dict[str, Range]

    @model_validator(mode="after")
    def _ranges_are_not_empty(self) -> Self:
        for name, (low, high, *step) in self.dims.items():
            if low < 0 or high < low or (step and step[0] < 1):
                wanted = "[low, high, step] needs 0 <= low <= high and step >= 1"
                raise ValueError(f"hidden.dims.{name}: {wanted}")
        return self


class Scalar(Record):
    name: str
    type: Literal["float", "int", "bool"]


class Parts(Record):
    """How a workload is judged that is too large to be judged as a whole."""

    rows: tuple[str, ...] = ()
    """`in` operands whose first axis is that of every output, where rows are independent. The judge proves
    that before it compares part of the rows. Empty: the truth is computed for all rows."""
    live: str = "0"
    """Peak bytes of a float32 call besides its operands: an expression over dims."""


class Workload(Record):
    """One concrete problem: sizes and scalar values; a dtype is added per target."""

    name: str
    dims: dict[str, int]
    scalars: dict[str, float | int | bool] = Field(default_factory=dict)
    timed: bool = False
    target: Target | None = None
    """The only target it is for (sizes of real models for a GPU, small ones for a CPU); None: both."""
    source: str | None = None
    """The model or paper that the sizes come from; not in the prompt."""
    scaled_from: int | None = None
    """First axis of the original problem where that is larger; such results are never ranked."""


class Task(Record):
    """One kernel to write: a PyTorch reference, a signature, workloads and a tolerance."""

    name: str
    level: str
    family: str
    """Tasks that share an idea; inference is by family."""
    version: int
    title: str
    op: str
    package: str
    """`general.name` of the project; the Python package is this with `_` for `-`."""
    semantics: str
    """What the op computes, as the student reads it (Markdown)."""
    operands: tuple[Operand, ...]
    scalars: tuple[Scalar, ...] = ()
    workloads: tuple[Workload, ...]
    dtypes: dict[Target, tuple[str, ...]]
    tolerance: Literal["elementwise", "reduction", "contraction", "exact"]
    flops: str | None = None
    """Arithmetic expression over dims; None where a count of operations is not meaningful."""
    library_calls: Literal["forbid", "flag", "allow"] = "flag"
    """Effect of computing PyTorch operators, cuBLAS or similar: a failure, a flag, or none."""
    hidden: Hidden | None = None
    values: tuple[Values, ...] = ANY_TASK
    """Adversarial values that the op accepts, in addition to those of `make_inputs`."""
    keep: tuple[str, ...] = ()
    layouts: tuple[Arrangement, ...] = ("contiguous",)
    """Memory layouts of operands. Contiguous always occurs; the prompt names the others."""
    exact: bool = False
    """Sums of small integers are representable: also checked on inputs from {-1, 0, 1}, for equality."""
    precision: Precision = "strict"
    """`strict`: float32 is float32 throughout; `tf32`: products may be rounded to TF32."""
    nondeterminism: float = Field(default=0.0, ge=0.0, lt=1.0)
    """Outputs of equal inputs may differ by this times (|value| + RMS of its row); 0: equal bytes."""
    parts: Parts | None = None
    """How large workloads are judged; None: a workload too large to be judged as a whole is rejected."""
    also: Literal["kernelbench"] | None = None
    """Benchmark that the task was converted from, whose own score is computed as well."""
    digest: str

    @property
    def id(self) -> str:
        """`level/name`, as the user types it."""
        return f"{self.level}/{self.name}"

    @property
    def module(self) -> str:
        """The Python package that the project must export."""
        return self.package.replace("-", "_")

    def scaled(self, target: Target) -> bool:
        """Whether a workload for `target` is smaller than the original problem."""
        return any(w.scaled_from is not None for w in self.workloads_for(target))

    def workloads_for(self, target: Target) -> tuple[Workload, ...]:
        return tuple(w for w in self.workloads if w.target in (None, target))

    @property
    def outputs(self) -> tuple[Operand, ...]:
        return tuple(o for o in self.operands if o.role != "in")

    @model_validator(mode="after")
    def _operands_fit(self) -> Self:
        roles = [o.role == "out" for o in self.operands]
        by_keyword = [o.keyword for o in self.operands]
        names = [o.name for o in self.operands] + [s.name for s in self.scalars]
        self._require(roles == sorted(roles, reverse=True), "`out` operands come first")
        self._require(by_keyword == sorted(by_keyword), "operands that are passed by name come last")
        self._require(len(self.outputs) > 0, "nothing is written")
        self._require(len(set(names)) == len(names), "operand and scalar names repeat")
        by_name = {o.name: o for o in self.operands}
        for operand in self.operands:
            mask = by_name.get(operand.mask or "")
            fits = mask is not None and (mask.role, mask.dtype, mask.shape) == ("in", "bool", operand.shape)
            wanted = f"the mask of {operand.name} must be an `in` operand, bool, same shape"
            self._require(operand.mask is None or fits, wanted)
        return self

    @model_validator(mode="after")
    def _workloads_fit(self) -> Self:
        for target in self.dtypes:
            timed = any(w.timed for w in self.workloads_for(target))
            self._require(timed, f"no workload is timed for {target}")
        unknown = sorted(set(self.keep) - {o.name for o in self.operands})
        self._require(not unknown, f"`keep` names unknown operands {unknown}")
        if self.hidden is not None:
            hidden = sorted(self.hidden.dims)
            for w in self.workloads:
                said = f"hidden.dims has {hidden}, workload {w.name} has {sorted(w.dims)}"
                self._require(hidden == sorted(w.dims), said)
        return self

    @model_validator(mode="after")
    def _parts_are_of_plain_operands(self) -> Self:
        if self.parts is None:
            return self
        by_name = {o.name: o for o in self.operands}
        plain = all(o.role in ("in", "out") for o in self.operands)
        self._require(plain, "`parts` is for operands of the roles in and out")
        outputs = {o.shape[:1] for o in self.outputs}
        for name in self.parts.rows:
            same = name in by_name and {by_name[name].shape[:1]} == outputs and outputs != {()}
            self._require(same, f"{name} and the outputs differ in their first axis")
        flat = self.parts.rows and any(len(o.shape) < 2 for o in self.outputs)
        self._require(not flat, "the tolerance of an output with one axis needs all of it")
        return self

    def _require(self, holds: bool, message: str) -> None:
        if not holds:
            raise ValueError(f"task {self.name}: {message}")


def operand_dtype(operand: Operand, dtype: str) -> str:
    return dtype if operand.dtype == "$dtype" else operand.dtype


RuleName = Literal[
    "sources", "sizes", "reference", "trivial", "inputs", "precision", "expert", "mutants", "light"
]
RuleStatus = Literal["holds", "fails", "not_measured"]


class Rule(Record):
    name: RuleName
    status: RuleStatus
    said: str = ""
    """What failed, or why it was not measured; figures where it holds."""


class Admission(Record):
    task: str
    version: int
    task_digest: str
    expert: str | None
    target: Target
    grader_version: str | None = None
    """Which tried the rules; None in entries from before this was kept: version 7 or older."""
    rules: tuple[Rule, ...]

    @property
    def admitted(self) -> bool:
        return all(rule.status != "fails" for rule in self.rules)
