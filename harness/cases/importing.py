"""Reads the test cases of a skill, in the format of upskill, agentskills.io or NVIDIA.

What a machine can check becomes a check; everything else is kept in words and never scored. A file that
cannot be used is a UsageError that names the file, the entry and the field.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from harness.cases.schema import COMMAND_WALL_LIMIT_S, COMMAND_WALL_S, Check, TestCase
from harness.errors import UsageError
from harness.files import unsafe_path
from harness.records.reasons import reason_of

FILES: Final = ("skill_meta.json", "evals/evals.json")
FILE_LIMIT: Final = 256 << 10


def load_cases(path: Path) -> tuple[TestCase, ...]:
    """The cases of a skill's folder (of all its files) or of one file. Raises UsageError; never empty."""
    files = [path] if not path.is_dir() else [path / name for name in FILES if (path / name).is_file()]
    if not files:
        raise UsageError(f"{path} has no test cases: neither {' nor '.join(FILES)}")
    cases = tuple(case for file in files for case in _cases_of(file))
    if not cases:
        raise UsageError(f"{' and '.join(map(str, files))}: there are no test cases in it")
    seen: set[str] = set()
    for case in cases:
        if case.id in seen:
            raise UsageError(f"{path}: two test cases have the id {case.id!r}; give each its own")
        seen.add(case.id)
    return cases


def _cases_of(file: Path) -> list[TestCase]:
    document = _document(file)
    lists = {"": document} if isinstance(document, list) else document
    if not isinstance(lists, dict):
        raise UsageError(f"{file} must hold a JSON object, or a list of test cases")
    lists = {name: lists[name] for name in ("", *_FORMATS) if lists.get(name) is not None}
    if not lists and file.name != "skill_meta.json":  # which may hold metadata alone
        raise UsageError(f"{file} is not a file of test cases: it has none of {', '.join(_FORMATS)}")
    found = []
    for name, entries in lists.items():
        if not isinstance(entries, list):
            raise UsageError(f"{file}: {name} must be a list")
        for index, entry in enumerate(entries):
            try:
                asks = isinstance(entry, dict) and "question" in entry
                kind = _FORMATS.get(name, _NvidiaCase if asks else _UpskillCase)
                found.append(kind.model_validate(entry).case(index + 1, file))
            except ValueError as error:  # ValidationError is one
                raise UsageError(f"{file}: {name}[{index}]: {reason_of(error)}") from None
    return found


def _document(file: Path) -> Any:
    try:
        document = json.loads(file.read_bytes().decode("utf-8-sig"))
        json.dumps(document, ensure_ascii=False).encode()  # half of a surrogate pair could not be kept
        return document
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}") from None


def _listed(value: Any) -> Any:
    """A text as a list of one, null as an empty list; blank texts demand nothing and are left out."""
    values = [] if value is None else [value] if isinstance(value, str) else value
    if isinstance(values, list):
        return [item for item in values if not isinstance(item, str) or item.strip()]
    return values


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("is blank")
    return text


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


Texts = Annotated[list[str], BeforeValidator(_listed)]
Required = Annotated[str, AfterValidator(_not_blank)]


class _Entry(BaseModel):
    """An object of a file. Unknown fields are kept; null is absent."""

    model_config = ConfigDict(extra="allow", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: inner for name, inner in value.items() if inner is not None}
        return value

    def unknown(self) -> list[str]:
        """A note for each unknown field that holds something."""
        extra = {name: value for name, value in (self.model_extra or {}).items() if value}
        return [
            f"{name}: {_written(value)} (a field that is not known here)" for name, value in extra.items()
        ]


class _Config(_Entry):
    timeout_seconds: float = Field(default=COMMAND_WALL_S, gt=0, le=COMMAND_WALL_LIMIT_S)


_TYPES: Final = ("contains", "output_contains", "regex", "file_exists", "file_contains", "command")


class _Verifier(_Entry):
    """A verifier of upskill's v2; its texts are under any of four names."""

    type: Required
    values: Texts = []
    text: Texts = []
    value: Texts = []
    pattern: Texts = []
    path: str = ""
    cmd: str = ""
    command: str = ""
    config: _Config = _Config()

    @model_validator(mode="after")
    def _is_complete(self) -> _Verifier:
        if self.type in ("file_exists", "file_contains") and not self.path.strip():
            raise ValueError("path is missing or blank")
        if self.type == "command" and not (self.cmd or self.command).strip():
            raise ValueError("cmd is missing or blank")
        return self

    def checks(self) -> list[Check]:
        texts = self.values or self.text or self.value or self.pattern
        match self.type:
            case "contains" | "output_contains":
                return [Check(kind="contains", text=text) for text in texts]
            case "regex":
                return [Check(kind="regex", text=text) for text in texts]
            case "file_exists":
                return [Check(kind="file_exists", path=self.path)]
            case "file_contains":
                return [Check(kind="file_contains", text=text, path=self.path) for text in texts]
            case "command":
                wall_s = self.config.timeout_seconds
                return [Check(kind="command", text=self.cmd or self.command, wall_s=wall_s)]
        return []

    def notes(self) -> list[str]:
        """The verifier in words, if it cannot be checked here."""
        if self.type in _TYPES:
            return []
        words = _written(self.model_dump(exclude_unset=True))
        return [f"verifier {words}: no check of this type is known here"]


class _Expected(_Entry):
    """`contains`, which all versions of upskill read, or other types of verifiers as keys."""

    contains: Texts = []
    output_contains: Texts = []
    regex: Texts = []
    file_exists: Texts = []
    file_contains: dict[str, Texts] = {}
    command: Texts = []

    def checks(self) -> list[Check]:
        in_files = ((path, text) for path, texts in self.file_contains.items() for text in texts)
        return [
            *(Check(kind="contains", text=text) for text in (*self.contains, *self.output_contains)),
            *(Check(kind="regex", text=text) for text in self.regex),
            *(Check(kind="file_exists", path=path) for path in self.file_exists),
            *(Check(kind="file_contains", path=path, text=text) for path, text in in_files),
            *(Check(kind="command", text=text, wall_s=COMMAND_WALL_S) for text in self.command),
        ]


class _Context(_Entry):
    files: dict[str, str] = {}


class _UpskillCase(_Entry):
    """A case of upskill's: `tests` in skill_meta.json, or a file of cases."""

    id: str | None = None
    name: str | None = None
    input: Required
    context: _Context = _Context()
    expected: _Expected = _Expected()
    verifiers: list[_Verifier] = []
    validator: str | None = None
    output_file: str | None = None
    validator_config: Any = None

    def case(self, number: int, file: Path) -> TestCase:
        """`number`, from 1, names a case without a name."""
        notes = [*self.expected.unknown(), *(note for one in self.verifiers for note in one.notes())]
        if self.validator is not None:
            on = f" of {self.output_file}" if self.output_file else ""
            notes.append(f"validator {self.validator}{on}: it is Python inside upskill")
        return TestCase(
            id=(self.id or self.name or f"case-{number}")[:100],
            prompt=self.input,
            files=self.context.files,
            checks=(*self.expected.checks(), *(check for one in self.verifiers for check in one.checks())),
            not_checkable=(*notes, *self.unknown()),
        )


class _Eval(_Entry):
    """A case of agentskills.io: evals/evals.json. An assertion with a `type` is a verifier of upskill's."""

    id: Any = None
    name: Any = None
    prompt: Required
    expected_output: str = ""
    files: Texts = []
    assertions: list[Any] = []
    expectations: list[Any] = []

    def case(self, number: int, file: Path) -> TestCase:
        """`number`, from 1, names a case without an id; `file` holds it."""
        notes = [f"expected_output: {self.expected_output}"] if self.expected_output.strip() else []
        checks: list[Check] = []
        for one in (*self.assertions, *self.expectations):
            if isinstance(one, dict) and "type" in one:
                verifier = _Verifier.model_validate(one)
                checks += verifier.checks()
                notes += verifier.notes()
            else:
                notes.append(_written(one))
        return TestCase(
            id=f"eval-{number if self.id is None else _written(self.id)}"[:100],
            prompt=self.prompt,
            files={path: _read(file, path) for path in self.files},
            checks=tuple(checks),
            not_checkable=(*notes, *self.unknown()),
        )


class _NvidiaCase(_Entry):
    """An entry of NVIDIA's evals.json, a bare list: a judge model compares prose with what an agent did.

    Nothing in it can be checked without a model, so every field is kept in words.
    """

    id: Any = None
    question: Required
    expected_skill: str | None = None
    expected_script: str | None = None
    ground_truth: str = ""
    expected_behavior: Texts = []
    should_trigger: bool = True

    def case(self, number: int, file: Path) -> TestCase:
        """`number`, from 1, names a case without an id."""
        told = {"expected_skill": self.expected_skill, "expected_script": self.expected_script}
        told["ground_truth"] = self.ground_truth.strip()
        notes = [f"{name}: {text}" for name, text in told.items() if text]
        notes += [f"expected_behavior: {text}" for text in self.expected_behavior]
        if not self.should_trigger:
            notes.append("should_trigger: the skill should not be used for this prompt")
        return TestCase(
            id=f"eval-{number}" if self.id is None else _written(self.id)[:100],
            prompt=self.question,
            not_checkable=(*notes, *self.unknown()),
        )


def _read(file: Path, path: str) -> str:
    """The text of a file named relative to the skill's folder, or to the document's. Raises ValueError."""
    if unsafe_path(path) is not None:
        raise ValueError(f"files names {path!r}, which {unsafe_path(path)}")
    here = file.resolve().parent
    root = here.parent if here.name == "evals" else here
    found = next((p for p in (root / path, here / path) if p.is_file()), None)
    if found is None or not found.resolve().is_relative_to(root):
        raise ValueError(f"files names {path!r}; there is no such file in {root}")
    if found.stat().st_size > FILE_LIMIT:
        raise ValueError(f"files names {path!r}, which is larger than {FILE_LIMIT >> 10} KiB")
    try:
        return found.read_bytes().decode()
    except OSError as error:
        raise ValueError(f"files names {path!r}, which cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ValueError(f"files names {path!r}, which is not text and cannot be in a prompt") from None


_FORMATS: Final[dict[str, type[_UpskillCase | _Eval]]] = {
    "evals": _Eval,
    "tests": _UpskillCase,
    "test_cases": _UpskillCase,
    "cases": _UpskillCase,
}
"""The names under which a document may keep its cases."""
