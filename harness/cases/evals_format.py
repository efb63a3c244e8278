"""Test cases by the convention of agentskills.io: evals/evals.json.

A sentence is never turned into a check; a file is read only inside the skill's folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from harness.cases.fields import Entry, written
from harness.cases.records import Check, TestCase
from harness.cases.upskill_format import verifier_checks
from harness.files import unsafe_path

LIST: Final = "evals"
FILE_LIMIT: Final = 256 << 10
"""Bytes of one file that goes into a prompt."""
_SENTENCES: Final = ("assertions", "expectations")
_CASE: Final = ("id", "name", "prompt", "expected_output", "files", *_SENTENCES)


def case_of(entry: Entry, number: int) -> TestCase:
    """One case; `number` counts from 1 and names a case without an id. Raises UsageError."""
    checks: list[Check] = []
    notes: list[str] = []
    expected = entry.text("expected_output")
    if expected is not None and expected.strip():
        notes.append(f"expected_output: {expected}")
    for field in _SENTENCES:
        more, kept = _assertions(entry, field)
        checks += more
        notes += kept
    given = entry.fields.get("id")
    return TestCase(
        id=f"eval-{number if given is None else written(given)}"[:100],
        prompt=entry.needed("prompt"),
        files={path: _read(entry, path) for path in entry.texts("files")},
        checks=tuple(checks),
        not_checkable=(*notes, *entry.unknown(_CASE)),
    )


def _assertions(entry: Entry, field: str) -> tuple[list[Check], list[str]]:
    """Sentences are kept; an object with a `type` is read as a verifier of upskill's."""
    checks: list[Check] = []
    kept: list[str] = []
    for index, value in enumerate(entry.items(field)):
        if isinstance(value, dict) and "type" in value:
            more, notes = verifier_checks(Entry(entry.file, f"{entry.where}.{field}[{index}]", value))
            checks += more
            kept += notes
        else:
            kept.append(written(value))
    return checks, kept


def _read(entry: Entry, path: str) -> str:
    """The text of a file that is named relative to the skill's folder, or to the document's."""
    if unsafe_path(path) is not None:
        raise entry.fault("files", f"names {path!r}, which {unsafe_path(path)}")
    here = entry.file.resolve().parent
    root = here.parent if here.name == "evals" else here
    found = next((p for p in (root / path, here / path) if p.is_file()), None)
    if found is None or not found.resolve().is_relative_to(root):
        raise entry.fault("files", f"names {path!r}; there is no such file in {root}")
    data = _bytes(found)
    if data is None or len(data) > FILE_LIMIT:
        raise entry.fault("files", f"names {path!r}; it cannot be read, or is larger than 256 KiB")
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise entry.fault("files", f"names {path!r}; it is no text, so it has no place in a prompt") from None


def _bytes(path: Path) -> bytes | None:
    try:
        with path.open("rb") as source:
            return source.read(FILE_LIMIT + 1)
    except OSError:
        return None
