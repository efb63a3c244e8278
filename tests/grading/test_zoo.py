"""Hostile, bad, and honest but suspicious projects: each gets its verdict, and for the intended reason."""

from __future__ import annotations

import itertools
import re
import socket
import tomllib
from contextlib import closing
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet

from harness.builder.toolchain import Toolchain
from harness.device.machine import machine_facts
from harness.grading.grade import Grader
from harness.outcome import Cause, Stage, Verdict
from harness.records import EmulatedCheck, Finding, Grade, Project, Ratio, TimingResult
from harness.records.project import COPIED
from harness.suite.catalogue import LoadedTask
from sandboxes.pool import SandboxPool
from tests.conftest import tiny
from tests.fakes.overlays import ZOO, overlaid, zoo_project
from tests.fakes.zoo import (
    EMULATED,
    STRENGTH,
    HonestScores,
    Row,
    Seen,
    row,
    row_names,
    try_emulated,
    try_row,
)
from tools.zoo.exploits import UNTRIED, contradictions, numbers

NAMES = row_names()
_SCALE = {"name": "x", "why": "a reason of some length", "cause": "passed", "message": ""}


@pytest.fixture(scope="session")
def honest(grader: Grader) -> HonestScores:
    """Scores of the bases, measured once."""
    return HonestScores(grader)


FAST = ("does_not_compile", "does_not_import", "returns_constant", "segfaults", "hangs")
"""One real project for each verdict that needs no quiet machine; the others are slow."""


def graded(name: str, first: bool) -> ParameterSet:
    """The row; where its timing is judged too, nothing else may run, and the first of its kind is enough."""
    alone = [pytest.mark.alone, *[pytest.mark.exhaustive] * (not first)] if row(name).alone else []
    return pytest.param(name, marks=alone if name in FAST else [pytest.mark.slow, *alone])


def kind_of(name: str) -> tuple[object, ...]:
    """What a row is expected to end with, and how."""
    one = row(name)
    numbers = (one.exploit or "").partition(",")[0]
    return one.kind, numbers, one.cause, one.flag, one.most_speedup is not None, one.task, one.base


FIRST = set({kind_of(name): name for name in reversed(NAMES)}.values())


@pytest.fixture(params=[graded(name, name in FIRST) for name in NAMES])
def seen(request: pytest.FixtureRequest, grader: Grader, hurried: Grader, honest: HonestScores) -> Seen:
    """A row, tried."""
    wanted = row(request.param)
    if wanted.gpu:
        pytest.skip("needs an NVIDIA GPU: see make gpu-check")
    if not wanted.expected_on("local"):
        pytest.skip(f"need not hold on local, but from {wanted.holds_on} on: see make zoo")
    return try_row(wanted, grader, honest, hurried)


def test_project_of_the_zoo(seen: Seen) -> None:
    """Verdict, cause and flags are those of zoo.toml, the message names the reason, and no process stays."""
    assert seen.wrong == (), seen.grade.timing
    if seen.open:
        pytest.skip("; ".join(seen.open))


@pytest.fixture(scope="module")
def untimed(toolchain: Toolchain, sandbox: SandboxPool, tmp_path_factory: pytest.TempPathFactory) -> Grade:
    """A correct project's grade without timing."""
    settings = tiny(tmp_path_factory.mktemp("untimed"), timed=False)
    with closing(Grader(settings, sandbox, toolchain, machine_facts(toolchain))) as grader:
        return grader.grade(zoo_project("correct"), row("correct").loaded_task)


def test_a_correct_project_passes(untimed: Grade) -> None:
    """Built, loaded and checked for real; its speed was not asked for."""
    assert (untimed.verdict, untimed.stage) == (Verdict.CORRECT, Stage.CHECK), untimed.finding
    assert untimed.check is not None and untimed.check.finding is None
    assert untimed.timing is None


GPU_ROWS = [name for name in NAMES if row(name).gpu]


def test_rows_on_the_emulated_gpu_say_what_it_lacks() -> None:
    """Exactly the rows for a GPU are in the table, and a wrong output never counts as correct there."""
    assert sorted(tomllib.loads(EMULATED.read_text())) == GPU_ROWS
    for wanted in map(row, GPU_ROWS):
        assert wanted.emulated is not None
        if wanted.verdict is Verdict.WRONG_RESULT and wanted.emulated.outcome == "correct":
            assert wanted.name == "gpu_right_where_emulated"  # its outputs are right
    with pytest.raises(ValueError, match=r"emulated\.toml must say"):
        wants("gpu_late_half", emulated={"outcome": "correct"})


def test_a_row_that_gives_something_else_on_the_emulated_gpu_is_open() -> None:
    """Another outcome, another message, or no emulated check at all."""
    wanted, made = row("gpu_downgrades_to_half"), Grade.model_construct
    grader: Any = FakeGrader(Cause.NO_CUDA_DEVICE)
    (said,) = try_emulated(wanted, grader).wrong
    assert said.startswith("not emulated: ")
    for outcome, message, wrong in (
        ("wrong_result", "9 elements are out of tolerance", False),
        ("wrong_result", "never written", True),
        ("correct", "right", True),
    ):
        check = EmulatedCheck.model_construct(outcome=outcome, message=message)
        grader.grade = lambda *_, check=check: made(verdict=Verdict.NOT_MEASURED, emulated=check)
        assert bool(try_emulated(wanted, grader).wrong) == wrong


def test_rows_say_the_truth_about_their_kind() -> None:
    """A row has all keys of its kind, a base and a task that are there, and a project beside zoo.toml."""
    for name in NAMES:
        wanted = row(name)
        assert (ZOO / wanted.base / "build.toml").is_file(), name
        task = wanted.loaded_task.task
        assert (ZOO / wanted.base / "torch-ext" / task.module).is_dir(), f"{wanted.base} is not for {task.id}"
        files = [p for p in (ZOO / name).rglob("*") if p.is_file() and p.suffix != ".pyc"]
        assert len(files) > 1 or name == "correct", name


def test_zoo_is_complete() -> None:
    """Every folder of the zoo but the bases says what is expected of it."""
    folders = {path.name for path in ZOO.iterdir() if path.is_dir() and not path.name.startswith("_")}
    assert {name for name in folders if not re.fullmatch(r"base(_\w+)?", name)} == set(NAMES)


def test_every_known_exploit_has_a_project_or_a_reason() -> None:
    """Never both or neither, and no row names a number that does not exist."""
    rows = list(map(row, NAMES))
    assert contradictions(rows) == []
    without = [one for one in rows if "B9" not in numbers(one)]
    assert contradictions(without) == ["B9: no project tries it: add one, or a reason to UNTRIED"]
    (said,) = contradictions(rows, {**UNTRIED, "B9": "a reason"})
    assert said.startswith("B9: ") and "tries it now" in said
    (said,) = contradictions([*rows, wants("fetches_answers", exploit="C6, C10")])
    assert said == "C10: fetches_answers names it, and the catalogue has no such number"


def test_no_project_names_a_real_host() -> None:
    """The only address is of TEST-NET-1, where only a route is asked for, and there are no URLs."""
    named = {
        found.group()
        for name in NAMES
        for file in zoo_project(name).files
        for found in re.finditer(r"\b\d{1,3}(\.\d{1,3}){3}\b|https?://\S+", file.text)
    }
    assert named == {"192.0.2.80"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fetches_answers", "fetches_at_import", "fetches_while_building"])
def test_nothing_but_the_network_stops_those_who_fetch(name: str, grader: Grader) -> None:
    """On `local`, where the network is the host's, they find the way that other sandboxes close."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asks:
        try:
            asks.connect(("192.0.2.80", 443))  # sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no network of its own: {error}")
    finding = grader.grade(zoo_project(name), row(name).loaded_task).finding
    assert finding.cause is row(name).cause
    assert "OPEN: there is a way to 192.0.2.80" in finding.message


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kind": "honest", "verdict": "wrong_result"}, "does not mean"),
        ({"kind": "hostile", "verdict": "correct", "flag": "clock_mismatch"}, "exploit"),
        ({"kind": "bad", "verdict": "correct"}, "neither"),
        ({"kind": "honest", "verdict": "correct", "flag": "noisy host"}, "are for attacks"),
    ],
)
def test_rows_that_contradict_themselves_are_refused(changes: dict[str, object], said: str) -> None:
    """Keys must fit the kind; `holds_on` is the weakest sandbox on which a row must hold."""
    with pytest.raises(ValueError, match=re.escape(said)):
        Row.model_validate(_SCALE | changes)
    wanted = Row.model_validate(_SCALE | {"kind": "honest", "verdict": "correct", "holds_on": "bubblewrap"})
    assert [name for name in STRENGTH if wanted.expected_on(name)] == ["bubblewrap", "docker"]


class FakeGrader:
    """Gives every project of the zoo the same grade, and the bases theirs."""

    def __init__(
        self,
        cause: Cause,
        *flags: str,
        scores: tuple[float, ...] = (1.0,),
        honest: float = 1.0,
        stage: Stage = Stage.TIME,
        beside: tuple[str, ...] = (),
    ) -> None:
        self.graded, self._honest, self._scores = 0, honest, itertools.cycle(scores)
        self._flags = flags
        finding = Finding(cause=cause, message="said")
        self._grade = Grade.model_construct(
            verdict=finding.verdict, finding=finding, build=None, stage=stage, flags=beside
        )

    def grade(self, project: Project, loaded: LoadedTask) -> Grade:
        """As Grader.grade."""
        self.graded += 1
        is_base = any(project == overlaid(ZOO / base, {}) for base in ("base", "base_row_sum"))
        score = Ratio(value=self._honest if is_base else next(self._scores), low=None, high=None, n=1)
        timing = TimingResult.model_construct(flags=self._flags, speedup=score)
        return self._grade.model_copy(update={"timing": timing})


def tried(wanted: Row, *grade: Any, **more: Any) -> Seen:
    """That row, graded so."""
    grader: Any = FakeGrader(*grade, **more)
    return try_row(wanted, grader, HonestScores(grader))


def wants(name: str, **changes: object) -> Row:
    """A row of the zoo that expects something else."""
    return Row.model_validate(row(name).model_dump(exclude_none=True) | {"message": ""} | changes)


def test_a_false_claim_on_a_noisy_host_is_not_judged() -> None:
    """Flagged and noisy it is neither caught nor open; without the flag, or in quiet, it is open."""
    claims = wants("claims_faster")
    seen = tried(claims, Cause.PASSED, "noisy host", "clock_mismatch")
    assert (seen.wrong, len(seen.open)) == ((), 1)
    assert tried(claims, Cause.PASSED, "noisy host").wrong
    assert tried(claims, Cause.PASSED, "clock_mismatch").wrong
    assert tried(claims, Cause.CLOCK).wrong == ()


def test_a_verdict_for_another_reason_is_open() -> None:
    """Cause, message and, where a row names one, the stage count, not only the verdict."""
    wanted = row("replays_first_output")
    assert tried(wanted, Cause.NONDETERMINISTIC).wrong
    assert tried(wanted, Cause.WRONG_VALUES).wrong  # its message lacks the reason
    assert tried(wants("replays_first_output"), Cause.WRONG_VALUES).wrong == ()
    (said,) = tried(wants("cheap_at_sizes_called_often"), Cause.WRONG_VALUES, stage=Stage.CHECK).wrong
    assert said == "at the stage check (said), expected time"


def test_copies_are_flagged_and_honest_projects_are_not() -> None:
    """`copied` is a flag of the grade, so noise is no excuse; a flag of the clock is one only in quiet."""
    copy, honest = wants("pastes_an_expert"), wants("honest_kahan")
    assert tried(copy, Cause.PASSED, beside=(COPIED,)).wrong == ()
    assert tried(copy, Cause.PASSED, "noisy host").wrong == (f"not flagged {COPIED}",)
    assert tried(honest, Cause.PASSED, beside=(COPIED,)).wrong == (f"flagged {COPIED}",)
    assert tried(honest, Cause.PASSED, "clock_mismatch").wrong
    assert tried(honest, Cause.PASSED, "clock_mismatch", "noisy host").open


@pytest.mark.parametrize(
    ("scores", "gain", "holds"),
    [((2.8,), 1.4, True), ((3.2, 2.0, 2.2), 1.1, True), ((3.2, 3.4, 2.0), 1.6, False)],
)
def test_a_score_in_doubt_is_the_median_of_three(scores: tuple[float, ...], gain: float, holds: bool) -> None:
    """One disturbed measurement decides nothing; a lower score is measured once, a noisy one stays open."""
    wanted = wants("replays_first_output", verdict="correct", cause="passed", most_speedup=1.5)
    seen = tried(wanted, Cause.PASSED, scores=scores, honest=2.0)
    assert (seen.gain, not seen.wrong) == (pytest.approx(gain), holds)
    loud = tried(wanted, Cause.PASSED, "noisy host", scores=(3.2,), honest=2.0)
    assert loud.wrong == () and loud.open
