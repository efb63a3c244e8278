"""Records of test cases: what is asked, what is checked, what came of it.

A check has exactly the fields of its kind; an outcome that is no pass says why.
"""

from __future__ import annotations

import re
import warnings
from pathlib import PurePosixPath
from typing import ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.cases.reply_files import unfit
from harness.files import unsafe_path
from harness.records import Arm, ModelSpec, Record, Reply, Sampling

CheckKind = Literal["contains", "regex", "file_exists", "file_contains", "command"]
Verdict = Literal["passed", "failed", "not_run"]

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
"""Kind -> whether it has a text, whether it has a path."""


class Check(Record):
    """One thing that a machine can check of a reply."""

    kind: CheckKind
    text: str | None = None
    """What must occur (in any case of letters), the regular expression, or the shell command."""
    path: str | None = None
    """Of a file of the reply; relative, without `..`."""
    wall_s: float | None = Field(default=None, gt=0.0, le=COMMAND_WALL_LIMIT_S)
    """Longest run of a command; None for every other kind."""

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
            raise ValueError(f"a check {self.kind} has another set of fields")
        if (self.wall_s is not None) != (self.kind == "command"):
            raise ValueError("a command, and no other check, has a limit of time")
        if self.kind == "regex":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what a later Python will read otherwise
                try:
                    re.compile(self.text or "")
                except (re.error, RecursionError, OverflowError) as error:
                    raise ValueError(f"{self.text!r} is no regular expression: {error}") from None
        return self


class TestCase(Record):
    """A prompt, and what a reply to it must hold."""

    __test__: ClassVar[bool] = False  # pytest takes classes of this name for tests

    id: str = Field(min_length=1, max_length=100)
    """Unique within a file."""
    prompt: str
    files: dict[str, str] = Field(default_factory=dict)
    """Path -> text of what is given with the prompt."""
    checks: tuple[Check, ...] = ()
    """A reply must pass them all."""
    not_checkable: tuple[str, ...] = ()
    """What the file demands beside, in words: kept, and never scored."""

    @field_validator("files")
    @classmethod
    def _fit_together(cls, files: dict[str, str]) -> dict[str, str]:
        """They can be written side by side, inside a folder."""
        tidy: dict[str, str] = {}
        for path, text in files.items():
            reason = unfit(path, tidy) if path.strip() else "is blank"
            if reason is not None:
                raise ValueError(f"the file {path!r} {reason}")
            tidy[PurePosixPath(path).as_posix()] = text
        return tidy


class CheckOutcome(Record):
    """What became of one check."""

    passed: bool | None
    """None: it was not run."""
    cause: str = ""
    """Why it did not pass; empty exactly where it did."""

    @model_validator(mode="after")
    def _says_why(self) -> Self:
        if bool(self.cause) == (self.passed is True):
            raise ValueError("an outcome that is no pass, and no other, says why")
        return self


class Worth(Record):
    """Whether passing a case says anything."""

    case: str
    worth: Literal["some", "none", "unknown"]
    """`some`: no trivial answer passes it; `unknown`: a command that would tell was not run."""
    passed_by: str | None = None
    """The trivial answer that passes."""
    why: str
    """One line for people."""


class CasesConfig(Record):
    """What a run of test cases is: two equal ones are the same run."""

    skill: str
    skill_digest: str
    skill_text: str
    """As it stands before the prompt in the arm with_skill."""
    system: str
    """The system text, the same in both arms."""
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
    """UTC, ISO 8601."""
    liftbench: str
    """Version."""
    config: CasesConfig


class AnswerKey(Record):
    """Which answer of a run."""

    case: str
    model: str
    arm: str
    """Arm.id."""
    repeat: int


class CaseAnswer(Record):
    """One reply and its score: a line of cases.jsonl."""

    key: AnswerKey
    prompt_digest: str
    reply: Reply
    outcomes: tuple[CheckOutcome, ...]
    """In the order of the case's checks."""
    sandbox: str | None = None
    """Where its commands ran; None where none ran."""
