"""Data movement and conversion (9.7.9): registers, memory, addresses, cvt."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import Emitter, Row, Slots, elements
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


def space_of(slots: Slots) -> str:
    """The C++ name of the state space that `S` says."""
    word = slots.get("S", "").split("::")[0]
    return {"": "Generic", "param": "Const"}.get(word, word.capitalize())


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
    """cvta: between a generic address and one of a space's window. Only shared memory has a window of its own."""
    value = emitter.read(slots["T"], operands[1])
    if slots["S"].startswith("shared"):
        value = (
            f"shared_from_generic(t, {value})"
            if slots["to"] == "true"
            else f"generic_from_shared(t, {value})"
        )
    return emitter.write(slots["T"], operands[0], value)


def _is_in_space(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    check = f"in_space(t, {emitter.read('u64', operands[1])}, Space::{space_of(slots)})"
    return emitter.write("pred", operands[0], check)


MOVEMENT = [
    Row("9.7.9.3", "mov.T", "d:T a:T", _move, T=_MOVED),
    Row("9.7.9.7", "prmt.b32", "d:b32 a:b32 b:b32 c:b32", "permuted({a}, {b}, {c})"),
    Row(
        "9.7.9.7",
        "prmt.b32.M",
        "d:b32 a:b32 b:b32 c:b32",
        "permuted({a}, {b}, {c}, Permute::{M})",
        M="f4e b4e rc8 ecl ecr rc16",
    ),
    Row("9.7.9.8", "ld.mmio?.O?.G?.S?.C?.E?.F?.H?.P?.V?.T", "", _load, **_CACHED, **_ORDER),
    Row("9.7.9.9", "ld.S.C?.nc.E?.F?.H?.P?.V?.T", "", _load, **_CACHED, S="global"),
    Row("9.7.9.10", "ldu.S?.V?.T", "", _load, S="global", V="v2 v4", T=_TYPES),
    Row("9.7.9.11", "st.mmio?.O?.G?.S?.C?.E?.F?.H?.V?.T", "", _store, **_CACHED, **_ORDER),
    Row(
        "9.7.9.15",
        "prefetch.S?.L",
        "[a]",
        "(void)0",
        S="global local",
        L="L1 L2 L2::evict_last L2::evict_normal",
    ),
    Row("9.7.9.15", "prefetch.S?.tensormap", "[a]", "(void)0", S="const param"),
    Row("9.7.9.15", "prefetchu.L1", "[a]", "(void)0"),
    Row("9.7.9.16", "applypriority.S?.L2::evict_normal", "[a] b:u32", "(void)0", S="global"),
    Row("9.7.9.17", "discard.S?.L2", "[a] b:u32", "(void)0", S="global"),
    Row(
        "9.7.9.18",
        "createpolicy.fractional.L.M?.b64",
        "d:b64 a:f32?0",
        "0",
        L="L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
        M="L2::evict_unchanged L2::evict_first",
    ),
    Row("9.7.9.19", "isspacep.S", "", _is_in_space, S=SPACES),
    Row("9.7.9.20", "cvta.to?.S.T", "d:T a:T", _address_space, S=SPACES, T="u32 u64"),
    Row(
        "9.7.9.23",
        "mapa.S.T",
        "d:T a:T b:u32",
        "map_shared(t, {a}, {b}, {site})",
        S="shared::cluster",
        T="u32 u64",
    ),
    Row("9.7.9.23", "mapa.T", "d:T a:T b:u32", "map_generic(t, {a}, {b}, {site})", T="u64"),
    Row("9.7.9.24", "getctarank.S.T", "d:u32 a:T", "shared_rank({a})", S="shared::cluster", T="u32 u64"),
    Row("9.7.9.24", "getctarank.T", "d:u32 a:T", "shared_rank(shared_from_generic(t, {a}))", T="u64"),
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


_F16, _F8 = "f16 bf16", "e4m3x2 e5m2x2"

CONVERSION = [
    Row(
        "9.7.9.21",
        "cvt.R?.ftz?.sat?.T.A",
        "",
        _convert,
        R=f"{_TO_INTEGRAL} {_ROUNDED}",
        T=f"{_INTEGERS} {_REALS}",
        A=f"{_INTEGERS} {_REALS}",
    ),
    Row(
        "9.7.9.21",
        "cvt.R.relu?.satfinite?.T.f32",
        "d:T a:f32",
        "relu<{relu}>(narrowed<{T}, r_{R}, {satfinite}>({a}))",
        R="rn rz",
        T=_F16,
    ),
    Row(
        "9.7.9.21",
        "cvt.R.relu?.satfinite?.T.f32",
        "d:T a:f32 b:f32",
        "relu<{relu}>({T}{{narrowed<decltype({T}::low), r_{R}, {satfinite}>({b}), narrowed<decltype({T}::low), r_{R}, {satfinite}>({a})}})",
        R="rn rz",
        T="f16x2 bf16x2",
    ),
    Row(
        "9.7.9.21",
        "cvt.R.satfinite?.relu?.tf32.f32",
        "d:b32 a:f32",
        "encode(TF32, relu<{relu}>({a}), r_{R}, {satfinite}) << 13",
        R="rn rna rz",
    ),
    Row(
        "9.7.9.21",
        "cvt.rn.satfinite.relu?.T.f32",
        "d:b16 a:f32 b:f32",
        "encode_pair<{relu}>({T}_format, {b}, {a})",
        T=_F8,
    ),
    Row(
        "9.7.9.21",
        "cvt.rn.satfinite.relu?.T.A",
        "d:b16 a:A",
        "encode_pair<{relu}>({T}_format, {a}.low, {a}.high)",
        T=_F8,
        A="f16x2 bf16x2",
    ),
    Row(
        "9.7.9.21",
        "cvt.rn.relu?.f16x2.A",
        "d:f16x2 a:b16",
        "relu<{relu}>(decode_pair({A}_format, {a}))",
        A=_F8,
    ),
    Row(
        "9.7.9.22",
        "cvt.pack.sat.T.s32",
        "d:b32 a:s32 b:s32",
        "(u16)clamped<{T}>({b}) | (u32)(u16)clamped<{T}>({a}) << 16",
        T="u16 s16",
    ),
    Row(
        "9.7.9.22",
        "cvt.pack.sat.T.s32.b32",
        "d:b32 a:s32 b:s32 c:b32",
        "{c} << 16 | (u32)(u8)clamped<{T}>({a}) << 8 | (u8)clamped<{T}>({b})",
        T="u8 s8",
    ),
]
