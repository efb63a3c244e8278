"""Data movement and conversion (9.7.9): registers, memory, addresses, cvt."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import CACHE_HINT, Emitter, Slots, rows
from harness.device.emulated.ptx import SIZES, bits, elements

SCOPES = "cta cluster gpu sys"
_PARAMETERS = "param param::entry param::func"
_SHARED = "shared shared::cta shared::cluster"
SPACES = f"const global local {_PARAMETERS} {_SHARED}"
_CACHED = {
    "C": "ca cg cs lu cv wb wt",
    "E": "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
    "F": "L2::evict_normal L2::evict_first L2::evict_last",
    "H": CACHE_HINT,
    "P": "L2::64B L2::128B L2::256B",
    "V": "v2 v4 v8",
    "T": "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
}
"""Hints (C to P: 9.7.9.1, 9.7.9.2) change nothing that a program computes."""


def _move_vector(emitter: Emitter, slots: Slots, operands: list[str]) -> str:
    """Packs or unpacks the elements of a vector (9.7.9.4)."""
    to, source = operands
    packs = source.startswith("{")
    parts = elements(source if packs else to)
    whole, width = bits(slots["T"]), 8 * SIZES[slots["T"]] // len(parts)
    if packs:
        values = [f"({whole}){emitter.read(f'b{width}', one)} << {width * i}" for i, one in enumerate(parts)]
        return emitter.write(whole, to, " | ".join(values))
    cuts = ((one, f"(b{width})(whole >> {width * i})") for i, one in enumerate(parts) if one != "_")
    writes = [emitter.write(f"b{width}", one, cut) for one, cut in cuts]
    return f"{{ {whole} whole = {emitter.read(whole, source)}; {' '.join(writes)} }}"


_MEMORY = rows(
    """
9.7.9.8 ld.R.V?.T | d{V}:iT [a:R] | parameter_load(d, {a})
9.7.9.8 ld.weak?.S?.C?.E?.F?.H?.P?.V?.T | d{V}:iT [a] | load(t, d, {a}, {space}, {site})
9.7.9.8 ld.mmio?.O.G?.S?.C?.E?.F?.H?.P?.V?.T | d{V}:iT [a] | load_ordered(t, d, {a}, {space}, {site})
9.7.9.11 st.R.V?.T | [a:R] c{V}:bT | parameter_store(c, {a})
9.7.9.11 st.weak?.S?.C?.E?.F?.H?.V?.T | [a] c{V}:bT | store(t, c, {a}, {space}, {site})
9.7.9.11 st.mmio?.O.G?.S?.C?.E?.F?.H?.V?.T | [a] c{V}:bT | store_ordered(t, c, {a}, {space}, {site})
""",
    _CACHED | {"O": "volatile relaxed acquire release", "G": SCOPES, "S": SPACES, "R": _PARAMETERS},
)
_GLOBAL = rows(
    """
9.7.9.9 ld.S.C?.nc.E?.F?.H?.P?.V?.T | d{V}:iT [a] | load(t, d, {a}, {space}, {site})
9.7.9.10 ldu.S?.V?.T | d{V}:iT [a] | load(t, d, {a}, {space}, {site})
9.7.9.15 prefetch.Q?.L | [a] | (void)0
9.7.9.15 prefetch.Q?.tensormap | [a] | (void)0
9.7.9.15 prefetchu.L1 | [a] | (void)0
9.7.9.16 applypriority.S?.L2::evict_normal | [a] b:u32 | (void)0
9.7.9.17 discard.S?.L2 | [a] b:u32 | (void)0
9.7.9.18 createpolicy.fractional.X.Y?.b64 | d:b64 a:f32?0 | 0
""",
    _CACHED
    | {
        "S": "global",
        "Q": "global local const param",
        "L": "L1 L2 L2::evict_last L2::evict_normal",
        "X": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
        "Y": "L2::evict_unchanged L2::evict_first",
    },
)
_REGISTERS = rows(
    """
9.7.9.3 mov.T | d:bT a:bT | {a}
9.7.9.4 mov.T | - | @_move_vector
9.7.9.7 prmt.b32 | d:b32 a:b32 b:b32 c:b32 | permuted({a}, {b}, {c})
9.7.9.7 prmt.b32.M | d:b32 a:b32 b:b32 c:b32 | permuted({a}, {b}, {c}, Permute::{M})
9.7.9.19 isspacep.S | d:pred a:u64 | in_space(t, {a}, {space})
9.7.9.20 cvta.A.U | d:U a:U | generic_from_shared(t, {a})
9.7.9.20 cvta.to.A.U | d:U a:U | shared_from_generic(t, {a})
9.7.9.20 cvta.to?.B.U | d:U a:U | {a}
9.7.9.23 mapa.shared::cluster.U | d:U a:U b:u32 | map_shared(t, {a}, {b}, {site})
9.7.9.23 mapa.u64 | d:u64 a:u64 b:u32 | map_generic(t, {a}, {b}, {site})
9.7.9.24 getctarank.shared::cluster.U | d:u32 a:U | shared_rank({a})
9.7.9.24 getctarank.u64 | d:u32 a:u64 | shared_rank(shared_from_generic(t, {a}))
""",
    {
        "T": "pred b16 b32 b64 b128 u16 u32 u64 s16 s32 s64 f32 f64",
        "M": "f4e b4e rc8 ecl ecr rc16",
        "S": SPACES,
        "A": _SHARED,
        "B": f"const global local {_PARAMETERS}",
        "U": "u32 u64",
    },
    _move_vector,
)
MOVEMENT = [*_MEMORY, *_GLOBAL, *_REGISTERS]

_REALS = "f16 bf16 f32 f64"
CONVERSION = rows(
    """
9.7.9.21 cvt.I.ftz?.sat?.T.F | d:T a:F | converted<{T}, {F}, r_rn, Integral::{I}, {ftz}, {sat}>({a})
9.7.9.21 cvt.R?.ftz?.sat?.T.A | d:T a:A | converted<{T}, {A}, r_{R}, Integral::none, {ftz}, {sat}>({a})
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
    {
        "I": "rni rzi rmi rpi",
        "R": "rn rz rm rp",
        "T": f"u8 s8 u16 s16 u32 s32 u64 s64 {_REALS}",
        "A": f"u8 s8 u16 s16 u32 s32 u64 s64 {_REALS}",
        "F": _REALS,
        "N": "rn rz",
        "M": "rn rna rz",
        "H": "f16 bf16",
        "X": "f16x2 bf16x2",
        "E": "e4m3x2 e5m2x2",
        "W": "u16 s16",
        "B": "u8 s8",
    },
)
