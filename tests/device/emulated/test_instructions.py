"""Instructions compute what the PTX manual says, to the bit: compared with exact arithmetic and Python's integers."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.emulated.exact import FORMATS, product, quotient, total
from tests.device.emulated.lanes import SLOTS, Case, Lanes, case

Check = tuple[Case, Callable[..., Any]]
ROWS = 48
NAN = "nan"


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> Lanes:
    return Lanes(tmp_path_factory.mktemp("lanes"))


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _width(type: str) -> int:
    return {"pred": 1, "e4m3x2": 16, "e5m2x2": 16}.get(type) or (32 if type.endswith("x2") else int(type.lstrip("subft")))


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
            size = rng.choice([0, 1, form.infinity, form.highest, 1 << form.digits, (1 << form.digits) - 1, form.sign - 1])
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
            typed = [_signed(v, _width(t)) if t[0] == "s" else v for v, t in zip(given, one.inputs, strict=True)]
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

            checks.append((case(f"{name}.{form}x2 {operands}", f"{form}x2", *[f"{form}x2"] * count), lambda *c, f=both: (f(*c),)))
    _run(lanes, "small", checks)
