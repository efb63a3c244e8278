"""Turns validation errors into messages for the author of a file, without class names."""

from __future__ import annotations

import re
from typing import Any, Final

from pydantic import ValidationError

_SHOWN: Final = 3
_VALUE_CHARS: Final = 40
# pydantic names the tried class or type of a union in the place of a field.
_NO_FIELD: Final = re.compile(r"[A-Z][a-z]+[A-Z]?\w*|.*\[.*\]")
_WORDS: Final = {
    "missing": "is missing",
    "extra_forbidden": "is not known here",
    "string_type": "must be text",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "dict_type": "must hold named fields",
    "model_type": "must hold named fields",
    "model_attributes_type": "must hold named fields",
}


def reason_of(error: Exception) -> str:
    """The first three faults of a ValidationError, each after its field; the message of other errors."""
    if isinstance(error, ValidationError):
        faults = error.errors(include_url=False)
        lines = list(dict.fromkeys(map(_line, faults)))
        more = len(lines) - _SHOWN
        return "; ".join(lines[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)


def field_of(fault: Any) -> str:
    """`operands.0.shape`; empty where the whole value is at fault."""
    parts = [str(part) for part in fault["loc"]]
    return ".".join(part for part in parts if not _NO_FIELD.fullmatch(part))


def words_of(fault: Any) -> str:
    """What is wrong with the field: `must be an integer, not 'many'`."""
    kind, said = fault["type"], fault["msg"]
    if kind in ("value_error", "assertion_error"):
        return str(said).partition(", ")[2]
    if kind == "json_invalid":
        return f"no JSON: {said.removeprefix('Invalid JSON: ')}"
    words = _WORDS.get(kind) or _must(said)
    value = fault["input"]
    known = isinstance(value, str | int | float) and len(str(value)) <= _VALUE_CHARS
    return f"{words}, not {value!r}" if known and words.startswith("must") else words


def _must(said: str) -> str:
    """`Input should be a valid integer, unable to parse ...` -> `must be an integer`."""
    words = re.sub(r"^Input should ", "must ", said.partition(", unable to")[0].partition(", got a")[0])
    words = re.sub(r"\bbe a valid (?=[aeiou])", "be an ", words)
    words = words.replace("be a valid ", "be a ").replace("an boolean", "a boolean")
    return words.replace("a boolean", "true or false")


def _line(fault: Any) -> str:
    field = field_of(fault)
    return f"{field}: {words_of(fault)}" if field else words_of(fault)
