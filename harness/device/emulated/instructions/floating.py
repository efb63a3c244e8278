"""Floating point: f32, f64 (9.7.3), f16, bf16 and pairs (9.7.4), comparison and selection (9.7.6, 9.7.7).

Basic operations are exact to the bit in every rounding mode. Approximate ones return the correctly rounded value or
nearly so; hardware differs from it within the error bounds of the manual.
"""

from __future__ import annotations

from harness.device.emulated.instructions.rows import Row

_MODES = "rn rz rm rp"
_BASIC = "f32 f64 f16 f16x2 bf16 bf16x2 f32x2"
_HALF = "f16 f16x2 bf16 bf16x2"
_INT = "b16 b32 b64 u16 s16 u32 s32 u64 s64"
_REAL = "f32 f64 f16 bf16"
_RELATIONS = "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan"
_CLASSES = "finite infinite number notanumber normal subnormal"

FLOATING = [
    Row("9.7.3.1", "testp.M.T", "d:pred a:T", "is_class({a}, Class::{M})", M=_CLASSES, T="f32 f64"),
    Row("9.7.3.2", "copysign.T", "d:T a:T b:T", "std::copysign({b}, {a})", T="f32 f64"),
    Row(
        "9.7.3.3",
        "add.R?.ftz?.sat?.T",
        "d:T a:T b:T",
        "add<r_{R}, {ftz}, {sat}>({a}, {b})",
        R=_MODES,
        T=_BASIC,
    ),
    Row(
        "9.7.3.4",
        "sub.R?.ftz?.sat?.T",
        "d:T a:T b:T",
        "subtract<r_{R}, {ftz}, {sat}>({a}, {b})",
        R=_MODES,
        T=_BASIC,
    ),
    Row(
        "9.7.3.5",
        "mul.R?.ftz?.sat?.T",
        "d:T a:T b:T",
        "multiply<r_{R}, {ftz}, {sat}>({a}, {b})",
        R=_MODES,
        T=_BASIC,
    ),
    Row(
        "9.7.3.6",
        "fma.R.ftz?.sat?.relu?.T",
        "d:T a:T b:T c:T",
        "relu<{relu}>(fused<r_{R}, {ftz}, {sat}>({a}, {b}, {c}))",
        R=_MODES,
        T=_BASIC,
    ),
    Row(
        "9.7.3.7",
        "mad.R.ftz?.sat?.T",
        "d:T a:T b:T c:T",
        "fused<r_{R}, {ftz}, {sat}>({a}, {b}, {c})",
        R=_MODES,
        T="f32 f64",
    ),
    Row(
        "9.7.3.8",
        "div.M.ftz?.f32",
        "d:f32 a:f32 b:f32",
        "divide_approximate<{ftz}>({a}, {b}, Divide::{M})",
        M="approx full",
    ),
    Row("9.7.3.8", "div.R.ftz?.T", "d:T a:T b:T", "divide<r_{R}, {ftz}>({a}, {b})", R=_MODES, T="f32 f64"),
    Row("9.7.3.9", "abs.ftz?.T", "d:T a:T", "magnitude<{ftz}>({a})", T=_BASIC),
    Row("9.7.3.10", "neg.ftz?.T", "d:T a:T", "negated<{ftz}>({a})", T=_BASIC),
    Row("9.7.3.11", "min.ftz?.NaN?.T", "d:T a:T b:T", "minimum<{ftz}, {NaN}, false>({a}, {b})", T=_BASIC),
    Row(
        "9.7.3.11",
        "min.ftz?.NaN?.xorsign.abs.T",
        "d:T a:T b:T",
        "minimum<{ftz}, {NaN}, true>({a}, {b})",
        T=_BASIC,
    ),
    Row("9.7.3.12", "max.ftz?.NaN?.T", "d:T a:T b:T", "maximum<{ftz}, {NaN}, false>({a}, {b})", T=_BASIC),
    Row(
        "9.7.3.12",
        "max.ftz?.NaN?.xorsign.abs.T",
        "d:T a:T b:T",
        "maximum<{ftz}, {NaN}, true>({a}, {b})",
        T=_BASIC,
    ),
    Row("9.7.3.13", "rcp.approx.ftz?.f32", "d:f32 a:f32", "divide<r_rn, {ftz}>(1.0f, {a})"),
    Row("9.7.3.13", "rcp.R.ftz?.f32", "d:f32 a:f32", "divide<r_{R}, {ftz}>(1.0f, {a})", R=_MODES),
    Row("9.7.3.13", "rcp.R.f64", "d:f64 a:f64", "divide<r_{R}, false>(1.0, {a})", R=_MODES),
    Row("9.7.3.14", "rcp.approx.ftz.f64", "d:f64 a:f64", "upper_word(1.0 / upper_word({a}))"),
    Row("9.7.3.15", "sqrt.approx.ftz?.f32", "d:f32 a:f32", "root<r_rn, {ftz}>({a})"),
    Row("9.7.3.15", "sqrt.R.ftz?.T", "d:T a:T", "root<r_{R}, {ftz}>({a})", R=_MODES, T="f32 f64"),
    Row("9.7.3.16", "rsqrt.approx.ftz?.T", "d:T a:T", "reciprocal_root<{ftz}>({a})", T="f32 f64"),
    Row("9.7.3.17", "rsqrt.approx.ftz.f64", "d:f64 a:f64", "upper_word(1.0 / std::sqrt(upper_word({a})))"),
    Row("9.7.3.18", "sin.approx.ftz?.f32", "d:f32 a:f32", "flush<{ftz}>(std::sin(flush<{ftz}>({a})))"),
    Row("9.7.3.19", "cos.approx.ftz?.f32", "d:f32 a:f32", "flush<{ftz}>(std::cos(flush<{ftz}>({a})))"),
    Row("9.7.3.20", "lg2.approx.ftz?.f32", "d:f32 a:f32", "flush<{ftz}>(std::log2(flush<{ftz}>({a})))"),
    Row("9.7.3.21", "ex2.approx.ftz?.T", "d:T a:T", "power_of_two<{ftz}>({a})", T=f"f32 {_HALF}"),
    Row("9.7.3.22", "tanh.approx.T", "d:T a:T", "hyperbolic_tangent({a})", T=f"f32 {_HALF}"),
]

_COMPARED = "compare<Relation::{C}>(flush<{ftz}>({a}), flush<{ftz}>({b}))"

COMPARISON = [
    Row(
        "9.7.6.1",
        "set.C.ftz?.D.T",
        "d:D a:T b:T",
        f"truth<{{D}}>({_COMPARED})",
        C=_RELATIONS,
        D="u32 s32 f32 u16 s16 f16 bf16",
        T=f"{_INT} {_REAL}",
    ),
    Row(
        "9.7.6.1",
        "set.C.B.ftz?.D.T",
        "d:D a:T b:T c:pred",
        f"truth<{{D}}>(outcome({_COMPARED}, Logic::{{B}}_, {{c}}))",
        C=_RELATIONS,
        B="and or xor",
        D="u32 s32 f32 u16 s16 f16 bf16",
        T=f"{_INT} {_REAL}",
    ),
    Row(
        "9.7.7.1",
        "set.C.ftz?.D.T",
        "d:b32 a:T b:T",
        "truth_of_pair<{D}>(compare_pair<Relation::{C}>({a}, {b}))",
        C=_RELATIONS,
        D="f16x2 bf16x2 u32 s32",
        T="f16x2 bf16x2",
    ),
    Row(
        "9.7.6.2",
        "setp.C.ftz?.T",
        "d|q:pred a:T b:T",
        f"complement({_COMPARED}, second)",
        C=_RELATIONS,
        T=f"{_INT} {_REAL}",
    ),
    Row(
        "9.7.6.2",
        "setp.C.B.ftz?.T",
        "d|q:pred a:T b:T c:pred",
        f"outcome({_COMPARED}, Logic::{{B}}_, {{c}}, second)",
        C=_RELATIONS,
        B="and or xor",
        T=f"{_INT} {_REAL}",
    ),
    Row(
        "9.7.7.2",
        "setp.C.ftz?.T",
        "d|q:pred a:T b:T",
        "low_of(compare_pair<Relation::{C}>({a}, {b}), second)",
        C=_RELATIONS,
        T="f16x2 bf16x2",
    ),
    Row("9.7.6.3", "selp.T", "d:bT a:bT b:bT c:pred", "{c} ? {a} : {b}", T=f"{_INT} f32 f64"),
    Row("9.7.6.4", "slct.T.s32", "d:bT a:bT b:bT c:s32", "{c} >= 0 ? {a} : {b}", T=f"{_INT} f32 f64"),
    Row("9.7.6.4", "slct.ftz?.T.f32", "d:bT a:bT b:bT c:f32", "{c} >= 0 ? {a} : {b}", T=f"{_INT} f32 f64"),
]
