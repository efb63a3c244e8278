"""Writes the C++ of one kernel and the functions that it calls; compiles it to a shared library.

Registers become local variables of unsigned bits, labels keep their names, every instruction becomes the
statement of its row in the tables. The library exports one `KernelInfo`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby

from harness.device.emulated.instructions import TABLE
from harness.device.emulated.instructions.rows import elements
from harness.device.emulated.ptx import (
    SIZES,
    CannotEmulate,
    Function,
    Module,
    Statement,
    Variable,
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

_LIBRARY = {
    "vprintf": "print_formatted",
    "__assertfail": "assertion_failed",
}
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

    def need(self, function: str) -> None:
        """Notes that a function is called, or its address taken."""
        if function not in self.called:
            self.called.append(function)


class _FunctionWriter:
    """Writes the body of one function; the operands' half of what the instruction tables need."""

    def __init__(self, kernel: _Kernel, function: Function) -> None:
        self.kernel, self.function = kernel, function
        self.scopes: list[dict[str, str]] = [{}]
        self.declared: dict[str, str] = {}  # C++ name: PTX type
        self.used: set[str] = set()
        self.buffers: list[str] = []
        self.labels: dict[tuple[int, str], int] = {}
        self.targets: dict[tuple[int, str], list[str]] = {}
        self.block, self.blocks = [0], 0
        self.at = 0
        self.statement: Statement | None = None
        self.accumulators: set[str] = set()

    # ---- operands

    def _variable(self, name: str) -> str | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    def _register(self, name: str) -> tuple[str, str] | None:
        """(C++ name, PTX type) of a register."""
        found = self._variable(name)
        if found is None or found not in self.declared:
            return None
        self.used.add(found)
        return found, self.declared[found]

    def symbol(self, name: str) -> tuple[str, str] | None:
        """(C++ address, state space) of a variable, a parameter or a function."""
        found = self._variable(name)
        if found is not None and found not in self.declared:
            return found, "param"
        variable = self.kernel.module.variables.get(name)
        if variable is not None and variable.space == "shared":
            self.kernel.shared[name] = variable
            return (
                "dynamic_shared(t)" if variable.external else f"(t.block->shared_begin + s_{_plain(name)})"
            ), "shared"
        if variable is not None:
            names = [one.name for one in self.kernel.globals]
            return f"t.grid->variables[{names.index(name)}]", variable.space
        if name in self.kernel.module.functions:
            self.kernel.need(name)
            return f"(u64)&f_{_plain(name)}", "function"
        return None

    def read(self, type: str, operand: str) -> str:
        if operand.startswith("!"):
            return f"!{self.read(type, operand[1:])}"
        register = self._register(operand)
        if register is not None:
            return _typed(type, *register)
        if operand in _SPECIAL:
            return f"({type})({_SPECIAL[operand]})"
        constant = _constant(type, operand)
        if constant is not None:
            return constant
        if operand.startswith("-") and self._register(operand[1:]):
            return f"-{self.read(type, operand[1:])}"
        found = _SUM.match(operand)
        if found and self.symbol(found[1]):
            return f"({type})({self.symbol(found[1])[0]} + {_signed(found[2], found[3])})"  # type: ignore[index]
        address = self.symbol(operand)
        if address is None:
            raise ValueError(f"operand {operand}")
        return f"({type})({address[0]})"

    def write(self, type: str, operand: str, value: str) -> str:
        if operand == "_":
            return f"(void)({value});"
        register = self._register(operand)
        if register is None:
            raise ValueError(f"destination {operand}")
        name, own = register
        if type == own == "pred" or (_is_bits(type) and SIZES[type] == SIZES[own]):
            return f"{name} = {value};"
        return f"put<{type}>({name}, {value});"

    def address(self, operand: str, space: str) -> str:
        inside = operand.strip()
        if not (inside.startswith("[") and inside.endswith("]")):
            raise ValueError(f"address {operand}")
        inside = inside[1:-1].strip()
        found = _SUM.match(inside)
        base, offset = (found[1], _signed(found[2], found[3])) if found else (inside, 0)
        register = self._register(base)
        if register is not None:
            start = register[0]
        elif base.isdigit():
            start = base
        else:
            symbol = self.symbol(base)
            if symbol is None:
                raise ValueError(f"address {operand}")
            start = symbol[0]
            if symbol[1] == "shared" and not space:
                start = f"generic_from_shared(t, {start})"
        width = "u32" if space.startswith("shared") else "u64"
        return f"({width})({start}{f' + {offset}' if offset > 0 else f' - {-offset}' if offset else ''})"

    def is_predicate(self, operand: str) -> bool:
        register = self._register(operand.lstrip("!"))
        return register is not None and register[1] == "pred"

    def site(self) -> int:
        it = self.statement
        assert it is not None
        file = self.kernel.module.files.get(it.file, "") if it.row else "(PTX)"
        key = (it.mnemonic, file, it.row or it.line)
        return self.kernel.sites.setdefault(key, len(self.kernel.sites))

    # ---- control flow

    def label(self, name: str) -> str:
        for block in reversed(self.block):
            place = self.labels.get((block, name))
            if place is not None:
                goto = f"goto L{block}_{_plain(name)};"
                return goto if place > self.at else f"{{ step(t, {self.site()}); {goto} }}"
        raise ValueError(f"label {name}")

    def label_list(self, name: str) -> list[str]:
        return next(
            self.targets[block, name] for block in reversed(self.block) if (block, name) in self.targets
        )

    def call(self, operands: list[str]) -> str:
        results = (
            elements(operands.pop(0).replace("(", "{").replace(")", "}"))
            if operands[0].startswith("(")
            else []
        )
        name = operands.pop(0)
        given = elements(operands[0].replace("(", "{").replace(")", "}")) if operands else []
        buffers = []
        for one in [*results, *given]:
            symbol = self.symbol(one) if one else None
            if one and symbol is None:
                raise ValueError(f"argument {one}")
            buffers += [f"(u8*){symbol[0]}"] if symbol else []
        arguments = f"u8* arguments[] = {{{', '.join(buffers) or 'nullptr'}}};"
        if name in _LIBRARY:
            return f"{{ {arguments} {_LIBRARY[name]}(t, arguments, {self.site()}); }}"
        register = self._register(name)
        if register is not None:
            return f"{{ {arguments} ((Function*){register[0]})(t, arguments); }}"
        target = self.kernel.module.functions.get(name)
        if target is None or target.body is None:
            raise ValueError(f"function {name}")
        self.kernel.need(name)
        return f"{{ {arguments} f_{_plain(name)}(t, arguments); }}"

    # ---- statements

    def body(self) -> str:
        """The C++ statements of the function: declarations first, then one line per instruction."""
        statements = self.function.body or []
        self._find_labels(statements)
        self.accumulators = _accumulators(statements)
        lines = []
        self.block, self.blocks = [0], 0
        for self.at, statement in enumerate(statements):
            self.statement = statement
            try:
                lines += self._line(statement)
            except (ValueError, IndexError, KeyError) as error:
                if isinstance(error, CannotEmulate):
                    raise
                raise CannotEmulate(statement.text, self.function.name, statement.line) from error
        kind = self.declared.__getitem__
        registers = [
            f"{_storage(type)} {', '.join(f'{name} = {_poison(type)}' for name in names)};"
            for type, names in groupby(sorted(self.used, key=lambda n: (kind(n), n)), kind)
        ]
        self.kernel.local_bytes += 2048 + 16 * len(self.used)
        return "\n".join([*self.buffers, "[[maybe_unused]] bool carry = false;", *registers, *lines])

    def _find_labels(self, statements: list[Statement]) -> None:
        block, blocks = [0], 0
        for at, one in enumerate(statements):
            if one.kind == "open":
                blocks += 1
                block.append(blocks)
            elif one.kind == "close":
                block.pop()
            elif one.kind == "label":
                self.labels[block[-1], one.text] = at
                after = statements[at + 1].text if at + 1 < len(statements) else ""
                if after.startswith(".branchtargets"):
                    self.targets[block[-1], one.text] = split(after.removeprefix(".branchtargets"))

    def _line(self, statement: Statement) -> list[str]:
        if statement.kind == "open":
            self.blocks += 1
            self.block.append(self.blocks)
            self.scopes.append({})
        elif statement.kind == "close":
            self.block.pop()
            self.scopes.pop()
        elif statement.kind == "label":
            return [f"L{self.block[-1]}_{_plain(statement.text)}:;"]
        elif statement.kind == "directive":
            self._directive(statement.text)
        else:
            return [self._instruction(statement)]
        return []

    def _directive(self, text: str) -> None:
        found = _REGISTERS.match(text)
        if found is not None:
            for one in split(found[2]):
                many = _RANGE.match(one)
                for name in [f"{many[1]}{i}" for i in range(int(many[2]))] if many else [one]:
                    plain = f"v{self.block[-1] or ''}_{_plain(name)}"
                    self.scopes[-1][name] = plain
                    self.declared[plain] = found[1]
            return
        for variable in variables(text):
            if variable.space in ("shared", "global", "const"):
                self.kernel.module.variables[variable.name] = variable
                continue
            name = f"m{len(self.buffers)}_{_plain(variable.name)}"
            self.scopes[-1][variable.name] = f"(u64){name}"
            size = max(variable.size, 1)
            self.buffers.append(f"alignas({variable.align}) u8 {name}[{size}]; poison({name});")
            self.kernel.local_bytes += size + variable.align

    def _instruction(self, statement: Statement) -> str:
        mnemonic, operands = statement.mnemonic, statement.operands
        if _ORDERED.search(mnemonic) and ".shared" not in mnemonic:
            self.kernel.communicates = True
        for row, slots in TABLE.find(mnemonic):
            text = row.emit(self, slots, list(operands))
            if text is not None:
                break
        else:
            raise CannotEmulate(statement.text, self.function.name, statement.line)
        if mnemonic.startswith("wgmma.wait_group"):
            names = [
                found[0] for found in map(self._register, sorted(self.accumulators)) if found is not None
            ]
            text += " ".join(["", *(f"{name} = wgmma_settle(t, {name});" for name in names)])
        if statement.guard is None:
            return text
        negated, predicate = statement.guard
        return f"if ({'!' if negated else ''}{self.read('pred', predicate)}) {{ {text} }}"


def _accumulators(statements: list[Statement]) -> set[str]:
    """Registers that may hold a result of wgmma: its destinations, and where they are moved to."""
    out: set[str] = set()
    moves: list[tuple[str, str]] = []
    for one in statements:
        if one.kind != "instruction":
            continue
        if one.text.find("wgmma.mma_async") >= 0:
            out.update(elements(one.operands[0]))
        elif one.text.find("mov.") >= 0 and "{" not in one.text:
            moves.append((one.operands[0], one.operands[1]))
    if not out:
        return out
    while True:
        more = {to for to, source in moves if source in out} - out
        if not more:
            return out
        out |= more


def _signed(sign: str, digits: str) -> int:
    return int(digits, 0) * (-1 if sign == "-" else 1)


def _plain(name: str) -> str:
    """A PTX name as part of a C++ name."""
    return name.replace("%", "").replace("$", "S_").replace(".", "_")


def _storage(type: str) -> str:
    return "bool" if type == "pred" else f"u{8 * SIZES[type]}"


def _poison(type: str) -> str:
    """What a register holds before it is written: a NaN where it is read as a floating-point number."""
    return {"pred": "false", "b8": "0xbd", "b16": "0x7fbd"}.get(_same(type), f"poison_{_storage(type)}")


def _is_bits(type: str) -> bool:
    return type[0] in "bu" and type[1:].isdigit()


def _same(type: str) -> str:
    return type if type == "pred" else f"b{8 * SIZES[type]}"


def _typed(type: str, name: str, own: str) -> str:
    if type == own == "pred" or (_is_bits(type) and SIZES[type] == SIZES[own]):
        return name
    return f"as<{type}>({name})"


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
    kernel = _Kernel(module)
    functions: list[str] = []
    entry = module.functions[name]
    offsets = _layout(entry.parameters)
    writer = _FunctionWriter(kernel, entry)
    for parameter, offset in zip(entry.parameters, offsets, strict=True):
        writer.scopes[0][parameter.name] = f"(u64)(parameters + {offset})"
    main = f"static void run(Thread& t, const u8* parameters) {{\n{writer.body()}\n}}"
    for called in kernel.called:  # grows
        functions.append(_function(kernel, module.functions[called]))
    declared = [f"static Function f_{_plain(one)};" for one in kernel.called]
    return "\n".join(
        ['#include "semantics.h"', "using namespace emulated;"]
        + _shared_layout(kernel)[0] + declared + functions + [main] + _information(kernel, entry, offsets)
    )  # fmt: skip


def _function(kernel: _Kernel, function: Function) -> str:
    """C++ of a device function: its result and parameters are pointers to the caller's buffers."""
    if function.body is None:
        raise CannotEmulate(f"call of {function.name}", function.name)
    writer = _FunctionWriter(kernel, function)
    for number, parameter in enumerate([*function.results, *function.parameters]):
        writer.scopes[0][parameter.name] = f"(u64)arguments[{number}]"
    return f"static void f_{_plain(function.name)}(Thread& t, u8* const* arguments) {{\n{writer.body()}\n}}"


def _layout(parameters: list[Variable]) -> list[int]:
    """Offsets of a kernel's parameters, each aligned to its own alignment."""
    offsets, at = [], 0
    for one in parameters:
        at = -(-at // one.align) * one.align
        offsets.append(at)
        at += one.size
    return offsets


def _shared_layout(kernel: _Kernel) -> tuple[list[str], int, int]:
    """(offsets as C++ constants, bytes of static shared memory, alignment of the dynamic part)."""
    lines, at, align = [], 0, 16
    for name, one in kernel.shared.items():
        if one.external:
            align = max(align, one.align)
            continue
        at = -(-at // one.align) * one.align
        lines.append(f"constexpr u32 s_{_plain(name)} = {at};")
        at += one.size
    return lines, at, align


def _information(kernel: _Kernel, entry: Function, offsets: list[int]) -> list[str]:
    """C++ of the library's KernelInfo and its tables."""
    _, shared_bytes, align = _shared_layout(kernel)
    ends = [offset + one.size for offset, one in zip(offsets, entry.parameters, strict=True)]
    threads = entry.dimensions("reqntid") or entry.dimensions("maxntid") or (1024, 1, 1)
    cluster = entry.dimensions("reqnctapercluster") or (0, 0, 0)
    parameters = [f"{{{offset}, {one.size}}}" for offset, one in zip(offsets, entry.parameters, strict=True)]
    sites = [f"{{{_quoted(what)}, {_quoted(file)}, {row}}}" for what, file, row in kernel.sites]
    values, relocations, definitions = [], [], []
    for number, one in enumerate(kernel.globals):
        data, moved = _initial(kernel, one)
        if data.strip(b"\0"):
            definitions.append(f"static const u8 i_{number}[] = {{{', '.join(map(str, data))}}};")
        first = f"i_{number}, {len(data)}" if data.strip(b"\0") else "nullptr, 0"
        constant = str(one.space == "const").lower()
        values.append(f"{{{_quoted(one.name)}, {one.size}, {max(one.align, 1)}, {first}, {constant}}}")
        relocations += [f"{{{number}, {offset}, {target}, {addend}}}" for offset, target, addend in moved]
    tables = {
        "ParameterInfo": parameters,
        "SiteInfo": sites,
        "VariableInfo": values,
        "RelocationInfo": relocations,
    }
    lines = [
        f"static const {kind} {kind}_table[] = {{{', '.join(rows) or '{}'}}};"
        for kind, rows in tables.items()
    ]
    fields = {
        "abi": "ABI", "name": _quoted(entry.name), "entry": "run", "parameters": "ParameterInfo_table",
        "parameter_count": len(parameters), "parameter_bytes": max(ends, default=0),
        "shared_bytes": shared_bytes, "dynamic_align": align,
        "max_threads": threads[0] * threads[1] * threads[2],
        "cluster": "{" + ", ".join(map(str, cluster)) + "}", "local_bytes": kernel.local_bytes,
        "blocks_communicate": str(kernel.communicates).lower(), "sites": "SiteInfo_table",
        "site_count": len(sites), "variables": "VariableInfo_table", "variable_count": len(values),
        "relocations": "RelocationInfo_table", "relocation_count": len(relocations),
    }  # fmt: skip
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
