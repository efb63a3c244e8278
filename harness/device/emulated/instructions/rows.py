"""The rows of the instruction tables: a mnemonic's syntax, its operands, and the C++ that computes it.

A row is one line of a table, its columns apart by ` | `; an indented line continues the one before:

    9.7.1.3 mul.wide.T | d:2T a:T b:T | wide_product({a}, {b})

- The section is that of the PTX ISA manual, version 9.0.
- In the syntax, a lower-case word stands for itself, an upper-case name for one of the words that its table
  gives it; `?` marks what may be left out. In the C++, `{sat}` is `true` or `false`, `{R}` the word given.
- Operands have a name and a type: `d` is the destination, `d|q` are two (the C++ assigns `second`), `2T` is
  the type of twice T's width, `bT` untyped bits of T's width, `-` stands for no operands. `[a]` is an address
  in the space `S` (generic where the mnemonic names none), `b:u32?0` an operand with a default.
- The C++ is an expression for the destination, or a statement where there is none. `t` is the thread,
  `{site}` the instruction's place for messages, `{space}` that of `[a]`. `@name` is a function that does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.device.emulated.ptx import SIZES


class Emitter(Protocol):
    """What writes the C++ of one function; operands are given as they stand in the PTX."""

    def read(self, type: str, operand: str) -> str:
        """C++ expression of an operand's value, of a PTX type."""

    def write(self, type: str, operand: str, value: str) -> str:
        """C++ statement that assigns to a register; `_` discards."""

    def address(self, operand: str, space: str) -> str:
        """C++ expression of the address in `[...]`, in the window of its space."""

    def site(self) -> int:
        """Index of the statement in the kernel's table of places."""

    def label(self, name: str) -> str:
        """C++ statement that jumps to a label."""

    def label_list(self, name: str) -> list[str]:
        """The labels that a `.branchtargets` directive lists."""

    def call(self, operands: list[str]) -> str:
        """C++ statement that calls a function."""

    def is_predicate(self, operand: str) -> bool:
        """Whether an operand is a predicate register."""


Slots = dict[str, str]
Handler = Callable[[Emitter, Slots, list[str]], str | None]
"""Writes the C++ of a row that needs more than a template; None if it cannot."""


@dataclass(frozen=True)
class Row:
    """One form of an instruction; `words` are those that each upper-case name of the syntax stands for."""

    section: str
    syntax: str
    operands: str
    cpp: str | Handler
    words: Mapping[str, str]

    def matches(self, mnemonic: str) -> Slots | None:
        """The words that stand in the syntax's slots, or None if this is another instruction."""
        given, at = mnemonic.split("."), 0
        out: Slots = {}
        for token in self.syntax.split("."):
            name, optional = token.rstrip("?"), token.endswith("?")
            words = self.words[name].split() if name in self.words else [name]
            found = at < len(given) and given[at] in words
            if not found and not optional:
                return None
            if name in self.words:
                out[name] = given[at] if found else ""
            elif optional:
                out[name] = "true" if found else "false"
            at += found
        return out if at == len(given) else None

    def emit(self, emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
        """The C++ of one instruction, or None if the operands do not fit."""
        if not isinstance(self.cpp, str):
            return self.cpp(emitter, slots, operands)
        specifications = self.operands.replace("-", "").split()
        values: dict[str, Any] = slots | {"space": f"Space::{space_of(slots)}"}
        target: tuple[str, str] | None = None
        for number, specification in enumerate(specifications):
            name, _, rest = specification.partition(":")
            type, _, default = rest.partition("?")
            name, _, _ = name.partition("?")
            if number >= len(operands):
                if "?" not in specification:
                    return None
                values[name.strip("[]")] = default
            elif name in ("d", "d|q"):
                target = operands[number], resolved(type, slots)
            elif name.startswith("["):
                values[name.strip("[]")] = emitter.address(operands[number], slots.get("S", ""))
            else:
                values[name] = emitter.read(resolved(type, slots), operands[number])
        if len(operands) > len(specifications):
            return None
        if "{site}" in self.cpp:
            values["site"] = emitter.site()
        return _assigned(emitter, target, self.cpp.format_map(values))


def space_of(slots: Slots, name: str = "S") -> str:
    """The C++ name of the state space that the slot `name` says."""
    word = slots.get(name, "").split("::")[0]
    return {"": "Generic", "param": "Const"}.get(word, word.capitalize())


def _assigned(emitter: Emitter, target: tuple[str, str] | None, value: str) -> str:
    if target is None:
        return f"{value};"
    operand, type = target
    first, _, second = operand.partition("|")
    if "second" not in value:
        return emitter.write(type, first, value)
    also = emitter.write("pred", second, "second") if second else ""
    return f"{{ bool second = false; {emitter.write(type, first, value)} {also} }}"


def resolved(type: str, slots: Slots) -> str:
    """The PTX type that an operand's specification stands for: `T`, `2T`, `bT` or a type's name."""
    if type in slots:
        return slots[type]
    if type[1:] in slots and type[0] in "2b":
        real = slots[type[1:]]
        return f"{real[0]}{16 * SIZES[real]}" if type[0] == "2" else f"b{8 * SIZES[real]}"
    return type


def rows(text: str, words: Mapping[str, str] = {}, *handlers: Handler) -> list[Row]:
    """The rows of a table."""
    named = {f"@{one.__name__}": one for one in handlers}
    out = []
    for line in text.strip().replace("\n ", " ").splitlines():
        head, operands, cpp = line.split(" | ", 2)
        section, syntax = head.split()
        out.append(Row(section, syntax, operands.strip(), named.get(cpp.strip(), cpp.strip()), words))
    return out


@dataclass
class Table:
    """Rows by opcode."""

    rows: dict[str, list[Row]] = field(default_factory=dict)

    @classmethod
    def of(cls, groups: Iterable[list[Row]]) -> Table:
        """A table of all rows of some groups."""
        table = cls()
        for group in groups:
            for row in group:
                table.rows.setdefault(row.syntax.split(".", 1)[0], []).append(row)
        return table

    def find(self, mnemonic: str) -> list[tuple[Row, Slots]]:
        """Rows whose syntax fits the mnemonic."""
        found = [(row, row.matches(mnemonic)) for row in self.rows.get(mnemonic.split(".", 1)[0], [])]
        return [(row, slots) for row, slots in found if slots is not None]


def elements(operand: str) -> list[str]:
    """The registers of `{a, b}`, or the one that stands alone."""
    return [one.strip() for one in operand[1:-1].split(",")] if operand.startswith("{") else [operand]
