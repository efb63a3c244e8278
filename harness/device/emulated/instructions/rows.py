"""The rows of the instruction tables: a mnemonic's syntax, its operands, and the C++ that computes it.

A table begins with `# ` and its name. A row is a line, its columns apart by ` | `; an indented line continues
the one before:

    T: u16 s16 u32 s32; U: T u64 s64
    9.7.1.3 mul.wide.T | d:2T a:T b:T | wide_product({a}, {b})

Section: that of the PTX ISA manual, version 9.0.

Words: `T: u16 s16; U: T u64` says what upper-case names stand for, from there on; `n[8..256]` counts in steps
of 8. A line `or T: ...` repeats the rows since the words before it, with others. A lower-case name
abbreviates C++.

Syntax: a lower-case word stands for itself, an upper-case name for one of its words, the same one each time;
`?` marks what may be left out.

Operands have a name and a type, `-` stands for none:
- `d` is the destination; `d|q` are two, and the C++ assigns `second`. Others are sources.
- `2T` is the type of twice T's width, `bT` untyped bits of T's width, `iT` bits that keep T's sign.
- `[a]` is an address in the space `S` (generic where the mnemonic names none), `[a:D]` in the space `D`.
- `a{V}:T` is a vector of as many registers as `V` says, `a{4}:T` of 4, `a{}:T` of any number: an array for
  the C++, which fills `d{V}`; `d=c{V}` gets what it leaves in the array `c`, `+d{V}` has its value before.
- `[a{c}]` is a tensor map's address and coordinates; `{rank}` is their number.
- `b:u32?0` may be left out, the last one first, and has a default: a number, or another operand's value.
  A cache policy after the last operand changes nothing.

C++: an expression for the destination, or a statement where there is none. `{a}` is an operand's value, `{R}`
the word given (`{R!c}` capitalized), `{sat}` is `true` or `false`; `t` is the thread, `{site}` the
instruction's place for messages, `{space}` that of `[a]`; `{m}`, `{n}`, `{k}` are the numbers of a shape.
`@name` is a method of what writes the C++.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

PLACE = re.compile(r"\{(\w+)(!c)?\}")
"""What the C++ of a row is filled with."""
_COUNTED = re.compile(r"(\S*)\[(\d+)\.\.(\d+)\](\S*)")

Slots = dict[str, str]


@dataclass(frozen=True)
class Row:
    """One form of an instruction; `words` are those that each upper-case name of the syntax stands for."""

    section: str
    syntax: str
    operands: str
    cpp: str
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


def groups(text: str) -> dict[str, list[Row]]:
    """The rows of some tables, by the name of the table."""
    out: dict[str, list[Row]] = {}
    words: dict[str, str] = {}
    block: list[str] = []
    for line in text.strip().replace("\n ", " ").splitlines():
        if line.startswith("# "):
            rows = out[line[2:]] = []
        elif line[0].isdigit():
            block.append(line)
            rows.append(_row(line, words))
        else:
            words = _defined(line.removeprefix("or "), words)
            block = block if line.startswith("or ") else []
            rows += [_row(one, words) for one in block]
    return out


def _defined(line: str, words: dict[str, str]) -> dict[str, str]:
    """The words, and those that a line says."""
    for one in line.split("; "):
        name, text = one.split(": ", 1)
        listed = _COUNTED.sub(_counted, text).split(" ")
        words = words | {name: " ".join(words.get(word, word) for word in listed)}
    return words


def _counted(found: re.Match[str]) -> str:
    return " ".join(f"{found[1]}{n}{found[4]}" for n in range(int(found[2]), int(found[3]) + 1, 8))


def _row(line: str, words: Mapping[str, str]) -> Row:
    head, operands, cpp = (one.strip() for one in line.split(" | ", 2))
    section, syntax = head.split()
    short = {name: text for name, text in words.items() if name.islower()}
    while (longer := PLACE.sub(lambda it: short.get(it[1], it[0]), cpp)) != cpp:
        cpp = longer
    return Row(section, syntax, operands, cpp, {name: words[name] for name in words.keys() - short.keys()})
