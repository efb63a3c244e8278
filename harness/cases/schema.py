"""Records of test cases: what is asked, what is checked, what was answered, and the counts."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.files import unsafe_path
from harness.records import Arm, ModelSpec, Record, Reply, Sampling

CheckKind = Literal["contains", "regex", "file_exists", "file_contains", "command"]
Verdict = Literal["passed", "failed", "not_run"]

_NAME_BYTES: Final = 255  # NAME_MAX of Linux
COMMAND_WALL_S: Final = 60.0
"""upskill's own default for its verifiers."""
COMMAND_WALL_LIMIT_S: Final = 600.0
_HAS: Final[dict[CheckKind, tuple[bool, bool]]] = {
    "contains": (True, False),
    "regex": (True, False),
    "file_exists": (False, True),
    "file_contains": (True, True),
    "command": (True, False),
}
"""By kind: whether it has a text, and a path."""


def unfit(path: str, files: Mapping[str, str]) -> str | None:
    """Why `path` cannot be written together with `files`; None if it can."""
    reason = unsafe_path(path)
    if reason is not None:
        return reason
    if any(len(part.encode(errors="replace")) > _NAME_BYTES for part in path.split("/")):
        return f"has a name of more than {_NAME_BYTES} bytes"
    if any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 for char in path):
        return "has characters that no file name should have"
    inner = {parent.as_posix() for file in files for parent in PurePosixPath(file).parents}
    outer = {parent.as_posix() for parent in PurePosixPath(path).parents}
    if path in inner or outer & set(files):
        return "is a file and a folder at once"
    return None


class Check(Record):
    """One thing that a machine can check in a reply. It has exactly the fields of its kind."""

    kind: CheckKind
    text: str | None = None
    """What must occur (letter case is ignored), the regular expression, or the shell command."""
    path: str | None = None
    """Of a file of the reply; relative, without `..`."""
    wall_s: float | None = Field(default=None, gt=0.0, le=COMMAND_WALL_LIMIT_S)
    """Time limit of a command; None for every other kind."""

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str | None) -> str | None:
        if path is None:
            return None
        reason = unsafe_path(path)
        if reason is not None:
            raise ValueError(f"the path {path!r} {reason}")
        return PurePosixPath(path).as_posix()

    @model_validator(mode="after")
    def _fits_kind(self) -> Self:
        if (self.text is not None, self.path is not None) != _HAS[self.kind]:
            raise ValueError(f"a check {self.kind} has other fields")
        if (self.wall_s is not None) != (self.kind == "command"):
            raise ValueError("only a command has a time limit, and it needs one")
        if self.kind == "regex":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a later Python will read otherwise
                try:
                    re.compile(self.text or "")
                except (re.error, RecursionError, OverflowError) as error:
                    raise ValueError(f"{self.text!r} is not a regular expression: {error}") from None
        return self


class TestCase(Record):
    """A prompt, and what a reply to it must hold."""

    __test__: ClassVar[bool] = False  # not a test, in spite of its name

    id: str = Field(min_length=1, max_length=100)
    """Unique within a file."""
    prompt: str
    files: dict[str, str] = Field(default_factory=dict)
    """Text by path, given with the prompt."""
    checks: tuple[Check, ...] = ()
    not_checkable: tuple[str, ...] = ()
    """What the file demands otherwise, in words: kept, never scored."""

    @field_validator("files")
    @classmethod
    def _fit_together(cls, files: dict[str, str]) -> dict[str, str]:
        """They can be written together into a folder."""
        tidy: dict[str, str] = {}
        for path, text in files.items():
            reason = unfit(path, tidy) if path.strip() else "is blank"
            if reason is not None:
                raise ValueError(f"the file {path!r} {reason}")
            tidy[PurePosixPath(path).as_posix()] = text
        return tidy

    def words(self, number: int) -> str:
        """One check in words: `contains 'sm_90a'`."""
        check = self.checks[number]
        parts = [check.kind, check.path, None if check.text is None else repr(check.text)]
        return " ".join(part for part in parts if part is not None)


class CheckOutcome(Record):
    """The result of one check. It says why, unless the check passed."""

    passed: bool | None
    """None: it was not run."""
    cause: str = ""
    """Why it did not pass; empty where it did."""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if bool(self.cause) == (self.passed is True):
            raise ValueError("an outcome has a cause exactly where it did not pass")
        return self


class Worth(Record):
    """Whether passing a case proves anything."""

    case: str
    worth: Literal["some", "none", "unknown"]
    passed_by: str | None = None
    why: str


class CasesConfig(Record):
    """What defines a run of test cases: two equal ones are the same run."""

    skill: str
    skill_digest: str
    skill_text: str
    """What precedes the prompt in the arm with_skill."""
    system: str
    models: tuple[ModelSpec, ...]
    arms: tuple[Arm, ...]
    repeats: int = Field(ge=1)
    sampling: Sampling
    cases: tuple[TestCase, ...]


class CasesRun(Record):
    """The head of a run: cases.json."""

    schema_version: Literal[1] = 1
    run_id: str
    created: str
    liftbench: str
    config: CasesConfig


class AnswerKey(Record):
    """Which answer of a run."""

    case: str
    model: str
    arm: str
    repeat: int


class CaseAnswer(Record):
    """One reply and its score: a line of cases.jsonl."""

    key: AnswerKey
    prompt_digest: str
    reply: Reply
    outcomes: tuple[CheckOutcome, ...]
    sandbox: str | None = None


class Rate(Record):
    """How often a case was passed; answers whose command was not run are not scored."""

    passed: int
    scored: int
    not_run: int


class CaseRow(Record):
    """One case, asked of one model."""

    case: str
    worth: Worth
    without_skill: Rate
    with_skill: Rate
    tells_nothing_apart: bool


class ArmSums(Record):
    """The answers of one arm: what passed, and what it cost."""

    rate: Rate
    """Of cases that are worth something."""
    input_tokens: int | None
    """Of all answers; None where one is unknown."""
    output_tokens: int | None
    cost_usd: float | None


class ModelTally(Record):
    """One model."""

    model: str
    rows: tuple[CaseRow, ...]
    without_skill: ArmSums
    with_skill: ArmSums


class CasesTally(Record):
    """One run."""

    schema_version: Literal[1] = 1
    run_id: str
    skill: str
    repeats: int
    answers_owed: int
    models: tuple[ModelTally, ...]
