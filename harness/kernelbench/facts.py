"""What was found out about a problem file: shapes, names, and what its forward does.

Owns: the records. Does not own: how they are found (inspection.py). Invariant: sizes are bytes.
"""

from __future__ import annotations

import math
from typing import Literal

from harness.records.base import Record


class TensorFacts(Record):
    """One tensor, as it is given to or comes out of `forward`."""

    name: str
    """The operand's name in the task."""
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    state: str | None = None
    """The name in the module's state; None for inputs and outputs."""

    @property
    def size_bytes(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape) * self.itemsize


class ScalarFacts(Record):
    """An input that is a number."""

    name: str
    value: float | int | bool

    @property
    def type(self) -> Literal["float", "int", "bool"]:
        """As in task.toml."""
        if isinstance(self.value, bool):
            return "bool"
        return "int" if isinstance(self.value, int) else "float"


class ProblemFacts(Record):
    """One problem, looked at without values."""

    arguments: tuple[str, ...]
    """Of `forward`, in order: names of inputs and scalars."""
    inputs: tuple[TensorFacts, ...]
    scalars: tuple[ScalarFacts, ...]
    parameters: tuple[TensorFacts, ...]
    """Parameters, and the buffers that forward reads and does not write."""
    written_state: tuple[str, ...]
    """Buffers that forward writes: the running statistics of batch norm. No operands."""
    outputs: tuple[TensorFacts, ...]
    init: str
    """`repr` of get_init_inputs()."""
    flops: int
    """Of matrix products and convolutions."""
    kind: Literal["elementwise", "reduction", "contraction"]
    convolves: bool
    draws: tuple[str, ...] = ()
    """Operators in forward that draw random numbers."""
    writes: tuple[str, ...] = ()
    """Inputs and parameters that forward writes to."""
    batch_statistics: bool = False
    """A batch norm in training mode."""
    peak_bytes: int
    """The most that lived at once beside the operands, in a call."""

    @property
    def operand_bytes(self) -> int:
        """Of one set of operands."""
        return sum(t.size_bytes for t in (*self.inputs, *self.parameters, *self.outputs))
