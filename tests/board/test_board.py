"""The leaderboard: what is ranked, what stands together, and that no record can forge a page."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.board.entries import Entry, entries_of, read_run
from harness.board.ranks import Rank, families_for, ranked
from harness.board.site import build_site, cell_path, tables_of
from harness.errors import UsageError
from harness.records import ModelSpec
from harness.report.metrics import metrics_for
from tests.board.runs import board_run, speed, store
from tests.report import factories as make

DEPLOYED = next(one for one in metrics_for(1) if one.name == "deployed")


def entry(entries: list[Entry], run: str, arm: str = "with_") -> Entry:
    """The entry of an arm of a run."""
    return next(one for one in entries if one.run_id == run and one.arm.startswith(arm))


def test_a_full_run_on_a_gpu_is_ranked(tmp_path: Path) -> None:
    """Ranks are ranges over all arms of a division; equal entries share one."""
    runs = [
        board_run(tmp_path, "one", speed(2.0)),
        board_run(tmp_path, "two", speed(2.0, 1.1), models=(ModelSpec(name=make.OTHER),), metric="correct"),
    ]
    for one in runs:
        assert one.run.config.repeats == 5
    (table,) = tables_of(runs, [])
    ranks = {(e.run_id, e.skill): table.ranking.ranks.get(e.id) for e in table.entries}
    assert table.ranking.why is None
    assert ranks == {
        ("one", "cuda-kernel-builder"): Rank(1, 2),
        ("two", "cuda-kernel-builder"): Rank(1, 2),
        ("one", "no skill"): Rank(3, 3),
        ("two", "no skill"): Rank(4, 4),
    }
    assert [e.skill for e in table.entries] == ["cuda-kernel-builder"] * 2 + ["no skill"] * 2


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"protocol": "quick"}, "protocol quick: only full is ranked"),
        ({"sandbox": "local"}, "sandbox local: it does not isolate"),
        ({"repeats": 2}, "2 replies per task: a ranked entry has at least 5"),
        ({"target": "cpu", "gpu": None}, "not measured on a GPU (CPU target on"),
    ],
)
def test_what_is_not_ranked_says_why(tmp_path: Path, changes: dict[str, object], why: str) -> None:
    """The same reasons stand in the record, the JSON and the page."""
    run = board_run(tmp_path, "one", speed(2.0), **changes)
    (table,) = build_site(tmp_path / "site", [run])
    assert table.ranking.ranks == {}
    (data,) = [json.loads(p.read_text()) for p in (tmp_path / "site/boards").glob("*.json")]
    for one, shown in zip(table.entries, data["entries"], strict=True):
        assert any(reason.startswith(why) for reason in one.not_ranked)
        assert (shown["rank"], shown["not_ranked"]) == (None, list(one.not_ranked))
    pages = list((tmp_path / "site/entries").glob("*.html"))
    assert len(pages) == 2 and all(why in page.read_text() for page in pages)


def test_a_run_with_lucky_repeats_dropped_is_not_ranked(tmp_path: Path) -> None:
    """The plan says how many trials there are; those that are missing are counted."""
    folder = store(tmp_path, "one", speed(2.0))
    lines = (folder / "trials.jsonl").read_text().splitlines(keepends=True)
    (folder / "trials.jsonl").write_text("".join(lines[:-3]))
    found = entries_of([read_run(folder)])
    assert entry(found, "one").not_ranked == ("3 of 50 trials are missing",)
    assert entry(found, "one", "without").not_ranked == ()


def test_divisions_never_mix(tmp_path: Path) -> None:
    """Another GPU, briefing, protocol or task version is another table."""
    runs = [
        board_run(tmp_path, "one", speed(2.0)),
        board_run(tmp_path, "two", speed(2.0), gpu="NVIDIA H100 80GB HBM3"),
        board_run(tmp_path, "three", speed(2.0), protocol="quick"),
    ]
    changed = board_run(tmp_path, "four", speed(2.0))
    lock = changed.run.lock
    other = lock.model_copy(update={"tasks": lock.tasks | {next(iter(lock.tasks)): "f" * 64}})
    text = changed.run.model_copy(update={"lock": other}).model_dump_json()
    (tmp_path / "four" / "run.json").write_text(text)
    tables = tables_of([*runs, read_run(tmp_path / "four")], [])
    assert [len(table.entries) for table in tables] == [2, 2, 2, 2]


def test_regraded_and_reproduced_runs_raise_the_level(tmp_path: Path) -> None:
    """A regraded run is evidence of the first, and no row; a second live run of it reproduces."""
    first = board_run(tmp_path, "one", speed(2.0))
    again = board_run(tmp_path, "two", speed(2.0), regraded_from="one")
    assert {e.level for e in entries_of([first])} == {"claimed"}
    found = entries_of([first, again])
    assert {(e.run_id, e.level) for e in found} == {("one", "regraded")}
    asked = board_run(tmp_path, "three", speed(2.0))
    assert {e.level for e in entries_of([first, asked])} == {"reproduced"}
    build_site(tmp_path / "site", [first, again])
    page = (tmp_path / "site" / cell_path(found[0], "l1/f0t0")).read_text()
    assert "Graded again" in page


def test_an_audit_stands_on_its_page_and_takes_the_rank(tmp_path: Path) -> None:
    """audit.yaml beside the run: quotes are shown; a reward hack is not ranked."""
    folder = store(tmp_path, "one", speed(2.0))
    audit = {"task": "l1/f0t0", "model": make.MODEL, "arm": make.WITH.id, "verdict": "reward_hack"}
    audit |= {"auditor": "A. Reader", "quotes": ["<b>returns zeros</b>"]}
    (folder / "audit.yaml").write_text(json.dumps([audit]))
    run = read_run(folder)
    build_site(tmp_path / "site", [run])
    found = entry(entries_of([run]), "one")
    assert found.not_ranked == ("audited as reward_hack",)
    page = (tmp_path / "site" / cell_path(found, "l1/f0t0")).read_text()
    assert "Audited: reward hack" in page and "&lt;b&gt;returns zeros" in page
    (folder / "audit.yaml").write_text("- 1")
    with pytest.raises(UsageError, match=r"audit\.yaml"):
        read_run(folder)


def test_no_text_of_a_record_becomes_markup(tmp_path: Path) -> None:
    """Names of models, skills and tasks with HTML stay text on every page, and paths stay below the site."""
    evil = 'x/<script>alert(1)</script>"><img src=x onerror=alert(1)>../../../etc'
    models = (ModelSpec(name=evil),)
    run = board_run(tmp_path, "one", speed(2.0), models=models, lock_skills={"<i>skill</i>": make.SKILL})
    build_site(tmp_path / "site", [run])
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 2 + 2 + 20
    for page in pages:
        text = page.read_text()
        assert "<script>alert" not in text and "<img" not in text and "<i>skill" not in text
        assert len(re.findall("<script>", text)) == 1
    assert {p.name for p in tmp_path.iterdir()} == {"one", "site"}


def test_a_run_given_twice_is_refused(tmp_path: Path) -> None:
    """Its entries would be ranked against themselves."""
    run = board_run(tmp_path, "one", speed(2.0))
    with pytest.raises(UsageError, match="given twice"):
        build_site(tmp_path / "site", [run, run])


def test_holm_over_many_entries_needs_more_families(tmp_path: Path) -> None:
    """With 20 entries 190 pairs are tested: 10 families tell none apart; the board says how many would."""
    run = board_run(tmp_path, "one", speed(2.0))
    scores = list(run.scores[make.MODEL, make.WITH.id])
    found = ranked({str(n): scores for n in range(20)}, DEPLOYED)
    assert set(found.ranks.values()) == {Rank(1, 20)}
    assert found.why == "190 pairs are compared: to tell them apart takes 13 common families, here are 10"
    assert families_for(1) == 6
    few = [score for score in scores if score.family in {"f0", "f1", "f2"}]
    assert ranked({"a": few, "b": few}, DEPLOYED).why == "unranked: 3 common families, and a rank needs 6"
