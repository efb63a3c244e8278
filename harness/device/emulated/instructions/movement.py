"""Data movement and conversion (9.7.9): registers, memory, addresses, cvt."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import Emitter, Slots, elements, rows, space_of
from harness.device.emulated.ptx import SIZES

SPACES = "const global local param param::entry param::func shared shared::cta shared::cluster"
_TYPES = "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"
_MOVED = "pred b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64"
_CACHED = {
    "C": "ca cg cs lu cv wb wt",
    "E": "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
    "F": "L2::evict_normal L2::evict_first L2::evict_last",
    "H": "L2::cache_hint",
    "P": "L2::64B L2::128B L2::256B",
    "V": "v2 v4 v8",
    "T": _TYPES,
}
"""Hints and widths of loads and stores. Hints (9.7.9.1, 9.7.9.2) change nothing that a program computes."""
_ORDER = {"O": "weak volatile relaxed acquire release", "G": "cta cluster gpu sys", "S": SPACES}


def _access(emitter: Emitter, slots: Slots, operands: list[str], what: str) -> str:
    address = emitter.address(operands[0 if what == "store" else 1], slots.get("S", ""))
    ordered = slots.get("O", "") not in ("", "weak")
    how = f"{what}_ordered" if ordered else "parameter" if slots.get("S", "").startswith("param") else what
    if how == "parameter":
        return f"{how}_{what}(v, {address})"
    return f"{how}(t, v, {address}, Space::{space_of(slots)}, {emitter.site()})"


def _load(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """`ld.v2.u32 {a, b}, [c]`: one checked access of the whole vector."""
    into, type = elements(operands[0]), slots["T"]
    moved = type if type[0] == "s" else f"b{8 * SIZES[type]}"
    if len(into) != int((slots["V"] or "v1")[1:]):
        raise ValueError("number of registers")
    writes = " ".join(emitter.write(moved, one, f"v[{i}]") for i, one in enumerate(into) if one != "_")
    return f"{{ {moved} v[{len(into)}]; {_access(emitter, slots, operands, 'load')}; {writes} }}"


def _store(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    moved = f"b{8 * SIZES[slots['T']]}"
    values = ", ".join(emitter.read(moved, one) for one in elements(operands[1]))
    return f"{{ {moved} v[] = {{{values}}}; {_access(emitter, slots, operands, 'store')}; }}"


def _move(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """Copies a register, a constant or an address (9.7.9.3); packs or unpacks a vector (9.7.9.4)."""
    type, (to, source) = slots["T"], operands
    bits = type if type == "pred" else f"b{8 * SIZES[type]}"
    many = to if to.startswith("{") else source
    count = len(elements(many))
    part = f"b{8 * SIZES[type] // count}"
    if to.startswith("{"):
        width = 8 * SIZES[part]
        writes = [
            emitter.write(part, one, f"({part})(whole >> {i * width})")
            for i, one in enumerate(elements(to))
            if one != "_"
        ]
        return f"{{ {bits} whole = {emitter.read(bits, source)}; {' '.join(writes)} }}"
    if source.startswith("{"):
        parts = (
            f"({bits}){emitter.read(part, one)} << {8 * SIZES[part] * i}"
            for i, one in enumerate(elements(source))
        )
        return emitter.write(bits, to, " | ".join(parts))
    return emitter.write(bits, to, emitter.read(bits, source))


def _address_space(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """cvta: between generic addresses and those of a space. Only shared memory has a window of its own."""
    value = emitter.read(slots["U"], operands[1])
    if slots["S"].startswith("shared"):
        value = (
            f"shared_from_generic(t, {value})"
            if slots["to"] == "true"
            else f"generic_from_shared(t, {value})"
        )
    return emitter.write(slots["U"], operands[0], value)


def _is_in_space(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    check = f"in_space(t, {emitter.read('u64', operands[1])}, Space::{space_of(slots)})"
    return emitter.write("pred", operands[0], check)


_NOTHING = {
    "P": "L1 L2 L2::evict_last L2::evict_normal",
    "E": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
    "F": "L2::evict_unchanged L2::evict_first",
    "S": "global local const param",
}

MOVEMENT = [
    *rows("9.7.9.8 ld.mmio?.O?.G?.S?.C?.E?.F?.H?.P?.V?.T | - | @_load", _CACHED | _ORDER, _load),
    *rows("9.7.9.9 ld.S.C?.nc.E?.F?.H?.P?.V?.T | - | @_load", _CACHED | {"S": "global"}, _load),
    *rows("9.7.9.10 ldu.S?.V?.T | - | @_load", _CACHED | {"S": "global"}, _load),
    *rows("9.7.9.11 st.mmio?.O?.G?.S?.C?.E?.F?.H?.V?.T | - | @_store", _CACHED | _ORDER, _store),
    *rows(
        """
9.7.9.15 prefetch.S?.P | [a] | (void)0
9.7.9.15 prefetch.S?.tensormap | [a] | (void)0
9.7.9.15 prefetchu.L1 | [a] | (void)0
9.7.9.16 applypriority.S?.L2::evict_normal | [a] b:u32 | (void)0
9.7.9.17 discard.S?.L2 | [a] b:u32 | (void)0
9.7.9.18 createpolicy.fractional.E.F?.b64 | d:b64 a:f32?0 | 0
""",
        _NOTHING,
    ),
    *rows(
        """
9.7.9.3 mov.T | - | @_move
9.7.9.7 prmt.b32 | d:b32 a:b32 b:b32 c:b32 | permuted({a}, {b}, {c})
9.7.9.7 prmt.b32.M | d:b32 a:b32 b:b32 c:b32 | permuted({a}, {b}, {c}, Permute::{M})
9.7.9.19 isspacep.S | - | @_is_in_space
9.7.9.20 cvta.to?.S.U | - | @_address_space
9.7.9.23 mapa.shared::cluster.U | d:U a:U b:u32 | map_shared(t, {a}, {b}, {site})
9.7.9.23 mapa.u64 | d:u64 a:u64 b:u32 | map_generic(t, {a}, {b}, {site})
9.7.9.24 getctarank.shared::cluster.U | d:u32 a:U | shared_rank({a})
9.7.9.24 getctarank.u64 | d:u32 a:u64 | shared_rank(shared_from_generic(t, {a}))
""",
        {"T": _MOVED, "M": "f4e b4e rc8 ecl ecr rc16", "S": SPACES, "U": "u32 u64"},
        _move,
        _is_in_space,
        _address_space,
    ),
]

_INTEGERS = "u8 s8 u16 s16 u32 s32 u64 s64"
_REALS = "f16 bf16 f32 f64"
_TO_INTEGRAL, _ROUNDED = "rni rzi rmi rpi", "rn rz rm rp"


def _convert(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """cvt between plain numbers, exact in every rounding mode."""
    from_type, to_type, mode = slots["A"], slots["T"], slots["R"]
    if from_type in _REALS.split() and to_type not in _REALS.split():
        mode = mode or "rzi"
    integral = mode if mode.endswith("i") else "none"
    rounding = "rn" if mode.endswith("i") else mode
    arguments = f"{to_type}, {from_type}, r_{rounding}, Integral::{integral}, {slots['ftz']}, {slots['sat']}"
    return emitter.write(
        to_type, operands[0], f"converted<{arguments}>({emitter.read(from_type, operands[1])})"
    )


_CONVERTED = {
    "R": f"{_TO_INTEGRAL} {_ROUNDED}",
    "T": f"{_INTEGERS} {_REALS}",
    "A": f"{_INTEGERS} {_REALS}",
    "N": "rn rz",
    "M": "rn rna rz",
    "H": "f16 bf16",
    "X": "f16x2 bf16x2",
    "E": "e4m3x2 e5m2x2",
    "W": "u16 s16",
    "B": "u8 s8",
}

CONVERSION = rows(
    """
9.7.9.21 cvt.R?.ftz?.sat?.T.A | - | @_convert
9.7.9.21 cvt.N.relu?.satfinite?.H.f32 | d:H a:f32 | relu<{relu}>(narrowed<{H}, r_{N}, {satfinite}>({a}))
9.7.9.21 cvt.N.relu?.satfinite?.X.f32 | d:X a:f32 b:f32 |
 relu<{relu}>(pair<{X}, r_{N}, {satfinite}>({b}, {a}))
9.7.9.21 cvt.M.satfinite?.relu?.tf32.f32 | d:b32 a:f32 |
 encode(TF32, relu<{relu}>({a}), r_{M}, {satfinite}) << 13
9.7.9.21 cvt.rn.satfinite.relu?.E.f32 | d:b16 a:f32 b:f32 | encode_pair<{relu}>({E}_format, {b}, {a})
9.7.9.21 cvt.rn.satfinite.relu?.E.X | d:b16 a:X | encode_pair<{relu}>({E}_format, {a}.low, {a}.high)
9.7.9.21 cvt.rn.relu?.f16x2.E | d:f16x2 a:b16 | relu<{relu}>(decode_pair({E}_format, {a}))
9.7.9.22 cvt.pack.sat.W.s32 | d:b32 a:s32 b:s32 | (u16)clamped<{W}>({b}) | (u32)(u16)clamped<{W}>({a}) << 16
9.7.9.22 cvt.pack.sat.B.s32.b32 | d:b32 a:s32 b:s32 c:b32 |
 {c} << 16 | (u32)(u8)clamped<{B}>({a}) << 8 | (u8)clamped<{B}>({b})
""",
    _CONVERTED,
    _convert,
)
