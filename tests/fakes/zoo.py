"""The rows of the zoo: what zoo.toml says of a project, and whether a grade agrees with it.

A row holds only for the reason that it names; what a noisy host leaves open is told apart from what holds.
"""

from __future__ import annotations

import secrets
import time
import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from harness.grading.grade import Grader
from harness.judge.physical_limits import ABOVE, SUSPICIOUS
from harness.outcome import Cause, Stage, Verdict
from harness.records import Grade
from harness.records.grade import EmulatedOutcome
from harness.records.project import COPIED
from harness.records.timing import NOISY
from harness.suite.catalogue import LoadedTask
from tests.fakes.overlays import ZOO, overlaid, throw_away_task, zoo_project
from tests.fakes.processes import processes_naming

SandboxName = Literal["local", "landlock", "bubblewrap", "docker"]
STRENGTH: tuple[SandboxName, ...] = ("local", "landlock", "bubblewrap", "docker")
"""Weakest first."""
CHEAT_FLAGS = frozenset({"clock_mismatch", ABOVE, SUSPICIOUS})
"""Flags of a timing that cast doubt on the project; `noisy host` and `clock-limited` are the machine's."""
HURRIED = {"build_wall_s": 12.0, "call_wall_s": 3.0}
"""In which a build imports torch, and begins what it never finishes; and a call begins."""
TRIES = 3
"""A noisy host widens what a clock may claim; such a grade is flagged and never ranked, and tried again."""
EMULATED = ZOO / "emulated.toml"
"""What rows for a GPU give on the emulated one."""
_EXPLOITS = r"([ABCD]\d{1,2}|other)(, ([ABCD]\d{1,2}))*"


class OnEmulated(BaseModel):
    """What a row for a GPU gives on the emulated one."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: EmulatedOutcome
    or_outcome: EmulatedOutcome | None = None
    """What may come instead, where that depends on when a thread runs."""
    message: str = ""
    """A fragment of the check's message."""
    lacks: str = ""
    """What the emulated GPU cannot show of it, and why; empty where the outcome is the project's own."""


class Row(BaseModel):
    """One zoo.toml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["hostile", "honest", "bad"]
    """`bad` is an honest mistake."""
    exploit: Annotated[str, Field(pattern=rf"^{_EXPLOITS}$")] | None = None
    """Rows of the catalogue of known exploits, or `other`."""
    holds_on: SandboxName = "local"
    """The weakest sandbox on which it must hold."""
    why: Annotated[str, Field(min_length=10, max_length=160, pattern=r"^[^|\n]+$")]
    """What it tries, or why it looks suspicious."""
    task: Annotated[str, Field(pattern=r"^t/\w+$")] = "t/scale"
    base: Annotated[str, Field(pattern=r"^base(_\w+)?$")] = "base"
    gpu: bool = False
    """It can only be tried on a machine with a GPU."""
    verdict: Verdict
    cause: Cause
    message: str
    """A fragment of the finding's message: the intended reason."""
    stage: Stage | None = None
    """Where the verdict must fall, where that is part of the reason."""
    flag: str | None = None
    """A flag that the timing must have, or `copied from kernels_ref` of the grade itself."""
    most_speedup: Annotated[float, Field(gt=1.0)] | None = None
    """How many times the score of its honest base it may reach."""
    or_cause: Cause | None = None
    """What it may be condemned for instead, where it need only be pointless (always: clock, interference)."""
    diagnostic: tuple[str | int, ...] | None = None
    """Kind and, where they matter, file and line of the build's only diagnostic."""
    emulated: OnEmulated | None = None
    """Of rows for a GPU, from emulated.toml."""

    @model_validator(mode="after")
    def _true_to_its_kind(self) -> Self:
        if self.cause.verdict is not self.verdict:
            raise ValueError(f"{self.name}: cause {self.cause} does not mean {self.verdict}")
        if (self.kind == "hostile") != (self.exploit is not None):
            raise ValueError(f"{self.name}: `exploit` is needed by, and only for, hostile projects")
        pointless = self.flag is not None or self.most_speedup is not None
        passes = self.verdict is Verdict.CORRECT
        if pointless and not (passes and self.kind == "hostile"):
            raise ValueError(f"{self.name}: `flag` and `most_speedup` are for attacks that end `correct`")
        if self.kind == "honest" and not passes:
            raise ValueError(f"{self.name}: an honest project must end `correct`")
        if self.kind == "hostile" and passes and not pointless:
            raise ValueError(f"{self.name}: an attack that ends `correct` needs `flag` or `most_speedup`")
        if self.kind == "bad" and self.verdict in (Verdict.CORRECT, Verdict.CHEATED):
            raise ValueError(f"{self.name}: a mistake is neither `correct` nor `cheated`")
        if self.gpu and (self.emulated is None or not (self.emulated.lacks or self._shown)):
            raise ValueError(f"{self.name}: emulated.toml must say what comes of it, and why not its verdict")
        return self

    @property
    def _shown(self) -> bool:
        return self.emulated is not None and self.verdict in {self.emulated.outcome, self.emulated.or_outcome}

    def expected_on(self, sandbox: str) -> bool:
        """Whether it must hold on that sandbox."""
        return STRENGTH.index(sandbox) >= STRENGTH.index(self.holds_on)  # type: ignore[arg-type]

    @property
    def timed(self) -> bool:
        """Whether it is judged by what a clock says: other work would disturb it."""
        return not self.gpu and (self.verdict is Verdict.CORRECT or self.cause is Cause.CLOCK)

    @property
    def alone(self) -> bool:
        """Whether it is judged by a clock or by who had the cores."""
        return self.timed or self.cause is Cause.BUILD_TIMEOUT

    @property
    def loaded_task(self) -> LoadedTask:
        """The task that it is graded on."""
        return throw_away_task(self.task.removeprefix("t/"))


def row_names() -> list[str]:
    """Folders of the zoo with a zoo.toml."""
    return sorted(path.parent.name for path in ZOO.glob("*/zoo.toml"))


@cache
def row(name: str) -> Row:
    """What zoo.toml of that folder says. Raises pydantic's ValidationError."""
    emulated = tomllib.loads(EMULATED.read_text()).get(name)
    more = {} if emulated is None else {"emulated": emulated}
    return Row.model_validate({"name": name} | tomllib.loads((ZOO / name / "zoo.toml").read_text()) | more)


class HonestScores:
    """Speedups of the bases themselves, each measured once per session, and anew where a row is in doubt."""

    def __init__(self, grader: Grader) -> None:
        self._grader = grader
        self._known: dict[tuple[str, str], Grade] = {}

    def of(self, wanted: Row) -> Grade:
        """The grade of the row's base on the row's task; the quietest of a few."""
        key = (wanted.base, wanted.task)
        for _ in range(TRIES):
            if key not in self._known or noisy(self._known[key]):
                self._known[key] = self._grader.grade(overlaid(ZOO / wanted.base, {}), wanted.loaded_task)
        return self._known[key]

    def forget(self, wanted: Row) -> None:
        """Measure the row's base again when it is next asked for: the machine may not be what it was."""
        self._known.pop((wanted.base, wanted.task), None)


def noisy(grade: Grade) -> bool:
    """Whether other work disturbed its timing."""
    return grade.timing is not None and NOISY in grade.timing.flags


@dataclass(frozen=True)
class Seen:
    """One row, tried."""

    row: Row
    grade: Grade
    seconds: float
    wrong: tuple[str, ...]
    """What is not as zoo.toml says; empty where the row holds."""
    open: tuple[str, ...]
    """What a noisy host left unjudged."""
    gain: float | None
    """Its score over that of its honest base, where that is limited; the median where it was tried again."""


def try_row(wanted: Row, grader: Grader, honest: HonestScores, hurried: Grader | None = None) -> Seen:
    """Grade a project of the zoo and compare with its zoo.toml. Raises InfraError and its kinds.

    `hurried`: a grader with the limits HURRIED, for rows that use them up.

    A score above what the row allows is measured TRIES times, each beside its base, and the median counts:
    two grades of different minutes differ by what else the machine did, and an attack gains every time.
    """
    if wanted.cause in {Cause.BUILD_TIMEOUT, Cause.WALL_TIMEOUT} and hurried is not None:
        grader = hurried
    start = time.monotonic()
    tries: list[Seen] = []
    above = False
    for _ in range(TRIES):
        seen = _try_once(wanted, grader, honest, start)
        tries.append(seen)
        above = above or (seen.gain is not None and seen.gain > (wanted.most_speedup or 0.0))
        if above:
            honest.forget(wanted)
        elif not (seen.wrong and noisy(seen.grade)) and not seen.open:
            break
    by_gain = sorted((one for one in tries if one.gain is not None), key=lambda one: one.gain or 0.0)
    return by_gain[TRIES // 2] if above and len(by_gain) == TRIES else seen


def try_emulated(wanted: Row, grader: Grader) -> Seen:
    """Grade a row for a GPU on the emulated one, and compare with emulated.toml. Raises InfraError.

    `grader`: for CUDA, on a machine without a GPU. No row is ever more than `not_measured`.
    """
    start = time.monotonic()
    assert wanted.emulated is not None
    grade = grader.grade(zoo_project(wanted.name), wanted.loaded_task)
    seen, wrong = grade.emulated, ()
    if seen is None or grade.verdict is not Verdict.NOT_MEASURED:
        wrong = (f"not emulated: {grade.verdict}: {grade.finding.message}",)
    elif seen.outcome == wanted.emulated.outcome and wanted.emulated.message not in seen.message:
        wrong = (f"another reason: {seen.message!r} lacks {wanted.emulated.message!r}",)
    elif seen.outcome not in {wanted.emulated.outcome, wanted.emulated.or_outcome}:
        wrong = (f"{seen.outcome}: {seen.message}",)
    return Seen(wanted, grade, time.monotonic() - start, wrong, (), None)


def _try_once(wanted: Row, grader: Grader, honest: HonestScores, start: float) -> Seen:
    token = secrets.token_hex(8)
    grade = grader.grade(zoo_project(wanted.name, token), wanted.loaded_task)
    unproven = _unproven_claim(wanted, grade)
    wrong = [] if unproven else _differences(wanted, grade)
    left = processes_naming(f"liftbench-zoo-{token}")
    wrong += [f"a process is left: {command}" for command in left]
    doubts, gain = unproven or ([] if wrong else _doubts(wanted, grade)), None
    quiet = not noisy(grade)
    if not wrong and wanted.most_speedup is not None and grade.verdict is Verdict.CORRECT:
        reference = honest.of(wanted)
        gain = _score(grade) / _score(reference)
        quiet = quiet and not noisy(reference)
        if gain > wanted.most_speedup:
            doubts.append(f"scores {gain:.2f} times its honest base, allowed are {wanted.most_speedup:g}")
    return Seen(
        row=wanted,
        grade=grade,
        seconds=time.monotonic() - start,
        wrong=tuple(wrong + doubts) if quiet else tuple(wrong),
        open=() if quiet else tuple(f"{NOISY}: {doubt}" for doubt in doubts),
        gain=gain,
    )


def _score(grade: Grade) -> float:
    if grade.timing is None:
        raise AssertionError(f"not timed: {grade.finding}")
    return grade.timing.speedup.value


def _differences(wanted: Row, grade: Grade) -> list[str]:
    """In verdict, cause, message, diagnostics and provenance: noise is no excuse for these."""
    found: list[str] = []
    condemned = {Cause.CLOCK, Cause.INTERFERENCE, wanted.or_cause}
    if wanted.most_speedup is not None and grade.finding.cause in condemned:
        return []  # condemned where it need only be pointless: it gains nothing either way
    if (grade.verdict, grade.finding.cause) != (wanted.verdict, wanted.cause):
        found.append(
            f"{grade.verdict} ({grade.finding.cause}: {grade.finding.message}), expected {wanted.cause}"
        )
    elif wanted.message not in grade.finding.message:
        found.append(f"another reason: {grade.finding.message!r} lacks {wanted.message!r}")
    elif wanted.stage is not None and grade.stage is not wanted.stage:
        found.append(f"at the stage {grade.stage} ({grade.finding.message}), expected {wanted.stage}")
    if wanted.diagnostic is not None:
        said = () if grade.build is None else grade.build.diagnostics
        listed = [tuple(v for v in (one.kind, one.file, one.line) if v is not None) for one in said]
        if listed != [wanted.diagnostic]:
            found.append(f"diagnostics {listed}, expected {wanted.diagnostic}")
    copied = wanted.flag == COPIED
    if grade.copied != copied:
        found.append(f"{'not flagged' if copied else 'flagged'} {COPIED}")
    return found


def _unproven_claim(wanted: Row, grade: Grade) -> list[str]:
    """A false claim that was flagged, on a host too noisy to prove it: the result is kept off rankings."""
    timing = grade.timing
    if wanted.cause is not Cause.CLOCK or timing is None or grade.finding.cause is not Cause.PASSED:
        return []
    flagged = {NOISY, "clock_mismatch"} <= set(timing.flags)
    return ["its false claim is flagged, and not proven"] if flagged else []


def _doubts(wanted: Row, grade: Grade) -> list[str]:
    """In flags, which mean little on a noisy host."""
    flags = set() if grade.timing is None else set(grade.timing.flags)
    if wanted.kind == "honest":
        return [f"flagged {flag}" for flag in sorted(flags & CHEAT_FLAGS)]
    if wanted.flag not in {None, COPIED, *flags}:
        return [f"not flagged {wanted.flag}"]
    return []
