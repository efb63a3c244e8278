"""KernelBench problem files: how patterns name them, and the facts that inspection finds."""

from __future__ import annotations

import fnmatch
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import UsageError, refuse_url
from harness.records import Record

PREFIX = "kernelbench:"
CPU_BYTES = 2 << 30
"""Memory for judging a problem on the CPU target (HOST_BYTES of harness.suite.sizes)."""
CPU_FLOPS = 50e9
"""Work of the float64 truth on the CPU target: about 5 s on one laptop core (our choice)."""
_SCALED_SHARE = 1 / 64
"""Share of these limits for a problem that is scaled anyway, so that a grade takes a minute (our choice)."""
_LEVEL = re.compile(r"level\d+")
_INNER = "KernelBench"


class Unfit(Exception):
    """A problem that cannot be inspected or cannot be a task; the message says why."""


def is_pattern(text: str) -> bool:
    """Whether a `--tasks` pattern names KernelBench problems."""
    return text.startswith(PREFIX)


@dataclass(frozen=True)
class ProblemFile:
    """One problem of a checkout. The same file has the same id wherever the checkout lies."""

    path: Path

    @property
    def level(self) -> str:
        """The task's level, `kernelbench_level1`; `kernelbench_custom` outside of a checkout."""
        folder = self.path.resolve().parent.name
        return f"kernelbench_{folder if _LEVEL.fullmatch(folder) else 'custom'}"

    @property
    def name(self) -> str:
        """The task's name, `19_relu`."""
        return re.sub(r"[^a-z0-9]+", "_", self.path.stem.lower()).strip("_")

    @property
    def id(self) -> str:
        return f"{self.level}/{self.name}"

    def _order(self) -> tuple[str, int, str]:
        number = re.match(r"\d+", self.path.stem)
        return (self.level, int(number.group()) if number else 0, self.path.stem)


def find_problems(pattern: str) -> list[ProblemFile]:
    """The problems that `kernelbench:PATH[/level1][/glob]` names, by level and number.

    PATH is a checkout, a folder of levels, a level, or one file. Globs match file names with or without
    `.py`. Raises UsageError if there is no such checkout or nothing matches.
    """
    refuse_url(pattern.removeprefix(PREFIX))
    path, rest = _existing(pattern.removeprefix(PREFIX))
    if path.is_file():
        return [ProblemFile(path)]
    levels = _levels(path)
    if not levels:
        raise UsageError(f"{pattern}: {path} is no KernelBench checkout: it has no level1/*.py")
    if levels != [path]:
        wanted, rest = (rest[0], rest[1:]) if rest else ("*", [])
        levels = [level for level in levels if fnmatch.fnmatchcase(level.name, wanted)]
    glob = rest[0] if rest else "*"
    found = [
        ProblemFile(file)
        for level in levels
        for file in level.glob("*.py")
        if fnmatch.fnmatchcase(file.name, glob) or fnmatch.fnmatchcase(file.stem, glob)
    ]
    if not found or len(rest) > 1:
        raise UsageError(
            f"no KernelBench problem matches {pattern!r} (PATH, PATH/level1 or PATH/level1/GLOB)"
        )
    return sorted(found, key=ProblemFile._order)


def _existing(text: str) -> tuple[Path, list[str]]:
    """The longest existing prefix of a path, and the parts that follow it."""
    rest: list[str] = []
    path = Path(text).expanduser()
    while not path.exists() and path != path.parent:
        rest.insert(0, path.name)
        path = path.parent
    inner = path / _INNER / rest[0] if rest else path
    return (inner, rest[1:]) if rest and inner.is_dir() else (path, rest)


def _levels(path: Path) -> list[Path]:
    if _LEVEL.fullmatch(path.name):
        return [path]
    for root in (path / _INNER, path):
        levels = [folder for folder in root.glob("level*") if _LEVEL.fullmatch(folder.name)]
        if levels:
            return sorted(levels)
    return []


class TensorFacts(Record):
    """One tensor that `forward` takes or returns."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    itemsize: int
    state: str | None = None
    """The name in the module's state; None for inputs and outputs."""

    @property
    def size_bytes(self) -> int:
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
    """The axis that can be scaled: the first axis of some inputs and outputs."""

    rows: int
    least: int
    """The fewest that it accepts: 1, or 2 for a batch norm."""
    draws: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    flops: int
    peak_bytes: int
    apart: bool | None = None
    """Whether an output row depends on the same input row alone, found by trials; None: not tried."""


class ProblemFacts(Record):
    """What inspection finds out about a problem without values."""

    arguments: tuple[str, ...]
    """Names of `forward`'s inputs and scalars, in order."""
    inputs: tuple[TensorFacts, ...]
    scalars: tuple[ScalarFacts, ...]
    parameters: tuple[TensorFacts, ...]
    outputs: tuple[TensorFacts, ...]
    init: str
    flops: int
    kind: Literal["elementwise", "reduction", "contraction"]
    convolves: bool
    draws: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    batch_statistics: bool = False
    peak_bytes: int
    rows: RowFacts | None = None
    wide: bool = False
    """An operand passes as output on the problem's own values, but not on inputs from (-3, 3]."""

    @property
    def tensors(self) -> tuple[TensorFacts, ...]:
        """All operands."""
        return (*self.inputs, *self.parameters, *self.outputs)

    def judged_bytes(self, rows: int | None = None) -> int:
        """Memory for judging a call whole, with the problem's own or the given number of rows."""
        total = 0
        for tensor in self.tensors:
            count = math.prod(tensor.shape)
            if rows is not None and self.rows is not None and self.scales(tensor):
                count = count // self.rows.rows * rows
            total += count * (3 * tensor.itemsize + 8)
        return total

    def scales(self, tensor: TensorFacts) -> bool:
        """Whether the tensor's first axis is that of `rows`."""
        return self.rows is not None and tensor.name in (*self.rows.inputs, *self.rows.outputs)

    def fits_cpu(self, rows: int | None = None, share: float = 1.0) -> bool:
        """Whether a call with so many rows stays within `share` of the CPU target's limits."""
        left_out = 0 if rows is None or self.rows is None else (self.rows.rows - rows) * self.rows.flops
        within_bytes = self.judged_bytes(rows) <= CPU_BYTES * share
        return within_bytes and self.flops - left_out <= CPU_FLOPS * share

    @property
    def cpu_rows(self) -> int | None:
        """Rows on the CPU target: the largest power of two that is graded in about a minute, else the
        smallest that fits; None if the whole problem fits or nothing does."""
        rows = self.rows
        if rows is None or self.fits_cpu():
            return None
        powers = [1 << n for n in range((rows.rows - 1).bit_length()) if 1 << n >= rows.least]
        small = [n for n in powers if self.fits_cpu(n, _SCALED_SHARE)]
        return max(small) if small else next((n for n in powers if self.fits_cpu(n)), None)
