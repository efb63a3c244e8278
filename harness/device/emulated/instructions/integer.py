"""Integer arithmetic (9.7.1), arithmetic with carry (9.7.2), logic and shifts (9.7.8)."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import rows

_WORDS = {
    "T": "u16 s16 u32 s32 u64 s64",
    "L": "u32 s32 u64 s64",
    "W": "u16 u32 s16 s32",
    "S": "s16 s32 s64",
    "U": "u32 s32",
    "V": "u32 s32",
    "B": "b32 b64",
    "C": "b16 b32 b64",
    "P": "pred b16 b32 b64",
    "Q": "b16 b32 b64 u16 s16 u32 s32 u64 s64",
    "X": "u16x2 s16x2",
    "M": "lo hi",
    "E": "clamp wrap",
    "F": "and or",
}

INTEGER = rows(
    """
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
9.7.1.4 mad.hi.sat.s32 | d:s32 a:s32 b:s32 c:s32 | clamped<s32>((s64)high_product({a}, {b}) + {c})
9.7.1.4 mad.wide.W | d:2W a:W b:W c:2W | wide_product({a}, {b}) + {c}
9.7.1.5 mul24.M.U | d:U a:U b:U | product24({a}, {b}, Part::{M})
9.7.1.6 mad24.M.U | d:U a:U b:U c:U | product24({a}, {b}, Part::{M}) + {c}
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
""",
    _WORDS,
)

# `carry` is the thread's condition code register, CC.CF.
CARRY = rows(
    """
9.7.2.1 add.cc.L | d:bL a:bL b:bL | add_carry({a}, {b}, false, carry)
9.7.2.2 addc.cc.L | d:bL a:bL b:bL | add_carry({a}, {b}, carry, carry)
9.7.2.2 addc.L | d:bL a:bL b:bL | {a} + {b} + carry
9.7.2.3 sub.cc.L | d:bL a:bL b:bL | subtract_borrow({a}, {b}, false, carry)
9.7.2.4 subc.cc.L | d:bL a:bL b:bL | subtract_borrow({a}, {b}, carry, carry)
9.7.2.4 subc.L | d:bL a:bL b:bL | {a} - {b} - carry
9.7.2.5 mad.M.cc.L | d:L a:L b:L c:L | add_carry(part_of_product({a}, {b}, Part::{M}), {c}, false, carry)
9.7.2.6 madc.M.cc.L | d:L a:L b:L c:L | add_carry(part_of_product({a}, {b}, Part::{M}), {c}, carry, carry)
9.7.2.6 madc.M.L | d:L a:L b:L c:L | part_of_product({a}, {b}, Part::{M}) + {c} + carry
""",
    _WORDS,
)

LOGIC = rows(
    """
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
""",
    _WORDS,
)
