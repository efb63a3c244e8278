"""Integer arithmetic (9.7.1), arithmetic with carry (9.7.2), logic and shifts (9.7.8)."""

from __future__ import annotations

from harness.device.emulated.instructions.rows import Row

_ALL = "u16 s16 u32 s32 u64 s64"
_LONG = "u32 s32 u64 s64"
_PAIR = "u16x2 s16x2"
_BITS = "pred b16 b32 b64"
_PART = "part_of_product({a}, {b}, Part::{M})"

INTEGER = [
    Row("9.7.1.1", "add.T", "d:T a:T b:T", "{a} + {b}", T=_ALL),
    Row("9.7.1.1", "add.T", "d:b32 a:b32 b:b32", "packed<u16>({a}, {b}, Add())", T=_PAIR),
    Row("9.7.1.1", "add.sat.s32", "d:s32 a:s32 b:s32", "clamped<s32>((s64){a} + {b})"),
    Row("9.7.1.2", "sub.T", "d:T a:T b:T", "{a} - {b}", T=_ALL),
    Row("9.7.1.2", "sub.sat.s32", "d:s32 a:s32 b:s32", "clamped<s32>((s64){a} - {b})"),
    Row("9.7.1.3", "mul.lo.T", "d:T a:T b:T", "low_product({a}, {b})", T=_ALL),
    Row("9.7.1.3", "mul.hi.T", "d:T a:T b:T", "high_product({a}, {b})", T=_ALL),
    Row("9.7.1.3", "mul.wide.T", "d:2T a:T b:T", "wide_product({a}, {b})", T="u16 u32 s16 s32"),
    Row("9.7.1.4", "mad.lo.T", "d:T a:T b:T c:T", "low_product({a}, {b}) + {c}", T=_ALL),
    Row("9.7.1.4", "mad.hi.T", "d:T a:T b:T c:T", "high_product({a}, {b}) + {c}", T=_ALL),
    Row(
        "9.7.1.4",
        "mad.hi.sat.s32",
        "d:s32 a:s32 b:s32 c:s32",
        "clamped<s32>((s64)high_product({a}, {b}) + {c})",
    ),
    Row("9.7.1.4", "mad.wide.T", "d:2T a:T b:T c:2T", "wide_product({a}, {b}) + {c}", T="u16 u32 s16 s32"),
    Row("9.7.1.5", "mul24.M.T", "d:T a:T b:T", "product24({a}, {b}, Part::{M})", M="lo hi", T="u32 s32"),
    Row(
        "9.7.1.6",
        "mad24.M.T",
        "d:T a:T b:T c:T",
        "product24({a}, {b}, Part::{M}) + {c}",
        M="lo hi",
        T="u32 s32",
    ),
    Row("9.7.1.7", "sad.T", "d:T a:T b:T c:T", "{c} + ({a} < {b} ? {b} - {a} : {a} - {b})", T=_ALL),
    Row("9.7.1.8", "div.T", "d:T a:T b:T", "quotient({a}, {b})", T=_ALL),
    Row("9.7.1.9", "rem.T", "d:T a:T b:T", "remainder_of({a}, {b})", T=_ALL),
    Row("9.7.1.10", "abs.T", "d:T a:T", "{a} < 0 ? -{a} : {a}", T="s16 s32 s64"),
    Row("9.7.1.11", "neg.T", "d:T a:T", "-{a}", T="s16 s32 s64"),
    Row("9.7.1.12", "min.T", "d:T a:T b:T", "std::min({a}, {b})", T=_ALL),
    Row("9.7.1.12", "min.relu.s32", "d:s32 a:s32 b:s32", "std::max(0, std::min({a}, {b}))"),
    Row("9.7.1.12", "min.u16x2", "d:b32 a:b32 b:b32", "packed<u16>({a}, {b}, Min())"),
    Row("9.7.1.12", "min.relu?.s16x2", "d:b32 a:b32 b:b32", "packed<s16>({a}, {b}, Min(), {relu})"),
    Row("9.7.1.13", "max.T", "d:T a:T b:T", "std::max({a}, {b})", T=_ALL),
    Row("9.7.1.13", "max.relu.s32", "d:s32 a:s32 b:s32", "std::max(0, std::max({a}, {b}))"),
    Row("9.7.1.13", "max.u16x2", "d:b32 a:b32 b:b32", "packed<u16>({a}, {b}, Max())"),
    Row("9.7.1.13", "max.relu?.s16x2", "d:b32 a:b32 b:b32", "packed<s16>({a}, {b}, Max(), {relu})"),
    Row("9.7.1.14", "popc.T", "d:u32 a:T", "__builtin_popcountll({a})", T="b32 b64"),
    Row("9.7.1.15", "clz.T", "d:u32 a:T", "leading_zeros({a})", T="b32 b64"),
    Row("9.7.1.16", "bfind.shiftamt?.T", "d:u32 a:T", "leading_bit<{shiftamt}>({a})", T=_LONG),
    Row("9.7.1.17", "fns.b32", "d:b32 a:b32 b:b32 c:s32", "nth_set_bit({a}, {b}, {c})"),
    Row("9.7.1.18", "brev.T", "d:T a:T", "reversed_bits({a})", T="b32 b64"),
    Row("9.7.1.19", "bfe.T", "d:T a:T b:u32 c:u32", "bit_field({a}, {b}, {c})", T=_LONG),
    Row("9.7.1.20", "bfi.T", "d:T a:T b:T c:u32 e:u32", "with_bit_field({a}, {b}, {c}, {e})", T="b32 b64"),
    Row(
        "9.7.1.21", "szext.M.T", "d:T a:T b:u32", "extended({a}, {b}, Edge::{M})", M="clamp wrap", T="u32 s32"
    ),
    Row("9.7.1.22", "bmsk.M.b32", "d:b32 a:u32 b:u32", "bit_mask({a}, {b}, Edge::{M})", M="clamp wrap"),
    Row(
        "9.7.1.23",
        "dp4a.A.B",
        "d:b32 a:b32 b:b32 c:b32",
        "dot4({A}(), {B}(), {a}, {b}, {c})",
        A="u32 s32",
        B="u32 s32",
    ),
    Row(
        "9.7.1.24",
        "dp2a.M.A.B",
        "d:b32 a:b32 b:b32 c:b32",
        "dot2({A}(), {B}(), {a}, {b}, {c}, Part::{M})",
        M="lo hi",
        A="u32 s32",
        B="u32 s32",
    ),
]

# `carry` is the thread's condition code register, CC.CF.
CARRY = [
    Row("9.7.2.1", "add.cc.T", "d:bT a:bT b:bT", "add_carry({a}, {b}, false, carry)", T=_LONG),
    Row("9.7.2.2", "addc.cc.T", "d:bT a:bT b:bT", "add_carry({a}, {b}, carry, carry)", T=_LONG),
    Row("9.7.2.2", "addc.T", "d:bT a:bT b:bT", "{a} + {b} + carry", T=_LONG),
    Row("9.7.2.3", "sub.cc.T", "d:bT a:bT b:bT", "subtract_borrow({a}, {b}, false, carry)", T=_LONG),
    Row("9.7.2.4", "subc.cc.T", "d:bT a:bT b:bT", "subtract_borrow({a}, {b}, carry, carry)", T=_LONG),
    Row("9.7.2.4", "subc.T", "d:bT a:bT b:bT", "{a} - {b} - carry", T=_LONG),
    Row(
        "9.7.2.5",
        "mad.M.cc.T",
        "d:T a:T b:T c:T",
        f"add_carry({_PART}, {{c}}, false, carry)",
        M="lo hi",
        T=_LONG,
    ),
    Row(
        "9.7.2.6",
        "madc.M.cc.T",
        "d:T a:T b:T c:T",
        f"add_carry({_PART}, {{c}}, carry, carry)",
        M="lo hi",
        T=_LONG,
    ),
    Row("9.7.2.6", "madc.M.T", "d:T a:T b:T c:T", f"{_PART} + {{c}} + carry", M="lo hi", T=_LONG),
]

LOGIC = [
    Row("9.7.8.1", "and.T", "d:T a:T b:T", "{a} & {b}", T=_BITS),
    Row("9.7.8.2", "or.T", "d:T a:T b:T", "{a} | {b}", T=_BITS),
    Row("9.7.8.3", "xor.T", "d:T a:T b:T", "{a} ^ {b}", T=_BITS),
    Row("9.7.8.4", "not.T", "d:T a:T", "~{a}", T="b16 b32 b64"),
    Row("9.7.8.4", "not.pred", "d:pred a:pred", "!{a}"),
    Row("9.7.8.5", "cnot.T", "d:T a:T", "{a} == 0", T="b16 b32 b64"),
    Row("9.7.8.6", "lop3.b32", "d:b32 a:b32 b:b32 c:b32 e:u32", "lop3<{e}>({a}, {b}, {c})"),
    Row(
        "9.7.8.6",
        "lop3.B.b32",
        "d|q:b32 a:b32 b:b32 c:b32 e:u32 q:pred",
        "lop3_test<{e}>({a}, {b}, {c}, Logic::{B}_, {q}, second)",
        B="and or",
    ),
    Row(
        "9.7.8.7",
        "shf.l.M.b32",
        "d:b32 a:b32 b:b32 c:u32",
        "funnel_left({a}, {b}, {c}, Edge::{M})",
        M="clamp wrap",
    ),
    Row(
        "9.7.8.7",
        "shf.r.M.b32",
        "d:b32 a:b32 b:b32 c:u32",
        "funnel_right({a}, {b}, {c}, Edge::{M})",
        M="clamp wrap",
    ),
    Row("9.7.8.8", "shl.T", "d:T a:T b:u32", "shifted_left({a}, {b})", T="b16 b32 b64"),
    Row("9.7.8.9", "shr.T", "d:T a:T b:u32", "shifted_right({a}, {b})", T=f"b16 b32 b64 {_ALL}"),
]
