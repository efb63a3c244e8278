"""Writes the C++ of one kernel and the functions that it calls; compiles it to a shared library.

Registers become local variables of unsigned bits, labels keep their names, every instruction becomes the
statement of its row in the tables. The library exports one `KernelInfo`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby
from math import prod
from operator import itemgetter

from harness.device.emulated.instructions import TABLE
from harness.device.emulated.ptx import (
    SIZES,
    CannotEmulate,
    Function,
    Module,
    Statement,
    Variable,
    bits,
    elements,
    split,
    variables,
)

_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+(.*)$")
_RANGE = re.compile(r"([\w$%]+)<(\d+)>$")
_INTEGER = re.compile(r"([-+~]?)(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?$")
_DECIMAL = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?$")
_SUM = re.compile(r"([\w$%.]+?)\s*([+-])\s*(-?\w+)$")
_PARAMETER_LIMIT = 32764
"""Bytes of a kernel's parameters (11.1.1)."""

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
class _Kernel:
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

    def address_of(self, name: str) -> tuple[str, str] | None:
        """(C++ address, state space) of a variable of the module, or of a function."""
        variable = self.module.variables.get(name)
        if variable is None:
            if name not in self.module.functions:
                return None
            if name not in self.called:
                self.called.append(name)
            return f"(u64)&f_{_plain(name)}", "function"
        if variable.space != "shared":
            return f"t.grid->variables[{self.globals.index(variable)}]", variable.space
        self.shared[name] = variable
        place = "dynamic_shared(t)" if variable.external else f"(t.block->shared_begin + s_{_plain(name)})"
        return place, "shared"


class _FunctionWriter:
    """Writes the body of one function; the operands' half of what the instruction tables need.

    `addresses`: C++ of the addresses of its parameters.
    """

    def __init__(self, kernel: _Kernel, function: Function, addresses: dict[str, str]) -> None:
        if function.body is None:
            raise CannotEmulate(f"call of {function.name}", function.name)
        self.kernel, self.function, self.statements = kernel, function, function.body
        self.names = {(0, name): (address, "") for name, address in addresses.items()}
        """(C++, PTX type of a register, or "" for an address) by block and name."""
        self.used: set[tuple[str, str]] = set()
        self.buffers: list[str] = []
        self.labels = {
            (one.blocks[-1], one.text): at for at, one in enumerate(self.statements) if one.kind == "label"
        }
        self.at = 0
        self.accumulators = _accumulators(self.statements)

    # ---- operands

    @property
    def statement(self) -> Statement:
        """The one that is being written."""
        return self.statements[self.at]

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

    def _symbol(self, name: str) -> tuple[str, str] | None:
        """(C++ address, state space) of a variable, a parameter or a function."""
        found = self._variable(name)
        return (found[0], "param") if found and not found[1] else self.kernel.address_of(name)

    def read(self, type: str, operand: str) -> str:
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
        address = self._symbol(name)
        if address is None:
            raise ValueError(f"operand {operand}")
        return f"({type})({address[0]}{offset})"

    def write(self, type: str, operand: str, value: str) -> str:
        if operand == "_":
            return f"(void)({value});"
        register = self._register(operand)
        if register is None:
            raise ValueError(f"destination {operand}")
        name, own = register
        return f"{name} = {value};" if _holds(own, type) else f"put<{type}>({name}, {value});"

    def address(self, operand: str, space: str) -> str:
        if not (operand.startswith("[") and operand.endswith("]")):
            raise ValueError(f"address {operand}")
        base, offset = _base_and_offset(operand[1:-1].strip())
        register = self._register(base)
        if register is not None:
            start = register[0]
        elif base.isdigit():
            start = base
        else:
            symbol = self._symbol(base)
            if symbol is None:
                raise ValueError(f"address {operand}")
            generic = symbol[1] == "shared" and not space
            start = f"generic_from_shared(t, {symbol[0]})" if generic else symbol[0]
        return f"({'u32' if space.startswith('shared') else 'u64'})({start}{offset})"

    def is_predicate(self, operand: str) -> bool:
        found = self._variable(operand.lstrip("!"))
        return found is not None and found[1] == "pred"

    def site(self) -> int:
        it = self.statement
        file = self.kernel.module.files.get(it.file, "") if it.row else "(PTX)"
        key = (it.mnemonic, file, it.row or it.line)
        return self.kernel.sites.setdefault(key, len(self.kernel.sites))

    # ---- control flow

    def _label(self, name: str) -> tuple[int, int]:
        """(block, position) of a label."""
        for block in reversed(self.statement.blocks):
            if (block, name) in self.labels:
                return block, self.labels[block, name]
        raise ValueError(f"label {name}")

    def branch(self, label: str) -> str:
        block, place = self._label(label)
        goto = f"goto L{block}_{_plain(label)};"
        return goto if place > self.at else f"{{ step(t, {self.site()}); {goto} }}"

    def targets(self, label: str) -> list[str]:
        return split(self.statements[self._label(label)[1] + 1].text.removeprefix(".branchtargets"))

    def call(self, operands: list[str]) -> str:
        results = split(operands.pop(0).strip("() ")) if operands[0].startswith("(") else []
        name, given = operands[0], operands[1] if len(operands) > 1 else ""
        buffers = []
        for one in [*results, *split(given.strip("() "))]:
            symbol = self._symbol(one)
            if symbol is None:
                raise ValueError(f"argument {one}")
            buffers.append(f"(u8*){symbol[0]}")
        register = self._register(name)
        if name in _LIBRARY:
            call = f"{_LIBRARY[name]}(t, arguments, {self.site()});"
        elif register is not None:
            call = f"((Function*){register[0]})(t, arguments);"
        elif self.kernel.address_of(name) is None:
            raise ValueError(f"function {name}")
        else:
            call = f"f_{_plain(name)}(t, arguments);"
        return f"{{ u8* arguments[] = {{{', '.join(buffers) or 'nullptr'}}}; {call} }}"

    # ---- statements

    def body(self) -> str:
        """The C++ statements of the function: declarations first, then one line per instruction."""
        lines = []
        for at, statement in enumerate(self.statements):
            self.at = at
            try:
                if statement.kind == "label":
                    lines.append(f"L{statement.blocks[-1]}_{_plain(statement.text)}:;")
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
            for one in split(found[2]):
                many = _RANGE.match(one)
                for name in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [one]:
                    self.names[block, name] = f"v{block or ''}_{_plain(name)}", found[1]
            return
        for variable in variables(statement.text):
            if variable.space in ("shared", "global", "const"):
                self.kernel.module.variables[variable.name] = variable
                continue
            name, size = f"m{len(self.buffers)}_{_plain(variable.name)}", max(variable.size, 1)
            self.names[block, variable.name] = f"(u64){name}", ""
            self.buffers.append(f"alignas({variable.align}) u8 {name}[{size}]; poison({name});")
            self.kernel.local_bytes += size + variable.align

    def _instruction(self, statement: Statement) -> str:
        mnemonic = statement.mnemonic
        if _ORDERED.search(mnemonic) and ".shared" not in mnemonic:
            self.kernel.communicates = True
        found = (row.emit(self, slots, list(statement.operands)) for row, slots in TABLE.find(mnemonic))
        text = next((one for one in found if one is not None), None)
        if text is None:
            raise CannotEmulate(statement.text, self.function.name, statement.line)
        if mnemonic.startswith("wgmma.wait_group"):
            for one in filter(None, map(self._register, sorted(self.accumulators))):
                text += f" {one[0]} = wgmma_settle(t, {one[0]});"
        if statement.guard is None:
            return text
        negated, predicate = statement.guard
        return f"if ({'!' if negated else ''}{self.read('pred', predicate)}) {{ {text} }}"


def _accumulators(statements: list[Statement]) -> set[str]:
    """Registers that may hold a result of wgmma: its destinations, and where they are moved to."""
    out: set[str] = set()
    moves: list[tuple[str, str]] = []
    for one in statements:
        if one.kind == "instruction" and "wgmma.mma_async" in one.text:
            out.update(elements(one.operands[0]))
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


def _plain(name: str) -> str:
    """A PTX name as part of a C++ name."""
    return name.replace("%", "").replace("$", "S_").replace(".", "_")


def _storage(type: str) -> str:
    return "bool" if type == "pred" else f"u{8 * SIZES[type]}"


def _poison(type: str) -> str:
    """What a register holds before it is written: a NaN where it is read as a floating-point number."""
    return {"pred": "false", "b8": "0xbd", "b16": "0x7fbd"}.get(bits(type), f"poison_{_storage(type)}")


def _holds(register: str, type: str) -> bool:
    """Whether the C++ variable of a register has the C++ type of a PTX type."""
    return type in (bits(register), bits(register).replace("b", "u"))


def _constant(type: str, operand: str) -> str | None:
    """C++ of a literal (4.5)."""
    prefix = operand[:2].lower()
    if prefix == "0f" and len(operand) == 10:
        return f"as<{type}>(0x{operand[2:]}u)"
    if prefix == "0d" and len(operand) == 18:
        bits = f"0x{operand[2:]}ull"
        return f"as<{type}>({bits})" if SIZES[type] == 8 else f"({type})as<f64>({bits})"
    if _DECIMAL.match(operand):
        return f"({type}){operand}"
    found = _INTEGER.match(operand)
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


def translate(module: Module, name: str) -> str:
    """C++ source of a kernel's shared library. Raises CannotEmulate."""
    kernel, entry = _Kernel(module), module.functions[name]
    ends = _layout(entry.parameters)
    offsets = [end - one.size for end, one in zip(ends, entry.parameters, strict=True)]
    places = zip(entry.parameters, offsets, strict=True)
    addresses = {one.name: f"(u64)(parameters + {offset})" for one, offset in places}
    body = _FunctionWriter(kernel, entry, addresses).body()
    functions = [_function(kernel, module.functions[called]) for called in kernel.called]  # which grows
    static = [one for one in kernel.shared.values() if not one.external]
    shared = _layout(static)
    return "\n".join([
        '#include "semantics.h"',
        "using namespace emulated;",
        *(
            f"constexpr u32 s_{_plain(one.name)} = {end - one.size};"
            for one, end in zip(static, shared, strict=True)
        ),
        *(f"static Function f_{_plain(one)};" for one in kernel.called),
        *functions,
        f"static void run(Thread& t, const u8* parameters) {{\n{body}\n}}",
        *_information(kernel, entry, offsets, max(shared, default=0)),
    ])  # fmt: skip


def _function(kernel: _Kernel, function: Function) -> str:
    """C++ of a device function: its result and parameters are pointers to the caller's buffers."""
    names = [one.name for one in [*function.results, *function.parameters]]
    writer = _FunctionWriter(kernel, function, {n: f"(u64)arguments[{i}]" for i, n in enumerate(names)})
    return f"static void f_{_plain(function.name)}(Thread& t, u8* const* arguments) {{\n{writer.body()}\n}}"


def _layout(variables: list[Variable]) -> list[int]:
    """Where each variable ends; each begins at a multiple of its own alignment."""
    ends, at = [], 0
    for one in variables:
        at = -(-at // one.align) * one.align + one.size
        ends.append(at)
    return ends


def _information(kernel: _Kernel, entry: Function, offsets: list[int], shared_bytes: int) -> list[str]:
    """C++ of the library's KernelInfo and its tables."""
    threads = entry.dimensions("reqntid") or entry.dimensions("maxntid") or (1024, 1, 1)
    cluster = entry.dimensions("reqnctapercluster") or (0, 0, 0)
    variables, relocations, definitions = [], [], []
    for number, one in enumerate(kernel.globals):
        data, moved = _initial(kernel, one)
        first = "nullptr, 0"
        if data.strip(b"\0"):
            definitions.append(f"static const u8 i_{number}[] = {{{', '.join(map(str, data))}}};")
            first = f"i_{number}, {len(data)}"
        constant = str(one.space == "const").lower()
        variables.append(f"{{{_quoted(one.name)}, {one.size}, {max(one.align, 1)}, {first}, {constant}}}")
        relocations += [f"{{{number}, {offset}, {target}, {addend}}}" for offset, target, addend in moved]
    sizes = [one.size for one in entry.parameters]
    tables = {
        "parameter": [f"{{{offset}, {size}}}" for offset, size in zip(offsets, sizes, strict=True)],
        "site": [f"{{{_quoted(what)}, {_quoted(file)}, {row}}}" for what, file, row in kernel.sites],
        "variable": variables,
        "relocation": relocations,
    }
    lines = [
        f"static const {name.capitalize()}Info {name}_table[] = {{{', '.join(rows) or '{}'}}};"
        for name, rows in tables.items()
    ]
    listed = {f"{name}s": f"{name}_table, .{name}_count = {len(rows)}" for name, rows in tables.items()}
    fields = {
        "abi": "ABI",
        "name": _quoted(entry.name),
        "entry": "run",
        "parameters": listed.pop("parameters"),
        "parameter_bytes": offsets[-1] + sizes[-1] if sizes else 0,
        "shared_bytes": shared_bytes,
        "dynamic_align": max([16, *(one.align for one in kernel.shared.values() if one.external)]),
        "max_threads": prod(threads),
        "cluster": f"{{{', '.join(map(str, cluster))}}}",
        "local_bytes": kernel.local_bytes,
        "blocks_communicate": str(kernel.communicates).lower(),
        **listed,
    }
    value = ", ".join(f".{name} = {one}" for name, one in fields.items())
    name = 'extern "C" __attribute__((visibility("default"))) const KernelInfo emulated_kernel'
    return [*definitions, *lines, f"{name};", f"{name} = {{{value}}};"]


def _initial(kernel: _Kernel, variable: Variable) -> tuple[bytes, list[tuple[int, int, int]]]:
    """(initial bytes, [(offset, index of the variable whose address stands there, addend)]): 5.4.4."""
    data, moved = bytearray(), []
    if variable.initial is None:
        return b"", []
    if variable.initial.startswith('"'):
        return variable.initial.strip('"').encode().decode("unicode_escape").encode("latin-1"), []
    unit = SIZES[variable.type]
    names = [one.name for one in kernel.globals]
    for value in split(variable.initial.replace("{", " ").replace("}", " ")):
        if value[:2].lower() in ("0f", "0d"):
            data += int(value[2:], 16).to_bytes(unit, "little")
        elif _INTEGER.match(value):
            data += (int(value.rstrip("U"), 0) % (1 << (8 * unit))).to_bytes(unit, "little")
        elif _DECIMAL.match(value):
            raise CannotEmulate(f"{variable.name} = {value}")
        else:
            found = re.match(r"(?:generic\()?\s*([\w$%]+)\s*\)?\s*(?:\+\s*(\d+))?$", value)
            if found is None or found[1] not in names or unit != 8:
                raise CannotEmulate(f"{variable.name} = {value}")
            moved.append((len(data), names.index(found[1]), int(found[2] or 0)))
            data += bytes(unit)
    return bytes(data), moved


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
