"""Test cases as upskill keeps them: `tests` in skill_meta.json, or a file of cases.

What upskill would check and a machine can check without upskill is a check; all else is kept in words.
"""

from __future__ import annotations

from typing import Any, Final

from harness.cases.fields import Entry, written
from harness.cases.records import Check, TestCase

LISTS: Final = ("tests", "test_cases", "cases")
"""Names under which a document may keep its cases."""
_CASE: Final = (
    "id",
    "name",
    "input",
    "context",
    "expected",
    "verifiers",
    "validator",
    "output_file",
    "validator_config",
)
_EXPECTED: Final = ("contains", "output_contains", "regex", "file_exists", "file_contains", "command")


def case_of(entry: Entry, number: int) -> TestCase:
    """One case; `number` counts from 1 and names a case without a name. Raises UsageError."""
    checks, notes = _expected(entry)
    for verifier in entry.entries("verifiers"):
        more, note = verifier_checks(verifier)
        checks += more
        notes += note
    validator = entry.text("validator")
    if validator is not None:
        on = entry.text("output_file")
        notes.append(f"validator {validator}{f' of {on}' if on else ''}: it is Python inside upskill")
    return TestCase(
        id=(entry.text("id") or entry.text("name") or f"case-{number}")[:100],
        prompt=entry.needed("input"),
        files=_context(entry),
        checks=tuple(checks),
        not_checkable=(*notes, *entry.unknown(_CASE)),
    )


def _context(entry: Entry) -> dict[str, str]:
    """The files of a case's context."""
    files = entry.inner("context").inner("files")
    return {path: files.text(path) or "" for path in files.fields}


def _expected(entry: Entry) -> tuple[list[Check], list[str]]:
    """The checks of `expected`, whose keys have come and gone between versions."""
    expected = entry.inner("expected")
    checks = [
        expected.check(field, "contains", text)
        for field in ("contains", "output_contains")
        for text in expected.texts(field)
    ]
    checks += [expected.check("regex", "regex", text) for text in expected.texts("regex")]
    checks += [expected.check("file_exists", "file_exists", path=p) for p in expected.texts("file_exists")]
    if expected.fields.get("file_contains") is not None:
        checks += _file_contents(expected)
    checks += [expected.check("command", "command", text) for text in expected.texts("command")]
    return checks, expected.unknown((*_EXPECTED, "config"))


def _file_contents(expected: Entry) -> list[Check]:
    """`{path, text | values}`, a list of those, or an object from path to text."""
    value = expected.fields["file_contains"]
    if isinstance(value, list):
        return [c for one in expected.entries("file_contains") for c in _file_content(one)]
    inner = expected.inner("file_contains")
    if "path" in inner.fields:
        return _file_content(inner)
    return [
        inner.check(path, "file_contains", text, path) for path in inner.fields for text in inner.texts(path)
    ]


def _file_content(entry: Entry) -> list[Check]:
    path = entry.needed("path")
    return [entry.check("path", "file_contains", text, path) for text in _values(entry)]


def _values(entry: Entry) -> list[str]:
    """v2's `values`, or `text` where there are none; `value` and `pattern` are said elsewhere."""
    return next((v for v in map(entry.texts, ("values", "text", "value", "pattern")) if v), [])


def verifier_checks(entry: Entry) -> tuple[list[Check], list[str]]:
    """The checks of one verifier of v2, and what of it cannot be checked here. Raises UsageError."""
    kind = entry.needed("type")
    if kind in ("contains", "output_contains"):
        return [entry.check("values", "contains", text) for text in _values(entry)], []
    if kind == "regex":
        return [entry.check("pattern", "regex", text) for text in _values(entry)], []
    if kind == "file_exists":
        return [entry.check("path", "file_exists", path=entry.needed("path"))], []
    if kind == "file_contains":
        return _file_content(entry), []
    if kind == "command":
        field = "command" if entry.fields.get("cmd") is None else "cmd"
        return [entry.check(field, "command", entry.needed(field))], []
    fields: dict[str, Any] = {name: value for name, value in entry.fields.items() if value is not None}
    return [], [f"verifier {written(fields)}: no check of this type is known here"]
