"""Floating point: f32, f64 (9.7.3), f16, bf16 and pairs (9.7.4), comparison and selection (9.7.6, 9.7.7).

Basic operations are exact to the bit in every rounding mode. Approximate ones return a value that is rounded
correctly or nearly so; hardware differs from it within the error bounds of the manual.
"""

from __future__ import annotations

from harness.device.emulated.instructions.rows import rows

_INTEGERS = "b16 b32 b64 u16 s16 u32 s32 u64 s64"
_WORDS = {
    "R": "rn rz rm rp",
    "T": "f32 f64 f16 f16x2 bf16 bf16x2 f32x2",
    "F": "f32 f64",
    "H": "f32 f16 f16x2 bf16 bf16x2",
    "X": "f16x2 bf16x2",
    "I": f"{_INTEGERS} f32 f64",
    "A": f"{_INTEGERS} f32 f64 f16 bf16",
    "D": "u32 s32 f32 u16 s16 f16 bf16",
    "E": "f16x2 bf16x2 u32 s32",
    "K": "finite infinite number notanumber normal subnormal",
    "M": "approx full",
    "C": "eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan",
    "B": "and or xor",
}

FLOATING = rows(
    """
9.7.3.1 testp.K.F | d:pred a:F | is_class({a}, Class::{K})
9.7.3.2 copysign.F | d:F a:F b:F | std::copysign({b}, {a})
9.7.3.3 add.R?.ftz?.sat?.T | d:T a:T b:T | binary<r_{R}, {ftz}, {sat}>(std::plus(), {a}, {b})
9.7.3.4 sub.R?.ftz?.sat?.T | d:T a:T b:T | binary<r_{R}, {ftz}, {sat}>(std::minus(), {a}, {b})
9.7.3.5 mul.R?.ftz?.sat?.T | d:T a:T b:T | binary<r_{R}, {ftz}, {sat}>(std::multiplies(), {a}, {b})
9.7.3.6 fma.R.ftz?.sat?.relu?.T | d:T a:T b:T c:T | relu<{relu}>(fused<r_{R}, {ftz}, {sat}>({a}, {b}, {c}))
9.7.3.7 mad.R.ftz?.sat?.F | d:F a:F b:F c:F | fused<r_{R}, {ftz}, {sat}>({a}, {b}, {c})
9.7.3.8 div.M.ftz?.f32 | d:f32 a:f32 b:f32 | divide_approximate<{ftz}>({a}, {b}, Divide::{M})
9.7.3.8 div.R.ftz?.F | d:F a:F b:F | binary<r_{R}, {ftz}, false>(std::divides(), {a}, {b})
9.7.3.9 abs.ftz?.T | d:T a:T | magnitude<{ftz}>({a})
9.7.3.10 neg.ftz?.T | d:T a:T | negated<{ftz}>({a})
9.7.3.11 min.ftz?.NaN?.T | d:T a:T b:T | extreme<{ftz}, {NaN}, false, false>({a}, {b})
9.7.3.11 min.ftz?.NaN?.xorsign.abs.T | d:T a:T b:T | extreme<{ftz}, {NaN}, true, false>({a}, {b})
9.7.3.12 max.ftz?.NaN?.T | d:T a:T b:T | extreme<{ftz}, {NaN}, false, true>({a}, {b})
9.7.3.12 max.ftz?.NaN?.xorsign.abs.T | d:T a:T b:T | extreme<{ftz}, {NaN}, true, true>({a}, {b})
9.7.3.13 rcp.approx.ftz?.f32 | d:f32 a:f32 | binary<r_rn, {ftz}, false>(std::divides(), 1.0f, {a})
9.7.3.13 rcp.R.ftz?.f32 | d:f32 a:f32 | binary<r_{R}, {ftz}, false>(std::divides(), 1.0f, {a})
9.7.3.13 rcp.R.f64 | d:f64 a:f64 | binary<r_{R}, false, false>(std::divides(), 1.0, {a})
9.7.3.14 rcp.approx.ftz.f64 | d:f64 a:f64 | upper_word(1.0 / upper_word({a}))
9.7.3.15 sqrt.approx.ftz?.f32 | d:f32 a:f32 | basic<r_rn, {ftz}, false>(root, {a})
9.7.3.15 sqrt.R.ftz?.F | d:F a:F | basic<r_{R}, {ftz}, false>(root, {a})
9.7.3.16 rsqrt.approx.ftz?.f32 | d:f32 a:f32 | reciprocal_root<{ftz}>({a})
9.7.3.16 rsqrt.approx.f64 | d:f64 a:f64 | reciprocal_root<false>({a})
9.7.3.17 rsqrt.approx.ftz.f64 | d:f64 a:f64 | upper_word(1.0 / std::sqrt(upper_word({a})))
9.7.3.18 sin.approx.ftz?.f32 | d:f32 a:f32 | flush<{ftz}>(std::sin(flush<{ftz}>({a})))
9.7.3.19 cos.approx.ftz?.f32 | d:f32 a:f32 | flush<{ftz}>(std::cos(flush<{ftz}>({a})))
9.7.3.20 lg2.approx.ftz?.f32 | d:f32 a:f32 | flush<{ftz}>(std::log2(flush<{ftz}>({a})))
9.7.3.21 ex2.approx.ftz?.H | d:H a:H | power_of_two<{ftz}>({a})
9.7.3.22 tanh.approx.H | d:H a:H | hyperbolic_tangent({a})
""",
    _WORDS,
)

COMPARISON = rows(
    """
9.7.6.1 set.C.ftz?.D.A | d:D a:A b:A | truth<{D}>(compare<Relation::{C}, {ftz}>({a}, {b}))
9.7.6.1 set.C.B.ftz?.D.A | d:D a:A b:A c:pred |
 truth<{D}>(outcome(compare<Relation::{C}, {ftz}>({a}, {b}), Logic::{B}_, {c}))
9.7.7.1 set.C.ftz?.E.X | d:b32 a:X b:X | truth_of_pair<{E}>(compare_pair<Relation::{C}, {ftz}>({a}, {b}))
9.7.6.2 setp.C.ftz?.A | d|q:pred a:A b:A |
 outcome(compare<Relation::{C}, {ftz}>({a}, {b}), Logic::and_, true, second)
9.7.6.2 setp.C.B.ftz?.A | d|q:pred a:A b:A c:pred |
 outcome(compare<Relation::{C}, {ftz}>({a}, {b}), Logic::{B}_, {c}, second)
9.7.7.2 setp.C.ftz?.X | d|q:pred a:X b:X | low_of(compare_pair<Relation::{C}, {ftz}>({a}, {b}), second)
9.7.6.3 selp.I | d:bI a:bI b:bI c:pred | {c} ? {a} : {b}
9.7.6.4 slct.I.s32 | d:bI a:bI b:bI c:s32 | {c} >= 0 ? {a} : {b}
9.7.6.4 slct.ftz?.I.f32 | d:bI a:bI b:bI c:f32 | {c} >= 0 ? {a} : {b}
""",
    _WORDS,
)
