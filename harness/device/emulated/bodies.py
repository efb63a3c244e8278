"""Writes the C++ of one function: registers become local variables of unsigned bits, labels keep their names,
every instruction becomes the statement of its row in the tables."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from operator import itemgetter

from harness.device.emulated import ptx
from harness.device.emulated.instructions import find
from harness.device.emulated.instructions.rows import PLACE, Row, Slots
from harness.device.emulated.ptx import SIZES, CannotEmulate, Function, Module, Statement, Variable

_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$")
_RANGE = re.compile(r"([\w$%]+)<(\d+)>$")
INTEGER = re.compile(r"([-+~]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?$")
_SUM = re.compile(r"([\w$%.]+?)\s*([+-])\s*(-?\w+)$")
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)$")
_OPERAND = re.compile(
    r"(?P<bracket>\[)?(?P<mode>\+|d=)?(?P<name>[a-z])(?P<second>\|q)?(?P<vector>\{(?P<count>\w*)\})?"
    r"(?::(?P<type>\w+))?\]?(?:\?(?P<default>\w+))?$"
)

_SPECIAL = {
    "%laneid": "t.lane", "%warpid": "t.warp", "%nwarpid": "warps(t)", "%clock": "clock64(t)", "%smid": "0",
    "%clock64": "clock64(t)", "%globaltimer": "clock64(t)", "%globaltimer_lo": "clock64(t)", "%nsmid": "1",
    "%gridid": "t.grid->grid_id", "%lanemask_eq": "1u << t.lane", "%lanemask_lt": "(1u << t.lane) - 1",
    "%lanemask_le": "(2u << t.lane) - 1", "%lanemask_gt": "~((2u << t.lane) - 1)",
    "%lanemask_ge": "~((1u << t.lane) - 1)", "%cluster_ctarank": "t.block->cluster_ctarank",
    "%cluster_nctarank": "t.grid->cluster_nctarank", "%is_explicit_cluster": "t.grid->cluster_nctarank > 1",
    "%dynamic_smem_size": "t.grid->dynamic_shared", "%total_smem_size": "t.block->shared_size",
    "%aggr_smem_size": "t.block->shared_size", "WARP_SZ": "32",
} | {
    f"%{name}.{axis}": f"t.{where}[{number}]"
    for name, where in {
        "tid": "tid", "ntid": "grid->ntid", "ctaid": "block->ctaid", "nctaid": "grid->nctaid",
        "cluster_ctaid": "block->cluster_ctaid", "cluster_nctaid": "grid->cluster_nctaid",
        "clusterid": "block->clusterid", "nclusterid": "grid->nclusterid",
    }.items()
    for number, axis in enumerate("xyz")
}  # fmt: skip
"""Special registers (chapter 10)."""

_LIBRARY = {"vprintf": "print_formatted", "__assertfail": "assertion_failed"}
"""Functions that the device's runtime has; each gets the pointers to its result and parameters."""

_ORDERED = re.compile(r"\.(volatile|relaxed|acquire|release|acq_rel|sc|mmio)\b|^(atom|red|membar)\b")


@dataclass
class Kernel:
    """What all functions of one kernel share."""

    module: Module
    sites: dict[tuple[str, str, int], int] = field(default_factory=dict)
    shared: dict[str, Variable] = field(default_factory=dict)
    called: list[str] = field(default_factory=list)
    communicates: bool = False
    local_bytes: int = 0

    @property
    def globals(self) -> list[Variable]:
        """Module variables in the order of KernelInfo::variables."""
        return [one for one in self.module.variables.values() if one.space in ("global", "const")]

    def address_of(self, name: str) -> tuple[str, str]:
        """(C++ address, state space) of a variable of the module, or of a function. Raises ValueError."""
        variable = self.module.variables.get(name)
        if variable is None:
            if name not in self.module.functions:
                raise ValueError(f"unknown name {name}")
            if name not in self.called:
                self.called.append(name)
            return f"(u64)&f_{plain(name)}", "function"
        if variable.space != "shared":
            return f"t.grid->variables[{self.globals.index(variable)}]", variable.space
        self.shared[name] = variable
        place = "dynamic_shared(t)" if variable.external else f"(t.block->shared_begin + s_{plain(name)})"
        return place, "shared"


class FunctionWriter:
    """Writes the body of one function. `addresses`: C++ of the addresses of its parameters."""

    def __init__(self, kernel: Kernel, function: Function, addresses: dict[str, str]) -> None:
        if function.body is None:
            raise CannotEmulate(f"call of {function.name}", function.name)
        self.kernel, self.function, self.statements = kernel, function, function.body
        self.names = {(0, name): (address, "") for name, address in addresses.items()}
        """(C++, PTX type of a register, or "" for an address) by block and name."""
        self.used: set[tuple[str, str]] = set()
        self.buffers: list[str] = []
        labels = ((at, one) for at, one in enumerate(self.statements) if one.kind == "label")
        self.labels = {(one.blocks[-1], one.text): at for at, one in labels}
        self.at, self.statement = 0, self.statements[0]
        self.accumulators = _accumulators(self.statements)

    def _variable(self, name: str) -> tuple[str, str] | None:
        for block in reversed(self.statement.blocks):
            if (block, name) in self.names:
                return self.names[block, name]
        return None

    def _register(self, name: str) -> tuple[str, str] | None:
        """(C++ name, PTX type) of a register."""
        found = self._variable(name)
        if found is None or not found[1]:
            return None
        self.used.add(found)
        return found

    def _symbol(self, name: str) -> tuple[str, str]:
        """(C++ address, state space) of a variable, a parameter or a function. Raises ValueError."""
        found = self._variable(name)
        return (found[0], "param") if found and not found[1] else self.kernel.address_of(name)

    def read(self, type: str, operand: str) -> str:
        """C++ expression of an operand's value, of a PTX type."""
        if operand.startswith("!"):
            return f"!{self.read(type, operand[1:])}"
        register = self._register(operand)
        if register is not None:
            return register[0] if _holds(register[1], type) else f"as<{type}>({register[0]})"
        if operand in _SPECIAL:
            return f"({type})({_SPECIAL[operand]})"
        constant = _constant(type, operand)
        if constant is not None:
            return constant
        if operand.startswith("-") and self._register(operand[1:]):
            return f"-{self.read(type, operand[1:])}"
        name, offset = _base_and_offset(operand)
        return f"({type})({self._symbol(name)[0]}{offset})"

    def write(self, type: str, operand: str, value: str) -> str:
        """C++ statement that assigns to a register; `_` discards."""
        if operand == "_":
            return f"(void)({value});"
        register = self._register(operand)
        if register is None:
            raise ValueError(f"destination {operand}")
        name, own = register
        return f"{name} = {value};" if _holds(own, type) else f"put<{type}>({name}, {value});"

    def address(self, operand: str, space: str) -> str:
        """C++ expression of the address in `[...]`, in the window of its space."""
        if not (operand.startswith("[") and operand.endswith("]")):
            raise ValueError(f"address {operand}")
        base, offset = _base_and_offset(operand[1:-1].strip())
        register = self._register(base)
        if register is not None:
            start = register[0]
        elif base.isdigit():
            start = base
        else:
            start, own = self._symbol(base)
            start = f"generic_from_shared(t, {start})" if own == "shared" and not space else start
        return f"({'u32' if space.startswith('shared') else 'u64'})({start}{offset})"

    def is_predicate(self, operand: str) -> bool:
        """Whether an operand is a predicate register."""
        found = self._variable(operand.lstrip("!"))
        return found is not None and found[1] == "pred"

    def site(self) -> int:
        """Index of the statement in the kernel's table of places."""
        it = self.statement
        file = self.kernel.module.files.get(it.file, "") if it.row else "(PTX)"
        key = (it.mnemonic, file, it.row or it.line)
        return self.kernel.sites.setdefault(key, len(self.kernel.sites))

    def _label(self, name: str) -> tuple[int, int]:
        """(block, position) of a label."""
        for block in reversed(self.statement.blocks):
            if (block, name) in self.labels:
                return block, self.labels[block, name]
        raise ValueError(f"label {name}")

    def _goto(self, label: str) -> str:
        block, place = self._label(label)
        goto = f"goto L{block}_{plain(label)};"
        return goto if place > self.at else f"{{ step(t, {self.site()}); {goto} }}"

    def branch(self, slots: Slots, operands: list[str]) -> str:
        """bra: C++ statement that jumps."""
        return self._goto(operands[0])

    def indexed_branch(self, slots: Slots, operands: list[str]) -> str:
        """brx.idx: a jump to one of the labels that a `.branchtargets` directive lists."""
        targets = self.statements[self._label(operands[1])[1] + 1].text.removeprefix(".branchtargets")
        cases = [f"case {i}: {self._goto(one)}" for i, one in enumerate(ptx.split(targets))]
        return f"switch ({self.read('u32', operands[0])}) {{ {' '.join(cases)} }}"

    def call(self, slots: Slots, operands: list[str]) -> str:
        """call: results and arguments are passed by address."""
        results = ptx.split(operands.pop(0).strip("() ")) if operands[0].startswith("(") else []
        name, given = operands[0], operands[1] if len(operands) > 1 else ""
        buffers = [f"(u8*){self._symbol(one)[0]}" for one in [*results, *ptx.split(given.strip("() "))]]
        register = self._register(name)
        if name in _LIBRARY:
            call = f"{_LIBRARY[name]}(t, arguments, {self.site()});"
        elif register is not None:
            call = f"((Function*){register[0]})(t, arguments);"
        else:
            self.kernel.address_of(name)
            call = f"f_{plain(name)}(t, arguments);"
        return f"{{ u8* arguments[] = {{{', '.join(buffers) or 'nullptr'}}}; {call} }}"

    def move_vector(self, slots: Slots, operands: list[str]) -> str:
        """mov: packs or unpacks the elements of a vector (9.7.9.4)."""
        to, source = operands
        packs = source.startswith("{")
        parts = ptx.elements(source if packs else to)
        whole, width = ptx.bits(slots["T"]), 8 * SIZES[slots["T"]] // len(parts)
        if packs:
            values = [f"({whole}){self.read(f'b{width}', one)} << {width * i}" for i, one in enumerate(parts)]
            return self.write(whole, to, " | ".join(values))
        cuts = ((one, f"(b{width})(whole >> {width * i})") for i, one in enumerate(parts) if one != "_")
        writes = [self.write(f"b{width}", one, cut) for one, cut in cuts]
        return f"{{ {whole} whole = {self.read(whole, source)}; {' '.join(writes)} }}"

    def body(self) -> str:
        """The C++ statements of the function: declarations first, then one line per instruction."""
        lines = []
        for at, statement in enumerate(self.statements):
            self.at, self.statement = at, statement
            try:
                if statement.kind == "label":
                    lines.append(f"L{statement.blocks[-1]}_{plain(statement.text)}:;")
                elif statement.kind == "directive":
                    self._directive(statement)
                else:
                    lines.append(self._instruction(statement))
            except (ValueError, IndexError, KeyError) as error:
                raise CannotEmulate(statement.text, self.function.name, statement.line) from error
        self.kernel.local_bytes += 2048 + 16 * len(self.used)
        registers = [
            f"{_storage(type)} {', '.join(f'{name} = {_poison(type)}' for name, _ in names)};"
            for type, names in groupby(sorted(self.used, key=itemgetter(1, 0)), itemgetter(1))
        ]
        return "\n".join([*self.buffers, "[[maybe_unused]] bool carry = false;", *registers, *lines])

    def _directive(self, statement: Statement) -> None:
        block, found = statement.blocks[-1], _REGISTERS.match(statement.text)
        if found is not None:
            for one in ptx.split(found[2]):
                many = _RANGE.match(one)
                for name in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [one]:
                    self.names[block, name] = f"v{block or ''}_{plain(name)}", found[1]
            return
        for variable in ptx.variables(statement.text):
            if variable.space in ("shared", "global", "const"):
                self.kernel.module.variables[variable.name] = variable
                continue
            name, size = f"m{len(self.buffers)}_{plain(variable.name)}", max(variable.size, 1)
            self.names[block, variable.name] = f"(u64){name}", ""
            self.buffers.append(f"alignas({variable.align}) u8 {name}[{size}]; poison({name});")
            self.kernel.local_bytes += size + variable.align

    def _instruction(self, statement: Statement) -> str:
        mnemonic = statement.mnemonic
        if _ORDERED.search(mnemonic) and ".shared" not in mnemonic:
            self.kernel.communicates = True
        found = (self._filled(row, slots, statement.operands) for row, slots in find(mnemonic))
        text = next((one for one in found if one is not None), None)
        if text is None:
            raise ValueError("no row fits")
        if mnemonic.startswith("wgmma.wait_group"):
            for one in filter(None, map(self._register, sorted(self.accumulators))):
                text += f" {one[0]} = wgmma_settle(t, {one[0]});"
        if statement.guard is None:
            return text
        negated, predicate = statement.guard
        return f"if ({'!' if negated else ''}{self.read('pred', predicate)}) {{ {text} }}"

    def _filled(self, row: Row, slots: Slots, operands: list[str]) -> str | None:
        """C++ of one instruction by a row, or None if the operands do not fit."""
        if "L2::cache_hint" in slots.values():
            operands = operands[:-1]
        if row.cpp.startswith("@"):
            method: Callable[[Slots, list[str]], str] = getattr(self, row.cpp[1:])
            return method(slots, operands)
        return _Filling(self, slots, row.cpp).filled(_parsed(row.operands), operands)


class _Filling:
    """Fills the C++ of one row with the operands of one instruction."""

    def __init__(self, writer: FunctionWriter, slots: Slots, cpp: str) -> None:
        self.writer, self.slots, self.cpp = writer, slots, cpp
        self.values = slots | {"space": f"Space::{_enumerator(slots.get('S', ''))}"}
        for found in filter(None, map(_SHAPE.match, slots.values())):
            self.values |= zip("mnk", found.groups(), strict=True)
        self.arrays: list[str] = []
        self.writes: list[str] = []
        self.target: tuple[str, str] | None = None

    def filled(self, wanted: list[re.Match[str]], operands: list[str]) -> str | None:
        """The statement; None if the operands do not fit."""
        lacking = len(wanted) - len(operands)
        left_out = [one for one in wanted if one["default"]][-lacking:] if lacking > 0 else []
        if len(left_out) != lacking:
            return None
        given = iter(operands)
        for it in wanted:
            if it not in left_out and not self._operand(it, next(given)):
                return None
        for it in left_out:
            self.values[it["name"]] = self.values.get(it["default"], it["default"])
        if "{site}" in self.cpp:
            self.values["site"] = str(self.writer.site())
        return self._statement(PLACE.sub(self._value, self.cpp))

    def _operand(self, it: re.Match[str], operand: str) -> bool:
        name, type = it["name"], _resolved(it["type"] or "", self.slots)
        if it["bracket"]:
            return self._address(it, operand)
        if it["vector"]:
            return self._vector(it, type, operand)
        if operand.startswith("{"):
            return False
        if name == "d":
            self.target = operand, type
        elif type != "pred" and self.writer.is_predicate(operand):
            return False
        else:
            self.values[name] = self.writer.read(type, operand)
        return True

    def _address(self, it: re.Match[str], operand: str) -> bool:
        if not it["vector"]:
            space = self.slots.get(it["type"] or "S", it["type"] or "")
            self.values[it["name"]] = self.writer.address(operand, space)
            return True
        map, coordinates = ptx.split(operand.strip()[1:-1])
        given = [self.writer.read("s32", one) for one in ptx.elements(coordinates)]
        self.values |= {it["name"]: self.writer.read("u64", map), "rank": str(len(given))}
        self.values[it["count"]] = ", ".join(given)
        return True

    def _vector(self, it: re.Match[str], type: str, operand: str) -> bool:
        name, registers, wanted = it["name"], ptx.elements(operand), it["count"]
        count = len(registers)
        if wanted and count != int(self.slots.get(wanted, wanted).strip("vx") or 1) and operand != "_":
            return False
        if it["mode"] or name == "d":
            self.writes += [self.writer.write(type, one, f"{name}[{i}]") for i, one in enumerate(registers)]
        if it["mode"] == "d=":
            return True
        initial = ", ".join(self.writer.read(type, one) for one in registers)
        reads = it["mode"] or name != "d"
        self.arrays.append(f"{type} {name}[] = {{{initial}}};" if reads else f"{type} {name}[{count}];")
        return True

    def _value(self, found: re.Match[str]) -> str:
        value = self.values.get(found[1], found[0])
        return _enumerator(value) if found[2] else value

    def _statement(self, value: str) -> str:
        if self.arrays:
            return f"{{ {' '.join([*self.arrays, f'{value};', *self.writes])} }}"
        if self.target is None:
            return f"{value};"
        operand, type = self.target
        first, _, second = operand.partition("|")
        if "second" not in value:
            return self.writer.write(type, first, value)
        also = self.writer.write("pred", second, "second") if second else ""
        return f"{{ bool second = false; {self.writer.write(type, first, value)} {also} }}"


@cache
def _parsed(specifications: str) -> list[re.Match[str]]:
    found = [_OPERAND.match(one) for one in specifications.replace("-", "").split()]
    assert None not in found, specifications
    return [one for one in found if one is not None]


def _enumerator(word: str) -> str:
    """The C++ name of a state space."""
    return {"": "Generic", "param": "Const"}.get(word.split("::")[0], word.split("::")[0].capitalize())


def _resolved(type: str, slots: Slots) -> str:
    """The PTX type that an operand's specification stands for: `T`, `2T`, `bT`, `iT` or a type's name."""
    real = slots.get(type[1:], "")
    if type in slots or not real or type[0] not in "2bi":
        return slots.get(type, type)
    if type[0] == "2":
        return f"{real[0]}{16 * SIZES[real]}"
    return real if type[0] == "i" and real[0] == "s" else ptx.bits(real)


def _accumulators(statements: list[Statement]) -> set[str]:
    """Registers that may hold a result of wgmma: its destinations, and where they are moved to."""
    out: set[str] = set()
    moves: list[tuple[str, str]] = []
    for one in statements:
        if one.kind == "instruction" and "wgmma.mma_async" in one.text:
            out.update(ptx.elements(one.operands[0]))
        elif one.kind == "instruction" and "mov." in one.text and "{" not in one.text:
            moves.append((one.operands[0], one.operands[1]))
    while more := {to for to, source in moves if source in out} - out:
        out |= more
    return out


def _base_and_offset(text: str) -> tuple[str, str]:
    """(name, C++ of what is added to it) of `name+8`."""
    found = _SUM.match(text)
    if found is None:
        return text, ""
    offset = int(found[3], 0) * (-1 if found[2] == "-" else 1)
    return found[1], f" {'-' if offset < 0 else '+'} {abs(offset)}" if offset else ""


def plain(name: str) -> str:
    """A PTX name as part of a C++ name."""
    return name.replace("%", "").replace("$", "S_").replace(".", "_")


def _storage(type: str) -> str:
    return "bool" if type == "pred" else f"u{8 * SIZES[type]}"


def _poison(type: str) -> str:
    """What a register holds before it is written: a NaN where it is read as a floating-point number."""
    return {"pred": "false", "b8": "0xbd", "b16": "0x7fbd"}.get(ptx.bits(type), f"poison_{_storage(type)}")


def _holds(register: str, type: str) -> bool:
    """Whether the C++ variable of a register has the C++ type of a PTX type."""
    return type in (ptx.bits(register), ptx.bits(register).replace("b", "u"))


def _constant(type: str, operand: str) -> str | None:
    """C++ of a literal (4.5)."""
    prefix = operand[:2].lower()
    if prefix == "0f" and len(operand) == 10:
        return f"as<{type}>(0x{operand[2:]}u)"
    if prefix == "0d" and len(operand) == 18:
        bits = f"0x{operand[2:]}ull"
        return f"as<{type}>({bits})" if SIZES[type] == 8 else f"({type})as<f64>({bits})"
    if DECIMAL.match(operand):
        return f"({type}){operand}"
    found = INTEGER.match(operand)
    if found is None:
        return None
    digits = found[2]
    octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
    value = int(digits, 8 if octal else 0)
    if type in ("f32", "f64", "f16", "bf16"):
        return f"({type}){found[1]}{value}.0"
    if type in ("f16x2", "bf16x2", "f32x2"):
        return f"as<{type}>(({_storage(type)}){found[1]}{value}ull)"
    return f"({type})({found[1]}{value}{'ull' if value >= 1 << 63 else 'll'})"
