"""Exact arithmetic: floating-point formats as fractions, rounded once, to compare results with."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Format:
    """A binary format: digits after the leading one, exponent bias, width; `infinite`: it has infinities."""

    digits: int
    bias: int
    width: int
    infinite: bool = True
    nan: int = 0

    @property
    def sign(self) -> int:
        """Mask of the sign bit."""
        return 1 << (self.width - 1)

    @property
    def highest(self) -> int:
        """Code of the largest finite number."""
        return self.infinity - 1

    @property
    def infinity(self) -> int:
        """Code of infinity; of NaN where there is none."""
        if not self.infinite:
            return self.sign - 1
        return (self.sign - 1) >> self.digits << self.digits

    def value(self, code: int) -> Fraction | float:
        """The number that a code stands for; a float for zeros (signed), infinities and NaN."""
        size, negative = code & (self.sign - 1), bool(code & self.sign)
        if size > self.highest:
            special = math.inf if size == self.infinity and self.infinite else math.nan
            return -special if negative else special
        exponent, digits = size >> self.digits, size & ((1 << self.digits) - 1)
        if size == 0:
            return -0.0 if negative else 0.0
        scale = Fraction(2) ** (max(exponent, 1) - self.bias - self.digits)
        number = (digits + (1 << self.digits) * (exponent > 0)) * scale
        return -number if negative else number

    def code(self, value: Fraction | float, mode: str = "rn", finite: bool = False) -> int:
        """The code nearest to a value in the direction of `mode`; -1 stands for any NaN."""
        if isinstance(value, float):
            if math.isnan(value):
                return -1
            negative = math.copysign(1.0, value) < 0
            if math.isinf(value):
                return (self.sign if negative else 0) | (self.highest if finite else self._past)
            if value == 0:
                return self.sign if negative else 0
            value = Fraction(value)
        negative, size = value < 0, abs(value)
        exponent = max(_exponent(size), 1 - self.bias)
        units = size / Fraction(2) ** (exponent - self.digits)
        whole, rest = units.numerator // units.denominator, units - units.numerator // units.denominator
        towards_zero = mode == "rz" or mode == ("rp" if negative else "rm")
        if mode == ("rm" if negative else "rp"):
            up = rest > 0
        elif towards_zero:
            up = False
        else:
            up = rest > Fraction(1, 2) or (rest == Fraction(1, 2) and (mode == "rna" or whole % 2 == 1))
        code = ((exponent + self.bias - 1) << self.digits) + whole + up
        if code > self.highest:
            code = self.highest if finite or towards_zero else self._past
        return code if code < 0 else code | (self.sign if negative else 0)

    @property
    def _past(self) -> int:
        return self.infinity if self.infinite else -1


FORMATS = {
    "f64": Format(52, 1023, 64),
    "f32": Format(23, 127, 32),
    "f16": Format(10, 15, 16),
    "bf16": Format(7, 127, 16),
    "tf32": Format(10, 127, 19),
    "e4m3": Format(3, 7, 8, infinite=False),
    "e5m2": Format(2, 15, 8),
}


def _exponent(size: Fraction) -> int:
    guess = size.numerator.bit_length() - size.denominator.bit_length()
    return guess if size >= Fraction(2) ** guess else guess - 1


def total(x: Fraction | float, y: Fraction | float, mode: str) -> Fraction | float:
    """x + y with the sign of an exact zero that IEEE 754 asks for."""
    if isinstance(x, float) and isinstance(y, float):
        if x == 0 and y == 0 and math.copysign(1, x) != math.copysign(1, y):
            return -0.0 if mode == "rm" else 0.0
        return x + y
    if isinstance(x, float):
        return y if x == 0 else x
    if isinstance(y, float):
        return x if y == 0 else y
    if x + y == 0:
        return -0.0 if mode == "rm" else 0.0
    return x + y


def product(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    """x * y."""
    if isinstance(x, float) or isinstance(y, float):
        return _small(x) * _small(y)
    return x * y


def quotient(x: Fraction | float, y: Fraction | float) -> Fraction | float:
    """x / y."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x / y
    a, b = _small(x), _small(y)
    if b == 0:
        if a == 0 or math.isnan(a):
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1, b)
    return math.nan if math.isinf(a) and math.isinf(b) else a / b


def _small(x: Fraction | float) -> float:
    """The class of a number as a float: its sign, and whether it is finite."""
    return x if isinstance(x, float) else math.copysign(1.0, x)
