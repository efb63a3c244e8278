"""Arithmetic: integers (9.7.1, 9.7.2), floating point (9.7.3 to 9.7.5), comparison, logic and conversion.

Basic operations are exact to the bit in every rounding mode. Approximate ones return a value that is rounded
correctly or nearly so; hardware differs from it within the error bounds of the manual. `carry` is the
thread's condition code register, CC.CF.
"""

from __future__ import annotations

from typing import Final

TABLES: Final = """
# Integer arithmetic
L: u32 s32 u64 s64; T: u16 s16 L; W: u16 u32 s16 s32; S: s16 s32 s64; U: u32 s32; V: U; X: u16x2 s16x2
B: b32 b64; C: b16 B; P: pred C; Q: C T; M: lo hi; E: clamp wrap; F: and or
9.7.1.1 add.T | d:T a:T b:T | {a} + {b}
9.7.1.1 add.X | d:b32 a:b32 b:b32 | packed<u16>({a}, {b}, std::plus())
9.7.1.1 add.sat.s32 | d:s32 a:s32 b:s32 | clamped<s32>((s64){a} + {b})
9.7.1.2 sub.T | d:T a:T b:T | {a} - {b}
9.7.1.2 sub.sat.s32 | d:s32 a:s32 b:s32 | clamped<s32>((s64){a} - {b})
9.7.1.3 mul.lo.T | d:T a:T b:T | low_product({a}, {b})
9.7.1.3 mul.hi.T | d:T a:T b:T | high_product({a}, {b})
9.7.1.3 mul.wide.W | d:2W a:W b:W | wide_product({a}, {b})
9.7.1.4 mad.lo.T | d:T a:T b:T c:T | low_product({a}, {b}) + {c}
9.7.1.4 mad.hi.T | d:T a:T b:T c:T | high_product({a}, {b}) + {c}
9.7.1.4 mad.wide.W | d:2W a:W b:W c:2W | wide_product({a}, {b}) + {c}
9.7.1.5 mul24.M.U | d:U a:U b:U | product24({a}, {b}, Part::{M})
9.7.1.7 sad.T | d:T a:T b:T c:T | {c} + ({a} < {b} ? {b} - {a} : {a} - {b})
9.7.1.8 div.T | d:T a:T b:T | quotient({a}, {b})
9.7.1.9 rem.T | d:T a:T b:T | remainder_of({a}, {b})
9.7.1.10 abs.S | d:S a:S | {a} < 0 ? -{a} : {a}
9.7.1.11 neg.S | d:S a:S | -{a}
9.7.1.12 min.T | d:T a:T b:T | std::min({a}, {b})
9.7.1.12 min.relu.s32 | d:s32 a:s32 b:s32 | std::max(0, std::min({a}, {b}))
9.7.1.12 min.u16x2 | d:b32 a:b32 b:b32 | packed<u16>({a}, {b}, smaller)
9.7.1.12 min.relu?.s16x2 | d:b32 a:b32 b:b32 | packed<s16>({a}, {b}, smaller, {relu})
9.7.1.13 max.T | d:T a:T b:T | std::max({a}, {b})
9.7.1.13 max.relu.s32 | d:s32 a:s32 b:s32 | std::max(0, std::max({a}, {b}))
9.7.1.13 max.u16x2 | d:b32 a:b32 b:b32 | packed<u16>({a}, {b}, larger)
9.7.1.13 max.relu?.s16x2 | d:b32 a:b32 b:b32 | packed<s16>({a}, {b}, larger, {relu})
9.7.1.14 popc.B | d:u32 a:B | __builtin_popcountll({a})
9.7.1.15 clz.B | d:u32 a:B | leading_zeros({a})
9.7.1.16 bfind.shiftamt?.L | d:u32 a:L | leading_bit<{shiftamt}>({a})
9.7.1.17 fns.b32 | d:b32 a:b32 b:b32 c:s32 | nth_set_bit({a}, {b}, {c})
9.7.1.18 brev.B | d:B a:B | reversed_bits({a})
9.7.1.19 bfe.L | d:L a:L b:u32 c:u32 | bit_field({a}, {b}, {c})
9.7.1.20 bfi.B | d:B a:B b:B c:u32 e:u32 | with_bit_field({a}, {b}, {c}, {e})
9.7.1.21 szext.E.U | d:U a:U b:u32 | extended({a}, {b}, Edge::{E})
9.7.1.22 bmsk.E.b32 | d:b32 a:u32 b:u32 | bit_mask({a}, {b}, Edge::{E})
9.7.1.23 dp4a.U.V | d:b32 a:b32 b:b32 c:b32 | dot4({U}(), {V}(), {a}, {b}, {c})
9.7.1.24 dp2a.M.U.V | d:b32 a:b32 b:b32 c:b32 | dot2({U}(), {V}(), {a}, {b}, {c}, Part::{M})
# Arithmetic with carry
9.7.2.1 add.cc.L | d:bL a:bL b:bL | add_carry({a}, {b}, false, carry)
9.7.2.2 addc.cc.L | d:bL a:bL b:bL | add_carry({a}, {b}, carry, carry)
9.7.2.2 addc.L | d:bL a:bL b:bL | {a} + {b} + carry
9.7.2.3 sub.cc.L | d:bL a:bL b:bL | subtract_borrow({a}, {b}, false, carry)
9.7.2.4 subc.cc.L | d:bL a:bL b:bL | subtract_borrow({a}, {b}, carry, carry)
9.7.2.4 subc.L | d:bL a:bL b:bL | {a} - {b} - carry
9.7.2.5 mad.M.cc.L | d:L a:L b:L c:L | add_carry(part_of_product({a}, {b}, Part::{M}), {c}, false, carry)
9.7.2.6 madc.M.cc.L | d:L a:L b:L c:L | add_carry(part_of_product({a}, {b}, Part::{M}), {c}, carry, carry)
9.7.2.6 madc.M.L | d:L a:L b:L c:L | part_of_product({a}, {b}, Part::{M}) + {c} + carry
# Logic and shifts
9.7.8.1 and.P | d:P a:P b:P | {a} & {b}
9.7.8.2 or.P | d:P a:P b:P | {a} | {b}
9.7.8.3 xor.P | d:P a:P b:P | {a} ^ {b}
9.7.8.4 not.C | d:C a:C | ~{a}
9.7.8.4 not.pred | d:pred a:pred | !{a}
9.7.8.5 cnot.C | d:C a:C | {a} == 0
9.7.8.6 lop3.b32 | d:b32 a:b32 b:b32 c:b32 e:u32 | lop3<{e}>({a}, {b}, {c})
9.7.8.6 lop3.F.b32 | d|q:b32 a:b32 b:b32 c:b32 e:u32 g:pred |
 lop3_test<{e}>({a}, {b}, {c}, Logic::{F}_, {g}, second)
9.7.8.7 shf.l.E.b32 | d:b32 a:b32 b:b32 c:u32 | funnel_left({a}, {b}, {c}, Edge::{E})
9.7.8.7 shf.r.E.b32 | d:b32 a:b32 b:b32 c:u32 | funnel_right({a}, {b}, {c}, Edge::{E})
9.7.8.8 shl.C | d:C a:C b:u32 | shifted_left({a}, {b})
9.7.8.9 shr.Q | d:Q a:Q b:u32 | shifted_right({a}, {b})
# Floating point
F: f32 f64; X: f16x2 bf16x2; T: F f16 f16x2 bf16 bf16x2 f32x2; H: f32 f16 f16x2 bf16 bf16x2
R: rn rz rm rp; M: approx full; K: finite infinite number notanumber normal subnormal
9.7.3.1 testp.K.F | d:pred a:F | is_class({a}, Class::{K})
9.7.3.2 copysign.F | d:F a:F b:F | std::copysign({b}, {a})
9.7.3.3 add.R?.ftz?.sat?.T | d:T a:T b:T | binary<r_{R}, {ftz}, {sat}>(std::plus(), {a}, {b})
9.7.3.4 sub.R?.ftz?.sat?.T | d:T a:T b:T | binary<r_{R}, {ftz}, {sat}>(std::minus(), {a}, {b})
9.7.3.5 mul.R?.ftz?.sat?.T | d:T a:T b:T | binary<r_{R}, {ftz}, {sat}>(std::multiplies(), {a}, {b})
9.7.3.6 fma.R.ftz?.sat?.relu?.T | d:T a:T b:T c:T | relu<{relu}>(fused<r_{R}, {ftz}, {sat}>({a}, {b}, {c}))
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
# Comparison and selection
I: b16 b32 b64 u16 s16 u32 s32 u64 s64 F; A: I f16 bf16; D: u32 s32 f32 u16 s16 f16 bf16; E: X u32 s32
C: eq ne lt le gt ge lo ls hi hs equ neu ltu leu gtu geu num nan; B: and or xor
compared: compare<Relation::{C}, {ftz}>({a}, {b}); pair: compare_pair<Relation::{C}, {ftz}>({a}, {b})
9.7.6.1 set.C.ftz?.D.A | d:D a:A b:A | truth<{D}>({compared})
9.7.6.1 set.C.B.ftz?.D.A | d:D a:A b:A c:pred | truth<{D}>(outcome({compared}, Logic::{B}_, {c}))
9.7.7.1 set.C.ftz?.E.X | d:b32 a:X b:X | truth_of_pair<{E}>({pair})
9.7.6.2 setp.C.ftz?.A | d|q:pred a:A b:A | outcome({compared}, Logic::and_, true, second)
9.7.6.2 setp.C.B.ftz?.A | d|q:pred a:A b:A c:pred | outcome({compared}, Logic::{B}_, {c}, second)
9.7.7.2 setp.C.ftz?.X | d|q:pred a:X b:X | low_of({pair}, second)
9.7.6.3 selp.I | d:bI a:bI b:bI c:pred | {c} ? {a} : {b}
# Conversion
I: rni rzi rmi rpi; F: f16 bf16 f32 f64; T: u8 s8 u16 s16 u32 s32 u64 s64 F; A: T; N: rn rz; M: rn rna rz
H: f16 bf16; E: e4m3x2 e5m2x2; B: u8 s8
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
9.7.9.22 cvt.pack.sat.B.s32.b32 | d:b32 a:s32 b:s32 c:b32 |
 {c} << 16 | (u32)(u8)clamped<{B}>({a}) << 8 | (u8)clamped<{B}>({b})
"""
