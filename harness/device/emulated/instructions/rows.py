"""The rows of the instruction tables: a mnemonic's syntax, its operands, and the C++ that computes it.

A row is one line of a table, its columns apart by ` | `; an indented line continues the one before:

    9.7.1.3 mul.wide.T | d:2T a:T b:T | wide_product({a}, {b})

Section: that of the PTX ISA manual, version 9.0.

Syntax: a lower-case word stands for itself, an upper-case name for one of the words that its table gives it,
the same one each time; `?` marks what may be left out.

Operands have a name and a type, `-` stands for none:
- `d` is the destination; `d|q` are two, and the C++ assigns `second`. Others are sources.
- `2T` is the type of twice T's width, `bT` untyped bits of T's width, `iT` bits that keep T's sign.
- `[a]` is an address in the space `S` (generic where the mnemonic names none), `[a:D]` in the space `D`.
- `a{V}:T` is a vector of as many registers as `V` says, `a{4}:T` of 4, `a{}:T` of any number: an array for
  the C++, which fills `d{V}`; `d=c{V}` gets what it leaves in the array `c`, `+d{V}` has its value before.
- `[a{c}]` is a tensor map's address and coordinates; `{rank}` is their number.
- `b:u32?0` may be left out and has a default. A cache policy after the last operand changes nothing.

C++: an expression for the destination, or a statement where there is none. `{a}` is an operand's value, `{R}`
the word given (`{R!u}` in capitals, `{R!c}` capitalized), `{sat}` is `true` or `false`; `t` is the thread,
`{site}` the instruction's place for messages, `{space}` that of `[a]`; `{m}`, `{n}`, `{k}` are the numbers of
a shape. `@name` is a function that writes the C++.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Protocol

from harness.device.emulated.ptx import SIZES, bits, elements, split

CACHE_HINT = "L2::cache_hint"
_OPERAND = re.compile(
    r"(?P<bracket>\[)?(?P<mode>\+|d=)?(?P<name>[a-z])(?P<second>\|q)?(?P<vector>\{(?P<count>\w*)\})?"
    r"(?::(?P<type>\w+))?\]?(?:\?(?P<default>\w+))?$"
)
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_PLACE = re.compile(r"\{(\w+)(?:!([uc]))?\}")


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

    def is_predicate(self, operand: str) -> bool:
        """Whether an operand is a predicate register."""

    def branch(self, label: str) -> str:
        """C++ statement that jumps to a label."""

    def targets(self, label: str) -> list[str]:
        """The labels that a `.branchtargets` directive lists."""

    def call(self, operands: list[str]) -> str:
        """C++ statement that calls a function."""


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
            words = [out[name]] if name in out else self.words.get(name, name).split()
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
        if CACHE_HINT in slots.values():
            operands = operands[:-1]
        if not isinstance(self.cpp, str):
            return self.cpp(emitter, slots, operands)
        return _Template(emitter, slots, self.cpp).filled(self.operands, operands)


class _Template:
    """Fills the C++ of one row with the operands of one instruction."""

    def __init__(self, emitter: Emitter, slots: Slots, cpp: str) -> None:
        self.emitter, self.slots, self.cpp = emitter, slots, cpp
        self.values = slots | {"space": f"Space::{_enumerator(slots.get('S', ''))}"}
        for found in filter(None, map(_SHAPE.match, slots.values())):
            self.values |= zip("mnk", found.groups(), strict=True)
        self.arrays: list[str] = []
        self.writes: list[str] = []
        self.target: tuple[str, str] | None = None

    def filled(self, specifications: str, operands: list[str]) -> str | None:
        """The statement; None if the operands do not fit."""
        wanted = _parsed(specifications)
        if len(operands) > len(wanted):
            return None
        for number, it in enumerate(wanted):
            if number < len(operands):
                if not self._operand(it, operands[number]):
                    return None
            elif it["default"] is None:
                return None
            else:
                self.values[it["name"]] = it["default"]
        if "{site}" in self.cpp:
            self.values["site"] = str(self.emitter.site())
        return self._statement(_PLACE.sub(self._value, self.cpp))

    def _operand(self, it: re.Match[str], operand: str) -> bool:
        name, type = it["name"], resolved(it["type"] or "", self.slots)
        if it["bracket"]:
            return self._address(it, operand)
        if it["vector"]:
            return self._vector(it, type, operand)
        if operand.startswith("{"):
            return False
        if name == "d":
            self.target = operand, type
        elif type != "pred" and self.emitter.is_predicate(operand):
            return False
        else:
            self.values[name] = self.emitter.read(type, operand)
        return True

    def _address(self, it: re.Match[str], operand: str) -> bool:
        if it["vector"]:
            parts = split(operand.strip()[1:-1])
            if len(parts) != 2:
                return False
            given = [self.emitter.read("s32", one) for one in elements(parts[1])]
            self.values |= {it["name"]: self.emitter.read("u64", parts[0]), "rank": str(len(given))}
            self.values[it["count"]] = ", ".join(given)
        else:
            space = self.slots.get(it["type"] or "S", it["type"] or "")
            self.values[it["name"]] = self.emitter.address(operand, space)
        return True

    def _vector(self, it: re.Match[str], type: str, operand: str) -> bool:
        name, registers, wanted = it["name"], elements(operand), it["count"]
        count = len(registers)
        if wanted and count != int(self.slots.get(wanted, wanted).strip("vx") or 1) and operand != "_":
            return False
        if it["mode"] or name == "d":
            self.writes += [self.emitter.write(type, one, f"{name}[{i}]") for i, one in enumerate(registers)]
        if it["mode"] == "d=":
            return True
        initial = ", ".join(self.emitter.read(type, one) for one in registers)
        reads = it["mode"] or name != "d"
        self.arrays.append(f"{type} {name}[] = {{{initial}}};" if reads else f"{type} {name}[{count}];")
        return True

    def _value(self, found: re.Match[str]) -> str:
        value = self.values.get(found[1])
        if value is None:
            return found[0]
        return {"u": value.upper(), "c": _enumerator(value), None: value}[found[2]]

    def _statement(self, value: str) -> str:
        if self.arrays:
            return f"{{ {' '.join([*self.arrays, f'{value};', *self.writes])} }}"
        if self.target is None:
            return f"{value};"
        operand, type = self.target
        first, _, second = operand.partition("|")
        if "second" not in value:
            return self.emitter.write(type, first, value)
        also = self.emitter.write("pred", second, "second") if second else ""
        return f"{{ bool second = false; {self.emitter.write(type, first, value)} {also} }}"


@cache
def _parsed(specifications: str) -> list[re.Match[str]]:
    found = [_OPERAND.match(one) for one in specifications.replace("-", "").split()]
    assert None not in found, specifications
    return [one for one in found if one is not None]


def _enumerator(word: str) -> str:
    """The C++ name of a state space or of an operation."""
    word = word.split("::")[0]
    return {"": "Generic", "param": "Const"}.get(word, word.capitalize())


def resolved(type: str, slots: Slots) -> str:
    """The PTX type that an operand's specification stands for: `T`, `2T`, `bT`, `iT` or a type's name."""
    if type in slots:
        return slots[type]
    if type[1:] not in slots or type[0] not in "2bi":
        return type
    real = slots[type[1:]]
    if type[0] == "2":
        return f"{real[0]}{16 * SIZES[real]}"
    return real if type[0] == "i" and real[0] == "s" else bits(real)


def rows(text: str, words: Mapping[str, str] = {}, *handlers: Handler) -> list[Row]:
    """The rows of a table. Lower-case names among `words` are abbreviations in the C++."""
    named = {f"@{one.__name__}": one for one in handlers}
    short = {name: text for name, text in words.items() if name.islower()}
    out = []
    for line in text.strip().replace("\n ", " ").splitlines():
        head, operands, cpp = (one.strip() for one in line.split(" | ", 2))
        section, syntax = head.split()
        while (longer := _PLACE.sub(lambda it: short.get(it[1], it[0]), cpp)) != cpp:
            cpp = longer
        out.append(Row(section, syntax, operands, named.get(cpp, cpp), words))
    return out


class Table:
    """Rows by opcode."""

    def __init__(self, groups: Iterable[list[Row]]) -> None:
        self.rows: dict[str, list[Row]] = {}
        self._found: dict[str, list[tuple[Row, Slots]]] = {}
        for row in (row for group in groups for row in group):
            first = row.syntax.split(".", 1)[0]
            for opcode in row.words.get(first, first).split():
                self.rows.setdefault(opcode, []).append(row)

    def find(self, mnemonic: str) -> list[tuple[Row, Slots]]:
        """Rows whose syntax fits the mnemonic."""
        if mnemonic not in self._found:
            rows = self.rows.get(mnemonic.split(".", 1)[0], [])
            found = ((row, row.matches(mnemonic)) for row in rows)
            self._found[mnemonic] = [(row, slots) for row, slots in found if slots is not None]
        return self._found[mnemonic]
