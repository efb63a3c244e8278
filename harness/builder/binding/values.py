"""What a C++ type receives of a schema's type through the stable ABI.

A type that is not known is None, and nothing is said of it.

The stable ABI passes every value in 8 bytes and copies them, low bytes first, into whatever type the
function has: a schema's `float` arrives as a double, an `int` as an int64_t, a `bool` as one byte and
seven zeros. Measured with torch 2.13: 0.5 arrives in a C++ float as 0.0, 0.1 as -1.6e-23; 2**31 + 1 in an
int as -2147483647; a result of -7 returned as int becomes 4294967289.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, NamedTuple

Shape = tuple[Literal["optional", "list"], ...]

_SCHEMA: Final = re.compile(
    r"\s*(?:\w{1,200}::)?(?P<name>\w{1,200}(?:\.\w{1,200})?)\s*\((?P<inside>[^\n]*)\)\s*->\s*(?P<result>[^\n]*?)\s*",
    re.A,
)
_SUFFIX: Final = re.compile(r"(\?|\[\d{0,9}\])\Z")
_OPTIONAL: Final = frozenset({"optional"})
_LISTS: Final = frozenset({"vector", "ArrayRef", "HeaderOnlyArrayRef", "IntHeaderOnlyArrayRef"})
_IGNORED: Final = frozenset(
    {
        "const",
        "volatile",
        "&",
        "constexpr",
        "typename",
        "std",
        "c10",
        "torch",
        "headeronly",
        "at",
        "::",
        "__restrict__",
        "__restrict",
    }
)
_ARITHMETIC: Final = frozenset(
    {
        "unsigned",
        "signed",
        "int",
        "long",
        "short",
        "char",
        "float",
        "double",
        "bool",
    }
)
_NUMBERS: Final[dict[str, str]] = {
    "float": "f32",
    "double": "f64",
    "longdouble": "f80",
    "bool": "bool",
    "char": "i8",
    "short": "i16",
    "int": "i32",
    "long": "i64",
    **{f"{u}int{bits}_t": f"{u[:1] or 'i'}{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
    **dict.fromkeys(("ssize_t", "ptrdiff_t", "intptr_t", "intmax_t"), "i64"),
    **dict.fromkeys(("size_t", "uintptr_t", "uintmax_t"), "u64"),
}
_WRITE: Final = {"float": "double", "int": "int64_t", "bool": "bool"}


class Value(NamedTuple):
    """A number's type: on the C++ side `f32`, `i64`, `bool` ...; on the schema's `float`, `int`, `bool`."""

    base: str
    shape: Shape = ()
    """From the outside in."""


class Schema(NamedTuple):
    """An operator as it is defined."""

    name: str
    """With its overload, without its namespace."""
    parameters: tuple[str, ...]
    """Types."""
    result: str


def read_schema(text: str) -> Schema | None:
    """The schema in a string, if it is one."""
    match = _SCHEMA.fullmatch(text) if len(text) <= 4000 else None
    if match is None:
        return None
    parts = [part.split() for part in _split(match["inside"])]
    types = tuple(part[0] for part in parts if part and part[0] != "*")
    return Schema(match["name"], types, match["result"])


def _split(inside: str) -> list[str]:
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def schema_value(text: str) -> Value | None:
    """`float?` or `int[2]`; None for what is no number."""
    shape: list[Literal["optional", "list"]] = []
    while (suffix := _SUFFIX.search(text)) is not None:
        shape.append("optional" if suffix[1] == "?" else "list")
        text = text[: suffix.start()]
    base = {"SymInt": "int"}.get(text, text)
    return Value(base, tuple(shape)) if base in _WRITE else None


def cpp_value(words: Sequence[str], named: Callable[[str], Sequence[str] | None]) -> Value | None:
    """A parameter's or a result's type; `named` knows other names of types. None for what is no number."""
    rest = [word for word in words if word not in _IGNORED]
    head = []
    while rest and rest[0] in _ARITHMETIC:
        head.append(rest.pop(0))
    if head:
        return Value(_number(head)) if _at_most_a_name(rest) else None
    if not rest:
        return None
    first = rest.pop(0)
    if rest[:1] == ["<"] and first in _OPTIONAL | _LISTS:
        return _wrapped(first, rest, named)
    if not _at_most_a_name(rest):
        return None
    if first in _NUMBERS:
        return Value(_NUMBERS[first])
    other = named(first)
    return None if other is None else cpp_value(other, lambda _: None)


def _wrapped(first: str, rest: list[str], named: Callable[[str], Sequence[str] | None]) -> Value | None:
    """Of `<T> name`, T being a number or such a template of one."""
    depths = itertools.accumulate({"<": 1, ">": -1}.get(word, 0) for word in rest)
    end = next((index for index, depth in enumerate(depths) if depth == 0), None)
    inner = None if end is None else cpp_value(rest[1:end], named)
    if end is None or inner is None or not _at_most_a_name(rest[end + 1 :]):
        return None
    outer: Literal["optional", "list"] = "optional" if first in _OPTIONAL else "list"
    return Value(inner.base, (outer, *inner.shape))


def _at_most_a_name(rest: Sequence[str]) -> bool:
    return not rest or (len(rest) == 1 and rest[0].isidentifier())


def _number(head: Sequence[str]) -> str:
    """Of `unsigned long long int` and its kin."""
    words = set(head)
    if "double" in words:
        return "f80" if "long" in words else "f64"
    size = next((word for word in ("float", "bool", "char", "short", "long") if word in words), "int")
    known = _NUMBERS[size]
    return known.replace("i", "u") if "unsigned" in words else known


def harm_to_parameter(schema: Value | None, cpp: Value) -> str | None:
    """What a parameter holds instead of its argument; None where all is well, or nothing is known.

    `schema` is None where the operator's definition was not found: a C++ float is then never right.
    """
    if schema is None:
        return "it never holds the number that was passed" if cpp.base in ("f32", "f80") else None
    if schema.shape != cpp.shape:
        pointers = "it holds the bits of a pointer", "the bits of a number are taken for a pointer"
        return pointers[0] if len(schema.shape) > len(cpp.shape) else pointers[1]
    if schema.base == "float":
        return _of_double(cpp.base)
    if cpp.base[0] == "f":
        return f"it holds the bits of {'an int64_t' if schema.base == 'int' else 'a bool'}"
    if schema.base == "int" and cpp.base not in ("i64", "u64"):
        return "it holds 1 byte of 8" if cpp.base == "bool" else _low_bits(cpp.base)
    return None


def _of_double(base: str) -> str | None:
    if base == "f64":
        return None
    if base == "f32":
        return "it holds the low half of the double's bits, so garbage"
    return "it holds the bits of a double, so garbage"


def _low_bits(base: str) -> str:
    bits = int(base[1:])
    most, least = (f"2**{bits - 1}", f"-2**{bits - 1}") if base[0] == "i" else (f"2**{bits}", "0")
    return (
        f"it holds the low {bits} of 64 bits, so an argument of {most} or more, or below {least}, is changed"
    )


def harm_to_result(schema: str | None, cpp: Value) -> str | None:
    """As for parameters. Bytes that a smaller type lacks become zeros."""
    if cpp.shape:
        return None
    if cpp.base in ("f32", "f80"):
        return "the caller receives garbage"
    if schema == "int" and cpp.base in ("i8", "i16", "i32"):
        return "the caller receives another number where it is negative"
    wrong = (schema == "float" and cpp.base != "f64") or (schema in ("int", "bool") and cpp.base == "f64")
    return "the caller receives garbage" if wrong else None


def to_write(schema: Value | None) -> str:
    """The C++ type that fits; without a schema, what a float is to become."""
    if schema is None:
        return "double"
    made = _WRITE[schema.base]
    for outer in reversed(schema.shape):
        made = f"std::optional<{made}>" if outer == "optional" else f"std::vector<{made}>"
    return made
