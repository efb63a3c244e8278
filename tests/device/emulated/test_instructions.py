"""Instructions compute what the PTX manual says, to the bit. Compared with exact arithmetic."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.device.emulated.exact import FORMATS, product, quotient, total
from tests.device.emulated.lanes import SLOTS, Case, Lanes, case

Check = tuple[Case, Callable[..., Any]]
ROWS = 48
_SIZE = (1 << 31) - 1


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Lanes:
    return Lanes(tmp_path_factory.mktemp("lanes"))


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _width(type: str) -> int:
    if type in FORMATS:
        return FORMATS[type].width
    return {"pred": 1, "e4m3x2": 16, "e5m2x2": 16, "f16x2": 32, "bf16x2": 32}.get(type) or int(type[1:])


def _draw(type: str, rng: random.Random) -> int:
    bits = _width(type)
    if type == "pred":
        return rng.randrange(2)
    if type in FORMATS or type.endswith("x2"):
        if type.endswith("x2"):
            half = {"f16x2": "f16", "bf16x2": "bf16", "e4m3x2": "e4m3", "e5m2x2": "e5m2"}[type]
            low, high = _draw(half, rng), _draw(half, rng)
            return low | high << FORMATS[half].width
        form = FORMATS[type]
        kind = rng.randrange(8)
        if kind == 0:
            size = rng.choice(
                [0, 1, form.infinity, form.highest, 1 << form.digits, (1 << form.digits) - 1, form.sign - 1]
            )
        elif kind < 5:  # near one: sums and products round
            size = ((form.bias + rng.randint(-4, 4)) << form.digits) + rng.getrandbits(form.digits)
        else:
            size = rng.getrandbits(form.width - 1)
        return size | (form.sign if rng.randrange(2) else 0)
    edges = [0, 1, 2, 31, 32, 33, (1 << bits) - 1, 1 << (bits - 1), (1 << (bits - 1)) - 1]
    return rng.choice(edges) & ((1 << bits) - 1) if rng.randrange(3) == 0 else rng.getrandbits(bits)


def _run(lanes: Lanes, name: str, checks: list[Check]) -> None:
    """Every check gets ROWS rows of inputs; its function gets them as codes, or as signed integers."""
    rng = random.Random(name)
    inputs = np.zeros((ROWS, len(checks), SLOTS), dtype=np.uint64)
    for row in range(ROWS):
        for number, (one, _) in enumerate(checks):
            for slot, type in enumerate(one.inputs):
                inputs[row, number, slot] = _draw(type, rng)
    results = lanes.run(name, [one for one, _ in checks], inputs)
    for number, (one, expected) in enumerate(checks):
        for row in range(ROWS):
            given = [int(word) for word in inputs[row, number, : len(one.inputs)]]
            typed = [
                _signed(v, _width(t)) if t[0] == "s" else v for v, t in zip(given, one.inputs, strict=True)
            ]
            want = expected(*typed)
            wanted = list(want) if isinstance(want, tuple) else [want]
            for slot, (value, type) in enumerate(zip(wanted, [one.result, one.second], strict=False)):
                got = int(results[row, number, slot])
                what = f"{one.text}: {[hex(v) for v in given]} gives {got:#x}, expected {value}"
                assert _agrees(got, value, type), what


def _agrees(got: int, want: Any, type: str) -> bool:
    if type in FORMATS and want == -1:
        return (got & (FORMATS[type].sign - 1)) > FORMATS[type].infinity - (not FORMATS[type].infinite)
    if type.endswith("x2") and isinstance(want, list):
        half = type[:-2]
        width = FORMATS[half].width
        return all(_agrees(got >> width * i & ((1 << width) - 1), w, half) for i, w in enumerate(want))
    return got == int(want) & ((1 << max(_width(type), 8)) - 1)


def _operation(name: str, form: str, mode: str) -> Callable[..., int]:
    f = FORMATS[form]

    def compute(*codes: int) -> int:
        v = [f.value(code) for code in codes]
        if name == "add":
            exact = total(v[0], v[1], mode)
        elif name == "sub":
            exact = total(v[0], -v[1], mode)
        elif name == "mul":
            exact = product(v[0], v[1])
        elif name == "div":
            exact = quotient(v[0], v[1])
        else:
            exact = total(product(v[0], v[1]), v[2], mode)
        return f.code(exact, mode)

    return compute


def test_basic_operations_of_f32_and_f64_are_exact_in_every_rounding_mode(lanes: Lanes) -> None:
    """add, sub, mul, fma and div give the one right code."""
    checks: list[Check] = []
    for form in ("f32", "f64"):
        for mode in ("rn", "rz", "rm", "rp"):
            for name in ("add", "sub", "mul", "div"):
                text = f"{name}.{mode}.{form} d, a, b"
                checks.append((case(text, form, form, form), _operation(name, form, mode)))
            text = f"fma.{mode}.{form} d, a, b, c"
            checks.append((case(text, form, form, form, form), _operation("fma", form, mode)))
    _run(lanes, "basic", checks)


def test_operations_of_small_formats_are_rounded_once(lanes: Lanes) -> None:
    """f16 and bf16, alone and in pairs."""
    checks: list[Check] = []
    for form in ("f16", "bf16"):
        width = FORMATS[form].width
        for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma.rn", 3)):
            one = _operation(name.removesuffix(".rn"), form, "rn")
            operands = ", ".join("dabc"[: count + 1])
            checks.append((case(f"{name}.{form} {operands}", form, *[form] * count), one))

            def both(*codes: int, one: Callable[..., int] = one, width: int = width) -> list[int]:
                mask = (1 << width) - 1
                return [one(*(code & mask for code in codes)), one(*(code >> width for code in codes))]

            checks.append(
                (
                    case(f"{name}.{form}x2 {operands}", f"{form}x2", *[f"{form}x2"] * count),
                    lambda *c, f=both: (f(*c),),
                )
            )
    _run(lanes, "small", checks)


def _integers(type: str) -> list[Check]:
    bits, signed = _width(type), type[0] == "s"
    mask = (1 << bits) - 1

    def truncated(a: int, b: int) -> int:
        if b == 0:
            return mask
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)

    def rest(a: int, b: int) -> int:
        return a if b == 0 else a - b * truncated(a, b)

    same = (type, type)
    checks: list[Check] = [
        (case(f"add.{type} d, a, b", type, *same), lambda a, b: a + b),
        (case(f"sub.{type} d, a, b", type, *same), lambda a, b: a - b),
        (case(f"mul.lo.{type} d, a, b", type, *same), lambda a, b: a * b),
        (case(f"mul.hi.{type} d, a, b", type, *same), lambda a, b: a * b >> bits),
        (case(f"mad.lo.{type} d, a, b, c", type, *same, type), lambda a, b, c: a * b + c),
        (case(f"mad.hi.{type} d, a, b, c", type, *same, type), lambda a, b, c: (a * b >> bits) + c),
        (case(f"sad.{type} d, a, b, c", type, *same, type), lambda a, b, c: c + abs(a - b)),
        (case(f"div.{type} d, a, b", type, *same), truncated),
        (case(f"rem.{type} d, a, b", type, *same), rest),
        (case(f"min.{type} d, a, b", type, *same), min),
        (case(f"max.{type} d, a, b", type, *same), max),
        (case(f"shr.{type} d, a, b", type, type, "u32"), lambda a, b: a >> min(b, bits + 1)),
        (case(f"selp.{type} d, a, b, c", type, *same, "pred"), lambda a, b, c: a if c else b),
        (case(f"setp.lt.{type} d|e, a, b", "pred", *same, second="pred"), lambda a, b: (a < b, a >= b)),
        (case(f"setp.ne.and.{type} d|e, a, b, !c", "pred", *same, "pred", second="pred"),
         lambda a, b, c: (a != b and not c, a == b and not c)),
        (case(f"set.ge.u32.{type} d, a, b", "u32", *same), lambda a, b: -(a >= b)),
    ]  # fmt: skip
    if bits < 64:
        wide = f"{type[0]}{2 * bits}"
        checks += [
            (case(f"mul.wide.{type} d, a, b", wide, *same), lambda a, b: a * b),
            (case(f"mad.wide.{type} d, a, b, c", wide, *same, wide), lambda a, b, c: a * b + c),
        ]
    if bits > 16:
        checks += [
            (case(f"bfe.{type} d, a, b, c", type, type, "u32", "u32"),
             lambda a, b, c: _field(a, b, c, bits, signed)),
            (case(f"bfind.{type} d, a", "u32", type), lambda a: (a if a >= 0 else ~a).bit_length() - 1),
            (case(f"bfind.shiftamt.{type} d, a", "u32", type),
             lambda a: bits - (a if a >= 0 else ~a).bit_length() if a not in (0, -1) else -1),
            (case(f"add.cc.{type} d, a, b; addc.cc.{type} e, c, f", type, *[type] * 4, second=type),
             lambda a, b, c, f: (a + b, c + f + ((a & mask) + (b & mask) >> bits))),
            (case(f"sub.cc.{type} d, a, b; subc.{type} e, c, f", type, *[type] * 4, second=type),
             lambda a, b, c, f: (a - b, c - f - ((a & mask) < (b & mask)))),
            (case(f"mad.lo.cc.{type} d, a, b, c; madc.hi.{type} e, a, b, f", type, *[type] * 4, second=type),
             lambda a, b, c, f: (a * b + c, (a * b >> bits) + f + ((a * b & mask) + (c & mask) >> bits))),
        ]  # fmt: skip
    if signed:
        checks += [
            (case(f"abs.{type} d, a", type, type), abs),
            (case(f"neg.{type} d, a", type, type), lambda a: -a),
        ]
    return checks


def _field(a: int, position: int, length: int, bits: int, signed: bool) -> int:
    begin, count = position & 255, length & 255
    last = min(begin + count - 1, bits - 1)
    sign = signed and count > 0 and a >> last & 1
    out = 0
    for i in range(bits):
        bit = a >> (begin + i) & 1 if i < count and begin + i < bits else sign
        out |= int(bit) << i
    return out


@pytest.mark.slow
def test_integer_instructions(lanes: Lanes) -> None:
    """Arithmetic, comparison, bit fields and carries of every integer type."""
    _run(
        lanes,
        "integer",
        [one for type in ("u16", "s16", "u32", "s32", "u64", "s64") for one in _integers(type)],
    )


def _permuted(a: int, b: int, selector: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    out = 0
    for i in range(4):
        choice = selector >> 4 * i & 15
        byte = data[choice & 7]
        out |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return out


def _bytes(value: int, signed: bool, count: int = 4, bits: int = 8) -> list[int]:
    parts = [value >> bits * i & ((1 << bits) - 1) for i in range(count)]
    return [_signed(part, bits) for part in parts] if signed else parts


def _dot(a: int, b: int, c: int, first: bool, second: bool) -> int:
    return c + sum(x * y for x, y in zip(_bytes(a, first), _bytes(b, second), strict=True))


def _lop3(table: int) -> Callable[[int, int, int], int]:
    def compute(a: int, b: int, c: int) -> int:
        bits = (table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | (c >> i & 1)) & 1 for i in range(32))
        return sum(bit << i for i, bit in enumerate(bits))

    return compute


def _clamped(value: int, low: int, high: int) -> int:
    return max(low, min(high, value))


def _low24(value: int, signed: bool) -> int:
    return _signed(value, 24) if signed else value & 0xFFFFFF


def _halves(function: Callable[[int, int], int], signed: bool) -> Callable[[int, int], int]:
    def compute(a: int, b: int) -> int:
        parts = zip(_bytes(a, signed, 2, 16), _bytes(b, signed, 2, 16), strict=True)
        return sum((function(x, y) & 0xFFFF) << 16 * i for i, (x, y) in enumerate(parts))

    return compute


def test_bit_instructions(lanes: Lanes) -> None:
    """Logic, shifts, permutations, dot products and packed integers."""
    u, s, low, high = "u32", "s32", -(1 << 31), (1 << 31) - 1
    three = (u, u, u)
    _run(lanes, "bits", [
        (case("and.b32 d, a, b", u, u, u), lambda a, b: a & b),
        (case("or.b64 d, a, b", "u64", "u64", "u64"), lambda a, b: a | b),
        (case("xor.b16 d, a, b", "u16", "u16", "u16"), lambda a, b: a ^ b),
        (case("xor.pred d, a, b", "pred", "pred", "pred"), lambda a, b: a != b),
        (case("not.b16 d, a", "u16", "u16"), lambda a: ~a),
        (case("not.pred d, a", "pred", "pred"), lambda a: not a),
        (case("cnot.b32 d, a", u, u), lambda a: a == 0),
        (case("lop3.b32 d, a, b, c, 0xE8", u, *three), _lop3(0xE8)),
        (case("lop3.b32 d, a, b, c, 0x96", u, *three), _lop3(0x96)),
        (case("lop3.b32 d, a, b, c, 27", u, *three), _lop3(27)),
        (case("shf.l.wrap.b32 d, a, b, c", u, *three), lambda a, b, c: (b << 32 | a) << (c & 31) >> 32),
        (case("shf.r.wrap.b32 d, a, b, c", u, *three), lambda a, b, c: (b << 32 | a) >> (c & 31)),
        (case("shf.l.clamp.b32 d, a, b, c", u, *three), lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32),
        (case("shf.r.clamp.b32 d, a, b, c", u, *three), lambda a, b, c: (b << 32 | a) >> min(c, 32)),
        (case("shl.b16 d, a, b", "u16", "u16", u), lambda a, b: a << min(b, 64)),
        (case("shl.b32 d, a, b", u, u, u), lambda a, b: a << min(b, 64)),
        (case("shl.b64 d, a, b", "u64", "u64", u), lambda a, b: a << min(b, 64)),
        (case("prmt.b32 d, a, b, c", u, *three), _permuted),
        (case("prmt.b32.f4e d, a, b, c", u, *three), lambda a, b, c: (b << 32 | a) >> 8 * (c & 3)),
        (case("prmt.b32.b4e d, a, b, c", u, *three),
         lambda a, b, c: _permuted(a, b, [0x5670, 0x6701, 0x7012, 0x0123][c & 3])),
        (case("prmt.b32.rc16 d, a, b, c", u, *three), lambda a, b, c: (a >> 16 * (c & 1) & 0xFFFF) * 0x10001),
        (case("prmt.b32.ecr d, a, b, c", u, *three),
         lambda a, b, c: _permuted(a, b, sum(min(i, c & 3) << 4 * i for i in range(4)))),
        (case("prmt.b32.ecl d, a, b, c", u, *three),
         lambda a, b, c: _permuted(a, b, sum(max(i, c & 3) << 4 * i for i in range(4)))),
        (case("popc.b64 d, a", u, "u64"), lambda a: a.bit_count()),
        (case("clz.b32 d, a", u, u), lambda a: 32 - a.bit_length()),
        (case("clz.b64 d, a", u, "u64"), lambda a: 64 - a.bit_length()),
        (case("brev.b32 d, a", u, u), lambda a: int(f"{a:032b}"[::-1], 2)),
        (case("bfi.b32 d, a, b, 5, 9", u, u, u), lambda a, b: (b & ~(511 << 5)) | (a & 511) << 5),
        (case("bfi.b32 d, a, b, 28, 9", u, u, u), lambda a, b: (b & ((1 << 28) - 1)) | a << 28),
        (case("bmsk.clamp.b32 d, a, b", u, u, u), lambda a, b: ((1 << min(b, 32)) - 1) << min(a, 32)),
        (case("bmsk.wrap.b32 d, a, b", u, u, u), lambda a, b: ((1 << (b & 31)) - 1) << (a & 31)),
        (case("szext.wrap.s32 d, a, b", s, s, u), lambda a, b: _signed(a, b & 31) if b & 31 else 0),
        (case("dp4a.s32.s32 d, a, b, c", u, *three), lambda a, b, c: _dot(a, b, c, True, True)),
        (case("dp4a.u32.s32 d, a, b, c", u, *three), lambda a, b, c: _dot(a, b, c, False, True)),
        (case("dp2a.hi.s32.u32 d, a, b, c", u, *three),
         lambda a, b, c: c + sum(map(operator.mul, _bytes(a, True, 2, 16), _bytes(b, False)[2:]))),
        (case("add.sat.s32 d, a, b", s, s, s), lambda a, b: _clamped(a + b, low, high)),
        (case("sub.sat.s32 d, a, b", s, s, s), lambda a, b: _clamped(a - b, low, high)),
        (case("mul24.lo.s32 d, a, b", s, s, s), lambda a, b: _low24(a, True) * _low24(b, True)),
        (case("mul24.hi.u32 d, a, b", u, u, u), lambda a, b: _low24(a, False) * _low24(b, False) >> 16),
        (case("add.u16x2 d, a, b", u, u, u), _halves(lambda a, b: a + b, False)),
        (case("min.s16x2 d, a, b", u, u, u), _halves(min, True)),
        (case("max.u16x2 d, a, b", u, u, u), _halves(max, False)),
        (case("max.relu.s16x2 d, a, b", u, u, u), _halves(lambda a, b: max(a, b, 0), True)),
        (case("cvt.sat.s8.s32 d, a", "s32", s), lambda a: _clamped(a, -128, 127)),
        (case("cvt.sat.u8.s64 d, a", "u16", "s64"), lambda a: _clamped(a, 0, 255)),
        (case("cvt.s64.s32 d, a", "s64", s), lambda a: a),
        (case("cvt.s32.s8 d, a", s, u), lambda a: _signed(a, 8)),
        (case("cvt.u32.u16 d, a", u, "u16"), lambda a: a),
        (case("cvt.pack.sat.u8.s32.b32 d, a, b, c", u, s, s, u),
         lambda a, b, c: c << 16 | _clamped(a, 0, 255) << 8 | _clamped(b, 0, 255)),
        (case("mov.b32 {d, e}, a", "u16", u, second="u16"), lambda a: (a & 0xFFFF, a >> 16)),
        (case("mov.b64 d, {a, b}", "u64", u, u), lambda a, b: b << 32 | a),
        (case("fns.b32 d, a, 0, 3", u, u),
         lambda a: [i for i in range(32) if a >> i & 1][2] if a.bit_count() > 2 else -1),
    ])  # fmt: skip


def _extreme(form: str, greater: bool, keep_nan: bool) -> Callable[[int, int], int]:
    f = FORMATS[form]

    def compute(a: int, b: int) -> int:
        x, y = f.value(a), f.value(b)
        if x != x or y != y:
            return -1 if keep_nan or (x != x and y != y) else b if x != x else a
        if x == y:
            negative = a if a & f.sign else b
            return (a if negative == b else b) if greater else negative
        return (a if x > y else b) if greater else (a if x < y else b)

    return compute


_RELATIONS = {
    "eq": lambda x, y: x == y, "ne": lambda x, y: x != y, "lt": lambda x, y: x < y, "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y, "ge": lambda x, y: x >= y,
}  # fmt: skip


def _comparisons(form: str) -> list[Check]:
    f = FORMATS[form]
    checks: list[Check] = []
    for unordered in (False, True):
        for name, relation in _RELATIONS.items():

            def compare(
                a: int, b: int, r: Callable[[Any, Any], bool] = relation, u: bool = unordered
            ) -> tuple[bool, bool]:
                x, y = f.value(a), f.value(b)
                value = u if x != x or y != y else r(x, y)
                return value, not value

            text = f"setp.{name}{'u' * unordered}.{form} d|e, a, b"
            checks.append((case(text, "pred", form, form, second="pred"), compare))
    is_nan = lambda a, b: f.value(a) != f.value(a) or f.value(b) != f.value(b)  # noqa: E731
    checks.append((case(f"setp.nan.{form} d, a, b", "pred", form, form), is_nan))
    checks.append((case(f"setp.num.{form} d, a, b", "pred", form, form), lambda a, b: not is_nan(a, b)))
    return checks


@pytest.mark.slow
def test_comparisons_and_extremes_of_floating_point_numbers(lanes: Lanes) -> None:
    """NaN, signed zeros and infinities are ordered as the manual says."""
    checks: list[Check] = []
    for form in ("f32", "f64", "f16", "bf16"):
        f = FORMATS[form]
        checks += _comparisons(form)
        checks += [
            (case(f"min.{form} d, a, b", form, form, form), _extreme(form, False, False)),
            (case(f"max.{form} d, a, b", form, form, form), _extreme(form, True, False)),
            (
                case(f"abs.{form} d, a", form, form),
                lambda a, f=f: a & (f.sign - 1) if f.value(a) == f.value(a) else -1,
            ),
            (
                case(f"neg.{form} d, a", form, form),
                lambda a, f=f: a ^ f.sign if f.value(a) == f.value(a) else -1,
            ),
        ]
        if form != "f64":
            checks.append((case(f"max.NaN.{form} d, a, b", form, form, form), _extreme(form, True, True)))
    checks += [
        (case("copysign.f32 d, a, b", "f32", "f32", "f32"),
         lambda a, b: (a & 1 << 31) | (b & _SIZE) if b & _SIZE <= 0x7F800000 else -1),
        (case("add.sat.f32 d, a, b", "f32", "f32", "f32"),
         lambda a, b: _saturated(_operation("add", "f32", "rn")(a, b))),
        (case("mul.ftz.f32 d, a, b", "f32", "f32", "f32"),
         lambda a, b: _flushed(_operation("mul", "f32", "rn")(_flushed(a), _flushed(b)))),
        (case("fma.rn.relu.f16 d, a, b, c", "f16", "f16", "f16", "f16"),
         lambda *c: _relu(_operation("fma", "f16", "rn")(*c))),
        (case("testp.subnormal.f32 d, a", "pred", "f32"), lambda a: 0 < (a & (1 << 31) - 1) < 1 << 23),
        (case("testp.finite.f64 d, a", "pred", "f64"), lambda a: (a >> 52 & 2047) < 2047),
    ]  # fmt: skip
    _run(lanes, "comparison", checks)


def _saturated(code: int) -> int:
    if code == -1 or code >> 31:
        return 0
    return min(code, 0x3F800000)


def _flushed(code: int) -> int:
    return code & 1 << 31 if code != -1 and (code & (1 << 31) - 1) < 1 << 23 else code


def _relu(code: int) -> int:
    return 0 if code != -1 and code & 0x8000 else code


def _converted(source: str, target: str, mode: str, finite: bool = False) -> Callable[[int], int]:
    def compute(code: int) -> int:
        value = FORMATS[source].value(code) if source in FORMATS else Fraction(code)
        if source not in FORMATS and code == 0:
            value = 0.0
        return FORMATS[target].code(value, mode, finite)

    return compute


def _to_integer(source: str, type: str, mode: str) -> Callable[[int], int]:
    bits, signed = _width(type), type[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    functions = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}

    def compute(code: int) -> int:
        value = FORMATS[source].value(code)
        if value != value:
            return 1 << 63 if bits == 64 else 0
        if isinstance(value, float):
            return 0 if value == 0 else high if value > 0 else low
        return _clamped(functions[mode](value), low, high)

    return compute


@pytest.mark.slow
def test_conversions(lanes: Lanes) -> None:
    """Between all formats and integers, in every rounding mode."""
    checks: list[Check] = []
    for source in ("f64", "f32"):
        for target in ("f32", "f16", "bf16"):
            if source == target or (source, target) == ("f64", "bf16"):
                continue
            modes = ("rn", "rz") if target == "bf16" else ("rn", "rz", "rm", "rp")
            for mode in modes:
                checks.append(
                    (
                        case(f"cvt.{mode}.{target}.{source} d, a", target, source),
                        _converted(source, target, mode),
                    )
                )
    for source, target in (("f16", "f32"), ("bf16", "f32"), ("f32", "f64"), ("f16", "f64")):
        checks.append((case(f"cvt.{target}.{source} d, a", target, source), _converted(source, target, "rn")))
    for type in ("s32", "u32", "s64", "u64", "s16", "u16"):
        for target in ("f32", "f64", "f16"):
            for mode in ("rn", "rz", "rm", "rp"):
                checks.append(
                    (case(f"cvt.{mode}.{target}.{type} d, a", target, type), _converted(type, target, mode))
                )
        for source in ("f32", "f64", "f16"):
            for mode in ("rni", "rzi", "rmi", "rpi"):
                checks.append(
                    (case(f"cvt.{mode}.{type}.{source} d, a", type, source), _to_integer(source, type, mode))
                )
    _run(lanes, "conversion", checks)


def _pair(target: str, source: str, relu: bool = False) -> Callable[..., Any]:
    def compute(high: int, low: int) -> Any:
        one = _converted(source, target, "rn", target[0] == "e")
        codes = [one(low), one(high)]
        sign = FORMATS[target].sign
        return ([0 if relu and code != -1 and code & sign else code for code in codes],)

    return compute


def _unpacked(source: str) -> Callable[[int], Any]:
    one = _converted(source, "f16", "rn")
    return lambda codes: ([one(codes & 255), one(codes >> 8)],)


def test_conversions_to_small_formats(lanes: Lanes) -> None:
    """Pairs of f16, bf16 and 8-bit numbers; tf32."""
    f, tf32 = "f32", FORMATS["tf32"]
    checks: list[Check] = []
    for half in ("f16", "bf16"):
        checks += [
            (case(f"cvt.rn.{half}x2.f32 d, a, b", f"{half}x2", f, f), _pair(half, f)),
            (case(f"cvt.rn.relu.{half}x2.f32 d, a, b", f"{half}x2", f, f), _pair(half, f, True)),
        ]
    for eight in ("e4m3", "e5m2"):
        checks += [
            (case(f"cvt.rn.satfinite.{eight}x2.f32 d, a, b", f"{eight}x2", f, f), _pair(eight, f)),
            (case(f"cvt.rn.satfinite.relu.{eight}x2.f32 d, a, b", f"{eight}x2", f, f), _pair(eight, f, True)),
            (case(f"cvt.rn.satfinite.{eight}x2.f16x2 d, a", f"{eight}x2", "f16x2"),
             lambda both, e=eight: _pair(e, "f16")(both >> 16, both & 0xFFFF)),
            (case(f"cvt.rn.f16x2.{eight}x2 d, a", "f16x2", f"{eight}x2"), _unpacked(eight)),
        ]  # fmt: skip

    def to_tf32(code: int, mode: str) -> int:
        rounded = tf32.code(FORMATS[f].value(code), mode)
        return -1 if rounded == -1 else rounded << 13

    for mode in ("rn", "rna", "rz"):
        checks.append((case(f"cvt.{mode}.tf32.f32 d, a", f, f), lambda code, m=mode: to_tf32(code, m)))
    _run(lanes, "small_formats", checks)


def test_approximate_functions_are_within_their_bounds(lanes: Lanes) -> None:
    """Relative errors of the approximations stay under 2 ** -20 in the range where the manual bounds them."""
    functions: dict[str, Callable[[float], float]] = {
        "ex2.approx.f32": lambda x: 2.0**x, "lg2.approx.f32": math.log2, "rcp.approx.f32": lambda x: 1 / x,
        "rsqrt.approx.f32": lambda x: x**-0.5, "sqrt.approx.f32": math.sqrt, "sin.approx.f32": math.sin,
        "cos.approx.f32": math.cos, "tanh.approx.f32": math.tanh,
    }  # fmt: skip
    values = np.linspace(1.1, 3.0, ROWS).astype(np.float32)
    inputs = np.zeros((ROWS, len(functions), SLOTS), dtype=np.uint64)
    inputs[:, :, 0] = values.view(np.uint32)[:, None]
    results = lanes.run("approximate", [case(f"{name} d, a", "f32", "f32") for name in functions], inputs)
    for number, (name, function) in enumerate(functions.items()):
        got = results[:, number, 0].astype(np.uint32).view(np.float32)
        want = np.array([function(float(x)) for x in values])
        assert np.abs(got - want).max() <= 2.0**-20 * np.abs(want).max(), name
