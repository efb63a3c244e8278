"""Reads fields of a JSON document, and says where what is wrong stands.

A field of a wrong type is a UsageError that names file, entry and field; null is absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from harness.cases.records import COMMAND_WALL_S, Check, CheckKind
from harness.errors import UsageError
from harness.records.reasons import reason_of


@dataclass(frozen=True)
class Entry:
    """A JSON object of a file, and where in it: `tests[2]`."""

    file: Path
    where: str
    fields: Mapping[str, Any]

    def fault(self, field: str, message: str) -> UsageError:
        """To be raised."""
        return UsageError(f"{self.file}: {self.where}.{field} {message}")

    def text(self, field: str) -> str | None:
        """A text, or None where there is none."""
        value = self.fields.get(field)
        if value is None or isinstance(value, str):
            return value
        raise self.fault(field, f"must be text, not {_kind(value)}")

    def needed(self, field: str) -> str:
        """A text that is not blank."""
        value = self.text(field)
        if value is None or not value.strip():
            raise self.fault(field, "is missing or blank")
        return value

    def texts(self, field: str) -> list[str]:
        """A text or a list of texts; blank ones demand nothing and are left out."""
        value = self.fields.get(field)
        found = [value] if isinstance(value, str) else self.items(field)
        for item in found:
            if not isinstance(item, str):
                raise self.fault(field, f"must be text or a list of texts; it holds {_kind(item)}")
        return [item for item in found if item.strip()]

    def items(self, field: str) -> list[Any]:
        """A list; empty where there is none."""
        value = self.fields.get(field)
        if value is None or isinstance(value, list):
            return value or []
        raise self.fault(field, f"must be a list, not {_kind(value)}")

    def inner(self, field: str) -> Entry:
        """An object; without fields where there is none."""
        value = self.fields.get(field)
        if value is None or isinstance(value, dict):
            return Entry(self.file, f"{self.where}.{field}", value or {})
        raise self.fault(field, f"must be an object, not {_kind(value)}")

    def entries(self, field: str) -> list[Entry]:
        """A list of objects."""
        return entries(self.file, f"{self.where}.{field}", self.items(field))

    def check(self, field: str, kind: CheckKind, text: str | None = None, path: str | None = None) -> Check:
        """A check; `field` is where it was asked for."""
        wall_s = None
        if kind == "command":
            wall_s = self.inner("config").number("timeout_seconds", COMMAND_WALL_S)
        try:
            return Check(kind=kind, text=text, path=path, wall_s=wall_s)
        except ValidationError as error:
            raise self.fault(field, f"cannot be checked: {reason_of(error)}") from None

    def number(self, field: str, default: float) -> float:
        """A number."""
        value = self.fields.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(field, f"must be a number, not {_kind(value)}")
        return float(value)

    def unknown(self, known: tuple[str, ...]) -> list[str]:
        """A note for each field that is none of `known` and holds something."""
        fields = {name: value for name, value in self.fields.items() if name not in known and value}
        return [
            f"{name}: {written(value)} (a field that is not known here)" for name, value in fields.items()
        ]


def entries(file: Path, where: str, values: list[Any]) -> list[Entry]:
    """The objects of a list. Raises UsageError for anything else in it."""
    found = []
    for index, value in enumerate(values):
        if not isinstance(value, dict):
            raise UsageError(f"{file}: {where}[{index}] must be an object, not {_kind(value)}")
        found.append(Entry(file, f"{where}[{index}]", value))
    return found


def written(value: Any) -> str:
    """A JSON value in one line."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
