"""`liftbench runs`, `compare` and `regrade` as a terminal of 80 columns shows them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.cli.main import run
from harness.outcome import Cause
from harness.records import Arm, ModelSpec
from harness.study.store import RunStore
from tests.fakes.tiny import project_reply, record, write_skill, write_tasks
from tests.report import factories as make

TASKS = make.families(8)
Said = Callable[..., tuple[int, str, str]]
FIRST, SECOND = (
    "20260101T000000Z-cuda-kernel-builder-aaaaaaaa",
    "20260201T000000Z-cuda-kernel-builder-bbbbbbbb",
)


@pytest.fixture
def said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Exit code, stdout and stderr of a command at 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")

    def say(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([*words, "--runs-dir", str(tmp_path / "runs")])
        return code, *capsys.readouterr()

    return say


@pytest.fixture
def two_runs(tmp_path: Path) -> list[RunStore]:
    """The skill helps in the first; in the second, of another model, nothing is right and one trial lost."""
    stores = []
    for name, model in ((FIRST, make.MODEL), (SECOND, make.OTHER)):
        made = make.run(TASKS, metric="correct", models=(ModelSpec(name=model),))
        store = RunStore.create(
            tmp_path / "runs" / name, made.model_copy(update={"run_id": name, "created": f"{name[:4]}-01-01"})
        )
        for task in TASKS:
            for arm in (make.WITHOUT, make.WITH):
                good = arm is make.WITH and name == FIRST
                store.append(make.trial(task, arm, Cause.PASSED if good else Cause.WRONG_VALUES, model=model))
        stores.append(store)
    stores[1].append(make.trial("l1/f0t0", make.WITH, Cause.SANDBOX, "lost", model=make.OTHER))
    return stores


def words_of(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_runs_are_listed_with_lift_and_decision(said: Said, two_runs: list[RunStore]) -> None:
    """The end of the name, which other commands take; nothing is wider than the terminal or cut."""
    code, out, _ = said("runs")
    assert code == 0 and max(map(len, out.splitlines())) <= 80
    head, *lines = words_of(out)
    assert head == ["run", "date", "trials", "model", "skill", "lift", "decision"]
    assert lines[0] == ["aaaaaaaa", "2026-01-01", "16/16", "claude-", "cuda-kernel-", "+100", "pts", "helps"]
    assert lines[1] == ["haiku-4-5", "builder", "correct"]
    assert lines[2][:3] == ["bbbbbbbb", "2026-01-01", "15/16"]
    assert lines[2][-3:] == ["0", "pts", "inconclusive"] and lines[3][:2] == ["1", "lost"]
    assert said("compare", "aaaaaaaa", "bbbbbbbb")[0] == 0


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--model", "gpt-5*"], [SECOND]),
        (["--model", "anthropic/*", "--model", "gpt-5-mini"], [FIRST, SECOND]),
        (["--skill", "cuda-*"], [FIRST, SECOND]),
        (["--skill", "cpu-*"], []),
        (["--skill", "cuda-*", "--model", "claude"], []),
    ],
)
def test_filters_are_globs(said: Said, two_runs: list[RunStore], words: list[str], names: list[str]) -> None:
    """Of names with or without the provider; a run is listed where both filters match."""
    assert [row["run"] for row in json.loads(said("runs", "--json", *words)[1])] == names
    if not names:
        assert said("runs", *words)[1].startswith("no runs of that skill and model below ")


def test_a_replayed_run_is_found_by_the_model_that_is_shown(said: Said, tmp_path: Path) -> None:
    """Of a recording the label of its replies is shown, and is what the filter is held against."""
    model = "replay/recording"
    made = make.run(TASKS, metric="correct", models=(ModelSpec(name=model),))
    store = RunStore.create(tmp_path / "runs" / FIRST, made.model_copy(update={"run_id": FIRST}))
    for task in TASKS:
        for arm in (make.WITHOUT, make.WITH):
            store.append(make.trial(task, arm, Cause.PASSED, model=model))
    (row,) = json.loads(said("runs", "--json", "--model", "claude-haiku*")[1])
    assert row["model"].startswith("claude-haiku")
    assert json.loads(said("runs", "--json", "--model", "gpt*")[1]) == []


def test_csv_and_json_have_the_same_figures(said: Said, two_runs: list[RunStore]) -> None:
    """Unrounded, one line per comparison; a cell is empty where nothing is known."""
    rows = json.loads(said("runs", "--json")[1])
    lines = list(csv.DictReader(io.StringIO(said("runs", "--csv")[1])))
    assert [line["run"] for line in lines] == [FIRST, SECOND]
    for row, line in zip(rows, lines, strict=True):
        assert line == {name: "" if row[name] is None else str(row[name]) for name in line}
    assert (rows[0]["decision"], rows[0]["lift"], rows[0]["scored"], rows[1]["lost"]) == ("helps", 1.0, 16, 1)
    assert float(lines[0]["low"]) > 0.0 and lines[1]["low"] == ""


def test_a_damaged_run_hides_no_other(said: Said, two_runs: list[RunStore]) -> None:
    """It is named on stderr."""
    (two_runs[0].folder / "run.json").write_text("{")
    code, out, err = said("runs")
    assert code == 0 and "bbbbbbbb" in out and "left out: " in err and "is damaged" in err


def test_runs_are_compared_in_80_columns(said: Said, two_runs: list[RunStore]) -> None:
    """What differs, each metric with interval and p, and what changed by more than noise."""
    code, out, _ = said("compare", "aaaaaaaa", "bbbbbbbb")
    lines = out.splitlines()
    assert code == 0 and max(map(len, lines)) <= 80
    assert "A  aaaaaaaa  2026-01-01" in lines and "  helps: +100 pts (+" in out
    assert "  models: anthropic/claude-haiku-4-5 -> openai/gpt-5-mini" in lines
    at = lines.index("claude-haiku-4-5 -> gpt-5-mini x cuda-kernel-builder (8 and 7 trials)")
    figures = next(words for words in words_of(out)[at:] if words[:1] == ["correct"])
    assert figures[:5] == ["correct", "100%", "0%", "-100", "pts"] and figures[-1] == "0.047"
    assert "no trial has the same reply in both runs" in lines
    assert "worse by more than noise: -100 pts correct, gpt-5-mini x cuda-kernel-builder" in lines
    found = json.loads(said("compare", "aaaaaaaa", "bbbbbbbb", "--json")[1])
    assert {row["outcome"] for cell in found["cells"] for row in cell["rows"]} == {"worse", "within noise"}


def test_runs_that_cannot_be_compared_are_a_usage_error(said: Said, two_runs: list[RunStore]) -> None:
    """Exit code 2 with the reason: an unknown run, or none of its tasks in the other."""
    assert said("compare", "aaaaaaaa", "nosuch")[0] == 2
    other = make.run({"l2/other": "x"})
    RunStore.create(two_runs[0].folder.parent / "20260301T000000Z-x-cccccccc", other)
    code, _, err = said("compare", "aaaaaaaa", "cccccccc")
    assert code == 2 and "no task can be compared: they have none in common" in err


def test_a_regrade_of_another_tasks_text_is_a_usage_error(said: Said, two_runs: list[RunStore]) -> None:
    """Its tasks are not in the suite: nothing is built."""
    code, _, err = said("regrade", "aaaaaaaa", "--sandbox", "local")
    assert code == 2 and "no task matches 'l1/f0t0'" in err


@pytest.mark.slow
@pytest.mark.usefixtures("toolchain")
def test_paid_replies_are_graded_again_whole(
    said: Said, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An eval of recorded replies, whose record of one arm is then falsified: the regrade restores it."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    tasks, skill = write_tasks(tmp_path, ("one", "two")), write_skill(tmp_path)
    replies = record(tmp_path, tasks, skill, 1, project_reply("one"))
    where = ["--tasks-root", str(tasks), "--cache", str(tmp_path / "cache"), "--sandbox", "local"]
    asked = ["eval", str(skill), "-m", f"replay/{replies}", "--runs", "1", "--target", "cpu"]
    assert said(*asked, *where)[0] == 0
    (first,) = [p.parent for p in (tmp_path / "runs").glob("*/run.json")]
    store = RunStore(first)
    verdicts = {trial.key: str(trial.verdict) for trial in store.load()}
    assert sorted(verdicts.values()) == ["correct", "correct", "load_failed", "load_failed"]
    # As if an older grader had said that what does not load was not built.
    for trial in store.load():
        if trial.verdict == "load_failed":
            grade = make.grade(trial.key, Cause.COMPILE_ERROR, "an older grader's")
            turn = trial.turns[0].model_copy(update={"grade": grade})
            store.append(trial.model_copy(update={"turns": (turn,)}))
    (tmp_path / "recording").rename(tmp_path / "gone")
    code, out, err = said("regrade", "last", *where)
    assert code == 0, err
    assert "4 trials with the same reply: 2 with another verdict" in out
    assert ["2", "build_failed", "->", "load_failed"] in words_of(out)
    assert ["2", "correct,", "as", "before"] in words_of(out)
    assert max(len(line) for line in out.splitlines() if "report: " not in line) <= 80
    (new,) = [p.parent for p in (tmp_path / "runs").glob("*/run.json") if p.parent != first]
    assert RunStore(new).run().regraded_from == first.name
    assert {t.key: str(t.verdict) for t in RunStore(new).load()} == verdicts
    assert all(t.grade is not None and t.grade.timing for t in RunStore(new).load() if t.verdict == "correct")
    assert said("show", "last", "t/one")[0] == 0
    code, again, err = said("regrade", first.name, *where, "--json")
    assert code == 0 and "4 trials, 4 finished before" in err
    assert [(v["a"], v["b"], len(v["trials"])) for v in json.loads(again)["verdicts"]] == [
        ("build_failed", "load_failed", 2), ("correct", "correct", 2),
    ]  # fmt: skip
    assert len(list((tmp_path / "runs").glob("*/run.json"))) == 2


def test_an_old_skill_is_told_from_the_new_one(said: Said, tmp_path: Path) -> None:
    """Both controls of one model are lines of one run, which is named once."""
    arms: tuple[Arm, ...] = (make.WITHOUT, make.OLD, make.WITH)
    store = RunStore.create(
        tmp_path / "runs" / FIRST,
        make.run(TASKS, metric="correct", arms=arms).model_copy(update={"run_id": FIRST}),
    )
    for task in TASKS:
        for arm in arms:
            store.append(make.trial(task, arm))
    lines = words_of(said("runs")[1])
    assert [words[0] for words in lines if "inconclusive" in words] == ["aaaaaaaa", "claude-"]
    assert "against" in said("runs")[1]
