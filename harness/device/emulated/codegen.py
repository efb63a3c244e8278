"""Writes the C++ of one kernel and the functions that it calls: a library that exports one `KernelInfo`."""

from __future__ import annotations

import re
from math import prod

from harness.device.emulated.bodies import DECIMAL, INTEGER, FunctionWriter, Kernel, plain
from harness.device.emulated.ptx import SIZES, CannotEmulate, Function, Module, Variable, split


def translate(module: Module, name: str) -> str:
    """C++ source of a kernel's shared library. Raises CannotEmulate."""
    kernel, entry = Kernel(module), module.functions[name]
    offsets, _ = _layout(entry.parameters)
    addresses = {name: f"(u64)(parameters + {offset})" for name, offset in offsets.items()}
    body = FunctionWriter(kernel, entry, addresses).body()
    functions = [_function(kernel, module.functions[called]) for called in kernel.called]  # which grows
    shared, shared_bytes = _layout([one for one in kernel.shared.values() if not one.external])
    return "\n".join([
        '#include "semantics.h"',
        "using namespace emulated;",
        *(f"constexpr u32 s_{plain(name)} = {offset};" for name, offset in shared.items()),
        *(f"static Function f_{plain(one)};" for one in kernel.called),
        *functions,
        f"static void run(Thread& t, const u8* parameters) {{\n{body}\n}}",
        *_information(kernel, entry, shared_bytes),
    ])  # fmt: skip


def _function(kernel: Kernel, function: Function) -> str:
    """C++ of a device function: its result and parameters are pointers to the caller's buffers."""
    names = [one.name for one in [*function.results, *function.parameters]]
    writer = FunctionWriter(kernel, function, {n: f"(u64)arguments[{i}]" for i, n in enumerate(names)})
    return f"static void f_{plain(function.name)}(Thread& t, u8* const* arguments) {{\n{writer.body()}\n}}"


def _layout(variables: list[Variable]) -> tuple[dict[str, int], int]:
    """Where each variable begins, a multiple of its own alignment, and the bytes of all."""
    offsets, size = {}, 0
    for one in variables:
        offsets[one.name] = -(-size // one.align) * one.align
        size = offsets[one.name] + one.size
    return offsets, size


def _information(kernel: Kernel, entry: Function, shared_bytes: int) -> list[str]:
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
    offsets, parameter_bytes = _layout(entry.parameters)
    tables = {
        "parameter": [f"{{{offsets[one.name]}, {one.size}}}" for one in entry.parameters],
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
        "parameter_bytes": parameter_bytes,
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


def _initial(kernel: Kernel, variable: Variable) -> tuple[bytes, list[tuple[int, int, int]]]:
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
        elif INTEGER.match(value):
            data += (int(value.rstrip("U"), 0) % (1 << (8 * unit))).to_bytes(unit, "little")
        elif DECIMAL.match(value):
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
