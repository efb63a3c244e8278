"""Matrices of a warp (9.7.14: ldmatrix, stmatrix, movmatrix, mma) and of a warp group (9.7.15: wgmma)."""

from __future__ import annotations

import re

from harness.device.emulated.instructions.rows import Emitter, Row, Slots, elements, rows, space_of

_BITS = {
    "f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4,
}  # fmt: skip


def _load_matrix(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    into, count = elements(operands[0]), int(slots["N"][1])
    if len(into) != count:
        return None
    writes = " ".join(emitter.write("b32", one, f"v[{i}]") for i, one in enumerate(into))
    space = "Shared" if slots["S"] else "Generic"
    arguments = f"t, v, {emitter.address(operands[1], slots['S'])}, Space::{space}, {emitter.site()}"
    return f"{{ b32 v[{count}]; load_matrix<{count}, {slots['trans']}>({arguments}); {writes} }}"


def _store_matrix(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    source, count = elements(operands[1]), int(slots["N"][1])
    if len(source) != count:
        return None
    values = ", ".join(emitter.read("b32", one) for one in source)
    space = "Shared" if slots["S"] else "Generic"
    arguments = f"t, v, {emitter.address(operands[0], slots['S'])}, Space::{space}, {emitter.site()}"
    return f"{{ b32 v[] = {{{values}}}; store_matrix<{count}, {slots['trans']}>({arguments}); }}"


def _multiply(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """mma d, a, b, c: all shapes of m8 and m16 whose fragments follow the common pattern of 9.7.14.5."""
    d, a, b, c = (elements(one) for one in operands)
    m, n, k = (int(one) for one in re.findall(r"\d+", slots["M"]))
    bits, result = _BITS[slots["A"]], slots["D"]
    whole, word = ("b64", 64) if bits == 64 else ("b32", 32)
    kept = word if result == "f16" else word // (64 // bits if bits == 64 else 1)
    per_lane = m * n // 32 // (2 if result == "f16" else 1)
    if (len(a), len(b), len(c), len(d)) != (
        m * k * bits // 32 // word,
        n * k * bits // 32 // word,
        per_lane,
        per_lane,
    ) or not kept:
        return None
    read = {
        name: ", ".join(emitter.read(whole, one) for one in regs)
        for name, regs in (("a", a), ("b", b), ("c", c))
    }
    writes = " ".join(emitter.write(whole, one, f"c[{i}]") for i, one in enumerate(d))
    types = f"{m}, {k}, Element::{slots['A']}, Element::{slots['B']}, Element::{result}, {slots['satfinite']}"
    body = f"{whole} a[] = {{{read['a']}}}, b[] = {{{read['b']}}}, c[] = {{{read['c']}}};"
    return f"{{ {body} multiply_matrices<{types}>(t, a, b, c, {emitter.site()}); {writes} }}"


def _fragment(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """wmma.load d, [a]{, stride} and wmma.store [a], d{, stride}"""
    stores = slots["W"] == "d"
    (address, registers), stride = (operands[:2] if stores else operands[1::-1]), operands[2:]
    m, n, k = re.findall(r"\d+", slots["M"])
    rows_, columns = {"a": (m, k), "b": (k, n)}.get(slots["W"], (m, n))
    held = elements(registers)
    words = ", ".join(emitter.read("b32", one) for one in held) if stores else ""
    length = emitter.read("u32", stride[0]) if stride else columns if slots["L"] == "row" else rows_
    parts = [f"Element::{slots['T']}", rows_, columns, str(slots["L"] == "row").lower(), str(stores).lower()]
    place = f"{emitter.address(address, slots['S'])}, {length}, Space::{space_of(slots)}, {emitter.site()}"
    writes = "" if stores else " ".join(emitter.write("b32", one, f"v[{i}]") for i, one in enumerate(held))
    return (
        f"{{ b32 v[{len(held)}] = {{{words}}}; move_fragment<{', '.join(parts)}>(t, v, {place}); {writes} }}"
    )


def _multiply_fragments(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """wmma.mma d, a, b, c"""
    d, *given = (elements(one) for one in operands)
    values = (", ".join(emitter.read("b32", one) for one in regs) for regs in given)
    arrays = ", ".join(f"{name}[] = {{{value}}}" for name, value in zip("abc", values, strict=True))
    a = slots.get("A", "f16")
    kinds = ", ".join(f"Element::{one}" for one in (a, slots.get("B", a), slots["C"], slots["D"]))
    types = f"{', '.join(re.findall(r'[0-9]+', slots['M']))}, {kinds}, {slots['satfinite']}"
    call = f"multiply_fragments<{types}>(t, a, b, c, d, {emitter.site()});"
    writes = " ".join(emitter.write("b32", one, f"d[{i}]") for i, one in enumerate(d))
    return f"{{ b32 {arrays}, d[{len(d)}] = {{}}; {call} {writes} }}"


_FLOAT8 = "e4m3 e5m2"
_FRAGMENTS = {
    "M": "m16n16k16 m32n8k16 m8n32k16 m16n16k8",
    "L": "row col",
    "R": "row col",
    "S": "global shared shared::cta",
    "T": "f16 bf16 tf32 s8 u8 f32 s32",
    "A": "bf16 tf32 s8 u8",
    "B": "bf16 tf32 s8 u8",
    "C": "f16 f32 s32",
    "D": "f16 f32 s32",
}
_WMMA = """
9.7.14.4.3 wmma.load.W.sync.aligned.L.M.S?.T | - | @_fragment
9.7.14.4.4 wmma.store.W.sync.aligned.L.M.S?.T | - | @_fragment
9.7.14.4.5 wmma.mma.sync.aligned.L.R.M.D.C.satfinite? | - | @_multiply_fragments
9.7.14.4.5 wmma.mma.sync.aligned.L.R.M.D.A.B.C.satfinite? | - | @_multiply_fragments
"""


def _multiply_row(shapes: str, d: str, a: str) -> Row:
    words = {"M": shapes, "D": d, "A": a, "B": a, "C": d}
    return Row("9.7.14.5.14", "mma.sync.aligned.M.row.col.satfinite?.D.A.B.C", "", _multiply, words)


WARP_MATRIX = [
    *rows(
        """
9.7.14.5.15 ldmatrix.sync.aligned.m8n8.N.trans?.S?.b16 | - | @_load_matrix
9.7.14.5.16 stmatrix.sync.aligned.m8n8.N.trans?.S?.b16 | - | @_store_matrix
9.7.14.5.17 movmatrix.sync.aligned.m8n8.trans.b16 | d:b32 a:b32 | transposed_matrix(t, {a}, {site})
""",
        {"N": "x1 x2 x4", "S": "shared shared::cta"},
        _load_matrix,
        _store_matrix,
    ),
    *rows(_WMMA, _FRAGMENTS | {"W": "a b c d"}, _fragment, _multiply_fragments),
    _multiply_row("m16n8k8 m16n8k16", "f16 f32", "f16"),
    _multiply_row("m16n8k8 m16n8k16", "f32", "bf16"),
    _multiply_row("m16n8k4 m16n8k8", "f32", "tf32"),
    _multiply_row("m16n8k16 m16n8k32", "f16 f32", _FLOAT8),
    _multiply_row("m8n8k4 m16n8k4 m16n8k8", "f64", "f64"),
    _multiply_row("m8n8k16 m16n8k16 m16n8k32", "s32", "s8 u8"),
    _multiply_row("m8n8k32 m16n8k32 m16n8k64", "s32", "s4 u4"),
]


def _group_multiply(emitter: Emitter, slots: Slots, operands: list[str]) -> str | None:
    """wgmma.mma_async d, a, b, scale-d{, scale-a, scale-b{, transpose-a}{, transpose-b}}"""
    d, (a, b, accumulate, *flags) = elements(operands[0]), operands[1:]
    n, k = (int(one) for one in re.findall(r"n(\d+)k(\d+)", slots["M"])[0])
    result, in_registers = slots["D"], a.startswith("{")
    if len(d) != n // (4 if result == "f16" else 2) or k * _BITS[slots["A"]] != 256:
        return None
    given = [emitter.read("s32", one) for one in flags]
    negated = [f"{one} < 0" for one in given[:2]] + ["false"] * (2 - len(given[:2]))
    moved = given[2:]
    transposed = [f"{one} != 0" for one in (["0", *moved] if in_registers and moved else moved)] or [
        "false",
        "false",
    ]
    shape = [
        "64", str(n), str(k), *(f"Type::{slots[one].upper()}" for one in "DAB"), *transposed, *negated,
        str(in_registers).lower(), slots.get("satfinite", "false"),
    ]  # fmt: skip
    values = ", ".join(emitter.read("b32", one) for one in d)
    registers = ", ".join(emitter.read("b32", one) for one in elements(a)) if in_registers else "0"
    writes = " ".join(emitter.write("b32", one, f"d[{i}]") for i, one in enumerate(d))
    descriptors = f"{'0' if in_registers else emitter.read('u64', a)}, {emitter.read('u64', b)}"
    more = f"{emitter.read('pred', accumulate)}, {emitter.site()}"
    call = f"wgmma_issue(t, Wgmma{{{', '.join(shape)}}}, d, {len(d)}, a, {descriptors}, {more})"
    return f"{{ b32 d[] = {{{values}}}, a[] = {{{registers}}}; {call}; {writes} }}"


def _group_row(k: int, d: str, a: str) -> Row:
    shapes = " ".join(f"m64n{n}k{k}" for n in range(8, 257, 8))
    words = {"M": shapes, "D": d, "A": a, "B": a}
    return Row("9.7.15.5.2", "wgmma.mma_async.sync.aligned.M.satfinite?.D.A.B", "", _group_multiply, words)


GROUP_MATRIX = [
    _group_row(16, "f16 f32", "f16"),
    _group_row(16, "f32", "bf16"),
    _group_row(8, "f32", "tf32"),
    _group_row(32, "f16 f32", _FLOAT8),
    _group_row(32, "s32", "s8 u8"),
    *rows(
        """
9.7.15.7.1 wgmma.fence.sync.aligned | - | wgmma_fence(t, {site})
9.7.15.7.2 wgmma.commit_group.sync.aligned | - | wgmma_commit(t, {site})
9.7.15.7.3 wgmma.wait_group.sync.aligned | a:u32 | wgmma_wait(t, {a}, {site})
"""
    ),
]
