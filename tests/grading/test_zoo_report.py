"""The zoo's part of docs/generated/security.md."""

from __future__ import annotations

from dataclasses import replace

import pytest

from harness.outcome import Stage
from harness.records import EmulatedCheck, Finding, Grade
from harness.suite.catalogue import read_project
from tests.fakes.overlays import ZOO
from tests.fakes.zoo import Row, Seen, row, row_names
from tools.attacks.report import DOCUMENT
from tools.zoo.exploits import EXPLOITS, UNTRIED
from tools.zoo.gain import KERNEL, PACKAGE, SIZES, attacks, claims, skipping
from tools.zoo.regions import REGIONS, carried_over, region, with_region
from tools.zoo.report import Column, Failed, disagreements, gpu_text, published, recounted, tables

CHEATS = {"kind": "hostile", "verdict": "cheated", "cause": "clock"}
PASSES = {"kind": "honest", "verdict": "correct", "cause": "passed"}
CRASHES = {"kind": "hostile", "verdict": "crashed", "cause": "signal"}
ROWS = {
    "caught": CHEATS | {"exploit": "A4"},
    "bounded": PASSES | {"kind": "hostile", "exploit": "B12", "most_speedup": 1.5},
    "honest": PASSES,
    "isolated": CRASHES | {"exploit": "C5", "holds_on": "bubblewrap"},
    "device": CHEATS | {"exploit": "A9", "gpu": True, "emulated": {"outcome": "correct", "lacks": "clocks"}},
}


def made(name: str) -> Row:
    """A row of the table above."""
    return Row.model_validate({"name": name, "why": f"the reason for {name}", "message": ""} | ROWS[name])


def seen(name: str, *wrong: str, gain: float | None = None, unjudged: tuple[str, ...] = ()) -> Seen:
    """That row, tried."""
    one = made(name)
    grade = Grade.model_construct(
        verdict=one.verdict,
        finding=Finding(cause=one.cause, message="<script>|x|</script>"),
        stage=Stage.TIME,
    )
    return Seen(row=one, grade=grade, seconds=2.5, wrong=wrong, open=unjudged, gain=gain)


def column(**changes: Seen | Failed) -> Column:
    """A run on local in which all held, but for `changes`."""
    held = {"caught": seen("caught"), "bounded": seen("bounded", gain=1.03), "honest": seen("honest")}
    return Column("local", seen={**held, **changes}, seconds=7.0)


def text(one: Column) -> str:
    """The region of a run."""
    return tables([made(name) for name in ROWS], [one]) + gpu_text([made(name) for name in ROWS], {})


def test_a_new_row_for_a_gpu_is_counted_without_a_run() -> None:
    """The number of rows for a GPU and the table of exploits; nothing that was measured changes."""
    rows = [made(name) for name in ROWS]
    more = [*rows, made("device").model_copy(update={"name": "second", "exploit": "A1"})]
    assert recounted(tables(rows, [column()]), more) == tables(more, [column()]).rstrip("\n")


def test_rows_that_held_are_counted_and_shown() -> None:
    """Counts name what was tried; what needs a GPU or a stronger sandbox counts nowhere."""
    shown = text(column())
    assert "| local | 2 / 2 | 0 / 0 | 0 / 1 | 0 | 7 |" in shown
    assert "| the reason for bounded | correct: passed, at most x1.5 | held, x1.03 | 2.5 |" in shown
    assert "crashed: signal, from bubblewrap on | not promised |" in shown
    assert "cheated: clock | not measured | clocks |  |" in shown and "1 of 5 rows need a GPU" in shown
    assert column().open([made(name) for name in ROWS]) == []


def test_rows_that_did_not_hold_are_open() -> None:
    """A wrong verdict, and a failure of ours, count against the judge, and make the check fail."""
    rows = [made(name) for name in ROWS]
    one = column(caught=seen("caught", "<script>"), honest=Failed("SandboxError: gone"))
    shown = text(one)
    assert "<script>" not in shown  # what a project said is not shown
    assert "| local | 1 / 2 | 0 / 0 | 1 / 1 | 0 | 7 |" in shown
    assert one.open(rows) == ["caught", "honest"]
    assert [line.split(":")[0] for line in disagreements(shown, rows)] == ["caught", "honest"]


def test_rows_for_a_gpu_show_what_the_emulated_one_gives() -> None:
    """The outcome and what it lacks; another outcome is open, and a failure of ours is bold."""
    rows, one = [made(name) for name in ROWS], seen("device")
    check = EmulatedCheck.model_construct(outcome="correct", message="<script>")
    grade = one.grade.model_copy(update={"emulated": check})
    shown = gpu_text(rows, {"device": replace(one, grade=grade)})
    assert "| device | hostile | A9 | the reason for device | cheated: clock | emulated: correct |" in shown
    assert "As expected: 1 of 1; as on a GPU: 0." in shown and "<script>" not in shown
    assert "| **open**: correct |" in gpu_text(
        rows, {"device": replace(one, grade=grade, wrong=("another",))}
    )
    failed = gpu_text(rows, {"device": "SandboxError: gone"})
    assert "| **failed** |" in failed and "gone" not in failed
    (said,) = disagreements(text(column()).replace("| clocks |", "|  |"), rows)
    assert said.startswith("device: its zoo.toml has changed")


def test_what_was_not_judged_counts_for_nobody() -> None:
    """A noisy host's rows stand apart; a sandbox that is absent counts nothing."""
    shown = text(column(bounded=seen("bounded", gain=1.9, unjudged=("noisy host: scores 1.9",))))
    assert "| local | 1 / 1 | 0 / 0 | 0 / 1 | 1 | 7 |" in shown
    assert "| not judged, x1.90 |" in shown
    assert "| docker | not measured | | | | |" in text(Column("docker", absent="no engine"))


def test_a_row_that_changed_or_is_missing_is_told() -> None:
    """The document disagrees with a zoo.toml that says something else now, or is new."""
    rows, shown = [made(name) for name in ROWS], text(column())
    assert disagreements(shown, rows) == []
    assert all(f"| {number} | {EXPLOITS[number]} | none: {why} |" in shown for number, why in UNTRIED.items())
    (said,) = disagreements(shown.replace(f"| {EXPLOITS['A4']} | 1 |", "| older | 1 |"), rows)
    assert said == "known exploits: projects or reasons have changed since: run `make zoo`"
    changed = rows[0].model_copy(update={"why": "another reason altogether"})
    (said,) = disagreements(text(column()), [changed, *rows[1:]])
    assert "its zoo.toml has changed" in said
    (said,) = disagreements(text(column()), [rows[0].model_copy(update={"name": "new"}), *rows[1:]])
    assert "not in the document" in said


def test_programs_that_share_the_document_keep_each_others_text() -> None:
    """A new frame takes the regions of the old document, and a region changes nothing outside of itself."""
    frame = "before\n" + "".join(
        f"<!-- {n}: begin, written by make zoo -->\nempty\n<!-- {n}: end -->\n" for n in REGIONS
    )
    filled = with_region(frame, "zoo", "| a | \\1 |\n")
    assert region(filled, "zoo") == "| a | \\1 |\n"
    assert region(filled, "gain") == "empty\n"
    assert carried_over(frame.replace("before", "after"), filled) == filled.replace("before", "after")
    assert carried_over(frame, "an older document without marks") == frame
    with pytest.raises(ValueError, match="0 regions"):
        carried_over("a frame without marks", filled)
    with pytest.raises(ValueError, match="2 regions"):
        with_region(frame + frame, "zoo", "text")


def test_the_document_agrees_with_the_zoo() -> None:
    """The published tables show every row as its zoo.toml has it now, and none that did not hold."""
    text = DOCUMENT.read_text()
    assert all(region(text, name) for name in REGIONS)
    if "|" not in region(text, "zoo"):
        pytest.skip("make zoo has not been run yet")
    assert disagreements(published(), [row(name) for name in row_names()]) == []


def test_attacks_change_files_that_the_bases_have() -> None:
    """Every attack replaces files of every base that it is laid over, and claims are scaled as named."""
    for size in SIZES:
        paths = {file.path for file in read_project(ZOO / size.base).files}
        for attack in attacks():
            if attack.any_kernel or size.base == "base":
                assert set(attack.files) <= paths
    assert claims(0.9).files[PACKAGE].count("* 0.9)") == 2
    assert all(KERNEL not in attack.files for attack in attacks() if attack.any_kernel)
    assert "one in 50: x1.02, missed 0.36" in skipping(50)
