"""What was found out about a problem file: shapes, names, and what its forward does.

Sizes are bytes.
"""

from __future__ import annotations

import math
from typing import Literal

from harness.records.base import Record

CPU_BYTES = 2 << 30
"""Judging a problem on the CPU target may take as much (suite/sizes.py: HOST_BYTES)."""
CPU_FLOPS = 50e9
"""Of the float64 truth on the CPU target: about 5 s of one core of a laptop [own]."""

_SCALED_SHARE = 1 / 64
"""Of these limits, for a problem that is scaled anyway: a grade is to take a minute [own]."""


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


class RowFacts(Record):
    """What can be scaled: the first axis of some inputs, and what follows it."""

    rows: int
    """The problem's own."""
    least: int
    """The fewest that it takes: 1, or 2 for a batch norm."""
    draws: tuple[int, ...]
    """Which draws of `get_inputs` have that axis."""
    inputs: tuple[str, ...]
    """Inputs whose first axis it is."""
    outputs: tuple[str, ...]
    """Outputs whose first axis it is too."""
    flops: int
    """More for each row."""
    peak_bytes: int
    """More for each row, at most."""
    apart: bool | None = None
    """Whether a row of the outputs depends on that row of the inputs alone, as trials showed; None: not
    tried."""


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
    rows: RowFacts | None = None
    """Where the first axis can be scaled."""
    wide: bool = False
    """On its own values an answer without work passes, and on inputs from (-3, 3] it does not."""

    @property
    def operand_bytes(self) -> int:
        """Of one set of operands."""
        return sum(t.size_bytes for t in (*self.inputs, *self.parameters, *self.outputs))

    def judged_bytes(self, rows: int | None = None) -> int:
        """What judging it whole takes, at its own size or with so many rows (suite/sizes.py)."""
        total = 0
        for tensor in (*self.inputs, *self.parameters, *self.outputs):
            count = math.prod(tensor.shape)
            if rows is not None and self.rows is not None and self.scales(tensor):
                count = count // self.rows.rows * rows
            total += count * (3 * tensor.itemsize + 8)
        return total

    def scales(self, tensor: TensorFacts) -> bool:
        """Whether its first axis is that of `rows`."""
        return self.rows is not None and tensor.name in (*self.rows.inputs, *self.rows.outputs)

    def fits_cpu(self, rows: int | None = None, share: float = 1.0) -> bool:
        """Whether the CPU target takes it, as it is or with so many rows, within that share of its limits."""
        left_out = 0 if rows is None or self.rows is None else (self.rows.rows - rows) * self.rows.flops
        within_bytes = self.judged_bytes(rows) <= CPU_BYTES * share
        return within_bytes and self.flops - left_out <= CPU_FLOPS * share

    @property
    def cpu_rows(self) -> int | None:
        """Rows on the CPU target: the largest power of two of which a grade is a matter of a minute, else the
        fewest; None where the whole fits or nothing does."""
        rows = self.rows
        if rows is None or self.fits_cpu():
            return None
        powers = [1 << n for n in range((rows.rows - 1).bit_length()) if 1 << n >= rows.least]
        small = [n for n in powers if self.fits_cpu(n, _SCALED_SHARE)]
        return max(small) if small else next((n for n in powers if self.fits_cpu(n)), None)
