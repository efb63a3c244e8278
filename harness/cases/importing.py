"""Reads the test cases of a skill, from whichever of the two formats it has.

A file that cannot be used is a UsageError that says where and why.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from harness.cases import evals_format, upskill_format
from harness.cases.fields import Entry, entries
from harness.cases.records import TestCase
from harness.errors import UsageError
from harness.records.reasons import field_of, words_of

FILES: Final = ("skill_meta.json", "evals/evals.json")
"""Where a skill keeps test cases: upskill's file, and that of agentskills.io."""
_DOCUMENT_LIMIT: Final = 16 << 20
_MOST_CASES: Final = 1_000


def load_cases(path: Path) -> tuple[TestCase, ...]:
    """The cases of a skill's folder (of all its files) or of one file. Raises UsageError; never empty."""
    files = [path] if not path.is_dir() else [path / name for name in FILES if (path / name).is_file()]
    if not files:
        raise UsageError(f"{path} has no test cases: neither {' nor '.join(FILES)}")
    cases = tuple(case for file in files for case in _cases_of(file))
    if not cases:
        raise UsageError(f"{' and '.join(map(str, files))}: there are no test cases in it")
    if len(cases) > _MOST_CASES:
        raise UsageError(f"{path} holds {len(cases)} test cases; at most {_MOST_CASES} are taken")
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise UsageError(f"{path}: two test cases have the id {case.id!r}; give each its own")
        seen.add(case.id)
    return cases


def _cases_of(file: Path) -> list[TestCase]:
    document = _document(file)
    if isinstance(document, list):
        return _read(entries(file, "the list", document), upskill_format.case_of)
    if not isinstance(document, dict):
        raise UsageError(f"{file} must hold a JSON object, or a list of test cases")
    named = [name for name in (evals_format.LIST, *upskill_format.LISTS) if document.get(name) is not None]
    found: list[TestCase] = []
    for name in named:
        read = evals_format.case_of if name == evals_format.LIST else upskill_format.case_of
        items = Entry(file, "the document", document).items(name)
        found += _read(entries(file, name, items), read)
    if not named and file.name != "skill_meta.json":  # which may hold metadata alone
        names = ", ".join((evals_format.LIST, *upskill_format.LISTS))
        raise UsageError(f"{file} is no file of test cases: it has none of {names}")
    return found


def _read(found: list[Entry], case_of: Callable[[Entry, int], TestCase]) -> list[TestCase]:
    cases = []
    for number, entry in enumerate(found, start=1):
        try:
            cases.append(case_of(entry, number))
        except ValidationError as error:
            fault = error.errors()[0]
            raise entry.fault(field_of(fault), words_of(fault)) from None
    return cases


def _document(file: Path) -> Any:
    try:
        with file.open("rb") as source:
            data = source.read(_DOCUMENT_LIMIT + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > _DOCUMENT_LIMIT:
        raise UsageError(f"{file} is larger than 16 MiB")
    try:
        document = json.loads(data.decode("utf-8-sig"))
        json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair could not be kept
        return document
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no JSON: {error}") from None
