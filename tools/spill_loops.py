"""Which spills of compiled kernels lie in loops, by the control flow of their SASS."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.builder.cubins import Cubin, demangled, width_bits

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^\s,]+)")
_LABEL = re.compile(r"(\.L_\w+):")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]{4,})\*/\s+(@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*)")
_TARGET = re.compile(r"\.L_\w+")
_JUMPS, _ENDS = ("BRA", "BRX", "JMP", "JMX"), ("EXIT", "RET", "KILL", "BRX", "JMP", "JMX")


@dataclass
class _Code:
    """One section: instructions as (offset, opcode, targets, whether the next one may follow)."""

    instructions: list[tuple[int, str, list[str], bool]] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    """Index of the instruction that follows."""

    def successors(self) -> list[list[int]]:
        """Of each instruction, by index."""
        count = len(self.instructions)
        return [
            [index + 1] * (follows and index + 1 < count)
            + [self.labels[name] for name in targets if self.labels.get(name, count) < count]
            for index, (_, _, targets, follows) in enumerate(self.instructions)
        ]


def _sections(lines: Iterable[str]) -> dict[str, _Code]:
    sections: dict[str, _Code] = {}
    current = _Code()
    for line in lines:
        if (section := _SECTION.match(line)) is not None:
            current = sections.setdefault(section[1], _Code())
        elif (label := _LABEL.match(line)) is not None:
            current.labels[label[1]] = len(current.instructions)
        elif (found := _INSTRUCTION.match(line)) is not None:
            offset, predicate, opcode, operands = found.groups()
            base = opcode.split(".")[0]
            targets = _TARGET.findall(operands) if base in _JUMPS else []
            always = predicate is None and (base in _ENDS or (opcode == "BRA" and "," not in operands))
            current.instructions.append((int(offset, 16), opcode, targets, not always))
    return sections


def _reached(start: int, edges: Sequence[Sequence[int]]) -> set[int]:
    found, todo = {start}, [start]
    while todo:
        new = set(edges[todo.pop()]) - found
        found |= new
        todo += new
    return found


def _looped(code: _Code) -> set[int]:
    """Indices of the instructions that can be executed again: a jump back out of a slow path, such as that of
    a wait, makes no loop by itself."""
    successors = code.successors()
    predecessors: list[list[int]] = [[] for _ in successors]
    for index, nexts in enumerate(successors):
        for following in nexts:
            predecessors[following].append(index)
    back = [(index, to) for index, nexts in enumerate(successors) for to in nexts if to <= index]
    found = set[int]()
    for index, to in back:
        found |= _reached(to, successors) & _reached(index, predecessors)
    return found


def spilled_in_loops(
    lines: Iterable[str], spills: Mapping[str, frozenset[int]]
) -> dict[str, tuple[int, int]]:
    """Bytes per thread (stored, loaded) of the spills that lie in a loop, each counted once, by section of
    nvdisasm's text. `spills`: offsets of the instructions that the compiler marked, by section."""
    found = {}
    for name, code in _sections(lines).items():
        marked, looped = spills.get(name, frozenset()), _looped(code)
        moved = {"STL": 0, "LDL": 0}
        for index, (offset, opcode, _, _) in enumerate(code.instructions):
            base, *modifiers = opcode.split(".")
            if offset in marked and index in looped and base in moved:
                moved[base] += width_bits(modifiers) // 8
        found[name] = (moved["STL"], moved["LDL"])
    return found


def of_library(library: Path, tools: Path) -> dict[str, tuple[int, int]]:
    """The same for the kernels of a library that we trust, by demangled name; `tools` has cuobjdump."""
    found: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
    with tempfile.TemporaryDirectory() as folder:
        extract = [tools / "cuobjdump", "-xelf", "all", library.resolve()]
        subprocess.run(extract, cwd=folder, check=True, capture_output=True)
        for cubin in Path(folder).glob("*.cubin"):
            for name, moved in _of_cubin(cubin, tools):
                found[name] = max(found[name], moved)
    return dict(found)


def _of_cubin(path: Path, tools: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    marked = {one.name: one.spills or frozenset[int]() for one in Cubin(path.read_bytes(), "sm_90").kernels()}
    command = [tools / "nvdisasm", "-c", "-ndf", path]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = spilled_in_loops(text.splitlines(), marked)
    yield from zip(demangled(list(marked)), (found.get(name, (0, 0)) for name in marked), strict=True)
