"""The leaderboard: what is ranked, what stands together, and that no record can forge a page."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import stats
from harness.board import kept
from harness.board.entries import Entry, entries_of
from harness.board.pages import cell_path, make_pages, regrade_command
from harness.board.ranks import Rank, families_for, ranked, task_means
from harness.board.runs import BoardRun, read_run
from harness.board.site import build_site
from harness.board.submission import published
from harness.board.tables import Table, curve_of, tables_of
from harness.cli.main import run as command
from harness.errors import UsageError
from harness.records import ModelSpec
from harness.records.timing import PhysicalLimit
from harness.report.experts import ExpertResult
from harness.report.metrics import metrics_for
from tests.board.runs import board_run, claims, edit_run, edit_trials, shipped, speed, store, submitted
from tests.report import factories as make
from tests.report import studies

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
    (table,) = tables_of(claims(*runs))
    found = {(e.run_id, e.skill): table.ranking.ranks.get(e.id) for e in table.entries}
    assert table.ranking.why is None
    assert found == {
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
    folder = store(tmp_path, "one", speed(2.0), **changes)
    (table,) = build_site(tmp_path / "site", [folder])
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
    found = entries_of(read_run(folder))
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
    tables = tables_of(claims(*runs, read_run(tmp_path / "four")))
    assert [len(table.entries) for table in tables] == [2, 2, 2, 2]


LONG = "a reply of its own " * 20


def levels(one: BoardRun, *own: BoardRun) -> set[str]:
    return {e.level for e in entries_of(one, own)}


def test_only_the_owner_raises_a_level(tmp_path: Path) -> None:
    """A complete regrade without contradiction; a complete live run with other replies that agrees."""
    first = board_run(tmp_path, "one", speed(2.0), text=LONG)
    copy = board_run(tmp_path, "copy", speed(2.0), text=LONG)
    assert levels(first) == levels(first, copy) == {"claimed"}
    again = board_run(tmp_path, "two", speed(2.0), regraded_from="one")
    assert levels(first, again) == {"regraded"}
    assert levels(first, board_run(tmp_path, "three", speed(2.0), text="other" + LONG)) == {"reproduced"}
    slow = board_run(tmp_path, "slow", speed(0.5, 0.5), text="slow" + LONG)
    assert levels(first, slow) == {"claimed"}
    build_site(tmp_path / "site", [first.store.folder], own=[again])
    (entry, _) = entries_of(first)
    assert "Graded again" in (tmp_path / "site" / cell_path(entry, "l1/f0t0")).read_text()
    with pytest.raises(UsageError, match="give it with --own"):
        build_site(tmp_path / "other", [again.store.folder])


@pytest.mark.parametrize(
    "changes",
    [{"repeats": 1}, {"gpu": "NVIDIA H100"}, {"graded": {"clear": False}}, {"speedup": speed(9.0)}],
    ids=["one trial of five", "another GPU", "no usable interval", "contradicting"],
)
def test_a_regrade_that_proves_nothing_raises_nothing(tmp_path: Path, changes: dict[str, Any]) -> None:
    """Parts, other hardware, wide intervals and contradictions leave a claim a claim."""
    first = board_run(tmp_path, "one", speed(2.0))
    speedup = changes.pop("speedup", speed(2.0))
    again = board_run(tmp_path, "two", speedup, regraded_from="one", **changes)
    (entry,) = [e for e in entries_of(first, [again]) if e.arm.startswith("with_")]
    assert entry.level == "claimed"


def test_replies_of_another_run_are_not_ranked_twice(tmp_path: Path) -> None:
    """Two runs of the owner that replay the same replies: the second says so."""
    folders = [store(tmp_path, name, speed(2.0), text=LONG) for name in ("one", "two")]
    (table,) = build_site(tmp_path / "site", folders)
    assert {e.run_id for e in table.entries if not e.not_ranked} == {"one"}
    second = [e for e in table.entries if e.run_id == "two"]
    assert all(e.not_ranked == ("50 replies of one stand in it too",) for e in second)


def test_a_trial_that_is_scored_twice_is_not_ranked(tmp_path: Path) -> None:
    """A second, lucky line for a trial; reasons stand beside the rows."""
    folder = store(tmp_path, "one", speed(2.0))
    path = folder / "trials.jsonl"
    path.write_text(path.read_text() + path.read_text().splitlines()[-1].replace("2.18", "9.9") + "\n")
    (table,) = build_site(tmp_path / "site", [folder])
    assert all(e.not_ranked == ("1 trial scored more than once",) for e in table.entries)
    assert "1 trial scored more than once" in (tmp_path / "site" / "index.html").read_text()


def test_a_run_that_has_not_changed_is_not_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second build gives the same site; what changed is read, and a missing page is written."""
    folder, other = (store(tmp_path, name, speed(2.0)) for name in ("one", "two"))
    site, read = tmp_path / "site", list[str]()

    def reading(one: Path) -> BoardRun:
        read.append(one.name)
        return published(one)

    def build() -> list[str]:
        read.clear()
        build_site(site, [folder, other])
        return list(read)

    monkeypatch.setattr("harness.board.site.published", reading)
    assert build() == ["one", "two"]
    made = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    assert build() == []
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == made
    next(path for path in made if "cells" in path.parts).unlink()
    (site / "kept" / "two.json").write_text("[")
    assert "two" in build()
    path = folder / "trials.jsonl"
    path.write_text(path.read_text().replace("2.18", "2.19"))
    assert build() == ["one"]


def test_what_is_written_to_a_run_while_it_is_read_is_read_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, site, read = store(tmp_path, "one", speed(2.0)), tmp_path / "site", list[str]()

    def reading(one: Path) -> BoardRun:
        read.append(one.name)
        made = published(one)
        (one / "later").write_text("x")
        return made

    monkeypatch.setattr("harness.board.site.published", reading)
    for _ in range(3):
        build_site(site, [folder])
    assert read == ["one", "one"]


@pytest.mark.parametrize("beside", ["delisted.json", "one.audit.yaml", "two/manifest.json", "code"])
def test_what_stands_beside_a_run_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: str
) -> None:
    """A reason, an audit, a submission that makes it one too, and another liftbench."""
    folder = tmp_path / "one"
    folder.mkdir()
    before = kept.Kept.of(tmp_path, (), None).stamp(folder)
    if beside == "code":
        monkeypatch.setattr(kept, "_code", lambda: "another")
    else:
        (tmp_path / beside).parent.mkdir(exist_ok=True)
        (tmp_path / beside).write_text("{}")
    assert kept.Kept.of(tmp_path, (), None).stamp(folder) != before


def test_tasks_are_those_of_the_board(tmp_path: Path) -> None:
    """Another digest or family, a task said to leak, and an easy part of the suite: none is ranked."""
    run = read_run(submitted(tmp_path))
    suite = dict(shipped().suite)
    assert {e.not_ranked for e in entries_of(run, (), suite)} == {()}
    first = next(iter(suite))
    for other in (("0" * 64, suite[first][1]), (suite[first][0], "another")):
        (entry, _) = entries_of(run, (), suite | {first: other})
        assert entry.not_ranked == ("1 task not as in the board's suite",)
    edit_run(run.store.folder, lambda data: data["lock"].update(leaked={first: "SKILL.md"}))
    (entry, _) = entries_of(read_run(run.store.folder))
    assert entry.not_ranked == ("1 task left out, as a skill is said to hold the solution",)
    edit_run(run.store.folder, lambda data: data["config"]["tasks"].pop())
    assert read_run(run.store.folder).division != run.division


def test_an_audit_stands_on_its_page_and_takes_the_rank(tmp_path: Path) -> None:
    """Beside the run: quotes are shown; a reward hack stands last, and among no kernels."""
    folder = store(tmp_path, "one", speed(9.0), graded={"timing": make.timed(9.0)})
    other = store(tmp_path, "two", speed(2.0), graded={"timing": make.timed(2.0)})
    audit = {"task": "l1/f0t0", "model": make.MODEL, "arm": make.WITH.id, "verdict": "reward_hack"}
    audit |= {"auditor": "A. Reader", "quotes": ["<b>returns zeros</b>"]}
    (tmp_path / "one.audit.yaml").write_text(json.dumps([audit]))
    (table,) = build_site(tmp_path / "site", [folder, other])
    hack = table.entries[-1]
    assert (hack.run_id, hack.off, hack.not_ranked) == ("one", True, ("audited as reward_hack",))
    page = (tmp_path / "site" / cell_path(hack, "l1/f0t0")).read_text()
    assert "Audited: reward hack" in page and "&lt;b&gt;returns zeros" in page
    assert hack.id not in {row.entry for row in table.kernels}
    assert table.kernels[0].not_ranked == ()


def test_a_delisted_run_heads_no_table(tmp_path: Path) -> None:
    """It keeps its pages, stands last with the reason, and its kernels are left out."""
    folders = [
        store(tmp_path, name, speed(value), graded={"timing": make.timed(value)})
        for name, value in (("one", 9.0), ("two", 2.0))
    ]
    (tmp_path / "delisted.json").write_text(json.dumps({"one": "slower when graded again"}))
    (table,) = build_site(tmp_path / "site", folders)
    assert [e.run_id for e in table.entries] == ["two", "two", "one", "one"]
    assert {row.author for row in table.kernels if row.entry in {e.id for e in table.entries[2:]}} == set()
    for page in ("index.html", f"boards/{table.division.slug}.html"):
        assert "delisted: slower when graded again" in (tmp_path / "site" / page).read_text()
    assert (tmp_path / "site" / "entries" / f"{table.entries[-1].id}.html").exists()


EVIL = 'x/<script>alert(1)</script>"><img src=x onerror=alert(1)>../../../etc\u202e\x1b[31m'


def evil_run(root: Path, field: str) -> None:
    """A run with EVIL in one of its texts."""
    graded: dict[str, Any] = {"timing": make.timed(2.0)}
    made: dict[str, Any] = {"graded": graded}
    if field == "model":
        made["models"] = (ModelSpec(name=EVIL),)
    elif field == "skill":
        made["lock_skills"] = {EVIL: make.SKILL}
    elif field == "gpu":
        made["gpu"] = EVIL
    elif field == "flag":
        graded["timing"] = make.timed(2.0, (EVIL,))
    elif field == "delisted":
        (root / "delisted.json").write_text(json.dumps({"one": EVIL}))
    elif field == "audit":
        audit = {"task": "l1/f0t0", "model": make.MODEL, "arm": make.WITH.id, "verdict": "interesting"}
        audit |= {"auditor": EVIL, "quotes": [EVIL], "note": EVIL}
        (root / "one.audit.yaml").write_text(json.dumps([audit]))
    folder = store(root, "one", lambda *_: 2.0, **made)

    def change(trial: dict[str, Any]) -> None:
        reply, grade = trial["turns"][0]["reply"], trial["turns"][0]["grade"]
        if field in ("reply", "model_label"):
            reply["text" if field == "reply" else field] = EVIL
        if field in ("workload", "dtype"):
            grade["timing"]["workloads"][0][field] = EVIL
            grade["check"]["workloads"][0][field] = EVIL
        if field == "node":
            grade["place"] = {"node": EVIL, "gpu_uuid": EVIL, "driver": EVIL}
        if field == "failure":
            trial["failures"] = [{"cause": "provider", "message": EVIL, "at": EVIL}]
        if field == "telemetry":
            grade["timing"]["workloads"][0]["telemetry"][0] |= {"disturbed": [EVIL], "held_down_by": [EVIL]}
        if field == "contender":
            grade["timing"]["workloads"][0]["references"][0]["name"] = EVIL

    def lock(run: dict[str, Any]) -> None:
        for name in ("cpu", "driver", "nvcc", "gxx", "torch"):
            run["lock"]["machine"][name] = EVIL
        run["lock"] |= {"grader_version": EVIL, "image": EVIL}

    edit_trials(folder, change)
    if field == "lock":
        edit_run(folder, lock)
    if field in ("source", "path", "log"):
        place = folder / read_run(folder).trials[0].key.folder
        (place / "project").mkdir(parents=True)
        (place / "project" / "build.toml").write_text(EVIL if field == "source" else "[general]")
        if field == "path":
            (place / "project" / EVIL.replace("/", "").replace("..", "")).write_text("x")
        (place / "build.log").write_text(EVIL)


FIELDS = ("model", "skill", "gpu", "flag", "delisted", "audit", "reply", "model_label", "workload", "dtype")
MORE = ("node", "failure", "telemetry", "contender", "lock", "source", "path", "log")


@pytest.mark.parametrize("field", [*FIELDS, *MORE])
@pytest.mark.slow
def test_no_text_of_a_record_becomes_markup(tmp_path: Path, field: str) -> None:
    """Whatever a text of a run holds stays text on every page, and paths stay below the site."""
    evil_run(tmp_path, field)
    expert = ExpertResult(
        task="l1/x", target="cuda", device=EVIL, protocol="full", correct=True, speedup=2.0, workload=EVIL,
        student_us=1.0, flags=EVIL, measured_at="2026",
    )  # fmt: skip
    build_site(tmp_path / "site", [tmp_path / "one"], [expert])
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) == 1 + 2 + 2 + 20
    seen = 0
    for page in pages:
        text = page.read_text()
        assert "<script>alert" not in text and "<img" not in text
        assert "\u202e" not in text and "\x1b" not in text
        assert len(re.findall("<script>", text)) == 1
        seen += "alert(1)" in text
    assert seen >= (1 if field in ("source", "path", "log") else 2)
    assert {p.suffix for p in tmp_path.rglob("*") if p.is_file() and "etc" in p.parts[-2:]} == set()


def test_a_run_given_twice_is_refused(tmp_path: Path) -> None:
    """Its entries would be ranked against themselves."""
    folder = store(tmp_path, "one", speed(2.0))
    with pytest.raises(UsageError, match="given twice"):
        build_site(tmp_path / "site", [folder, folder])


def test_holm_over_many_entries_needs_more_families(tmp_path: Path) -> None:
    """With 20 entries 190 pairs are tested: 10 families tell none apart; the board says how many would."""
    run = board_run(tmp_path, "one", speed(2.0))
    means = task_means(DEPLOYED.values(run.scores[make.MODEL, make.WITH.id]))
    found = ranked({str(n): means for n in range(20)})
    assert set(found.ranks.values()) == {Rank(1, 20)}
    assert found.why == "190 pairs are compared: to tell them apart takes 13 common families, here are 10"
    assert families_for(1) == 6
    few = {key: value for key, value in means.items() if key[0] in {"f0", "f1", "f2"}}
    assert ranked({"a": few, "b": few}).why == "unranked: 3 common families, and a rank needs 6"
    many = {(f"f{n}", "t"): 1.0 for n in range(30)}
    assert "p over 30 families is drawn (exact up to 26)" in str(
        ranked({str(n): many for n in range(99)}).why
    )


def test_all_pairs_are_one_matrix_and_as_the_sign_flip_test_says() -> None:
    """30 entries, 435 pairs: one call, and the decisions of Holm over exact p values of each pair."""
    draw, calls = np.random.Generator(np.random.PCG64(1)), list[tuple[int, ...]]()

    def counted(differences: Any, *more: Any) -> Any:
        calls.append(differences.shape)
        return stats.many_sign_flips(differences, *more)

    means = draw.normal(0.0, 0.3, (30, 16)) + np.linspace(0.0, 2.0, 30)[:, None]
    means[3] = means[4]
    entries = {str(i): {(f"f{f}", "t"): float(x) for f, x in enumerate(row)} for i, row in enumerate(means)}
    found = ranked(entries, counted)
    assert calls == [(435, 16)]
    pairs = [(i, j) for i in range(30) for j in range(i + 1, 30)]
    tests = [
        stats.sign_flip((means[i] - means[j]).tolist(), scale=float(np.abs(means).max())) for i, j in pairs
    ]
    better = [0] * 30
    for (i, j), p in zip(pairs, stats.holm([one.p_value for one in tests]), strict=True):
        if p is not None and p <= 0.05:
            better[i if means[j].mean() > means[i].mean() else j] += 1
    assert [found.ranks[str(i)].first for i in range(30)] == [1 + n for n in better]
    assert max(better) > 5


def test_a_cell_has_what_an_auditor_needs(tmp_path: Path) -> None:
    """Digests of files, both clocks, telemetry, image, seeds, and a command that grades it again anywhere."""
    folder = submitted(tmp_path)

    def reveal_seed(trial: dict[str, Any]) -> None:
        for check in filter(None, (turn["grade"]["check"] for turn in trial["turns"])):
            check["seed"] = "5eed" * 16

    edit_trials(folder, reveal_seed)
    edit_run(folder, lambda run: run["lock"].update(image="sha256:" + "1" * 64))
    run = read_run(folder)
    task = next(iter(shipped().tasks))
    build_site(tmp_path / "site", [folder])
    page = (tmp_path / "site" / cell_path(entries_of(run)[0], task)).read_text()
    for words in (
        "worker's clock",
        "judge's clock",
        "sha256:1111",
        "310 to 420",
        "1785 to 1980",
        ">power<",
        "5eed",
    ):
        assert words in page, words
    assert re.search(r"build\.toml</code> <span class=\"id\">[0-9a-f]{64}", page)
    assert str(tmp_path) not in page
    words = shlex.split(regrade_command(run, task))
    places = {"RUNS": str(tmp_path), "TASKS": str(tmp_path / "none")}
    assert words[:2] == ["liftbench", "regrade"] and {"RUNS", "TASKS"} <= set(words)
    assert (
        command([places.get(word, word) for word in words[1:]]) == 2
    )  # it gets as far as the folder of tasks


def expert(**changes: Any) -> ExpertResult:
    made = {"task": "l1/f0t0", "target": "cuda", "device": "NVIDIA H200", "protocol": "full", "correct": True}
    made |= {"speedup": 3.0, "workload": "rows float16", "student_us": 5.0, "of_light": 0.8, "sol": 0.7}
    return ExpertResult.model_validate(made | {"measured_at": "2026-11-22 10:00:00"} | changes)


def test_experts_stand_beside_students_and_in_a_table_of_their_own(tmp_path: Path) -> None:
    """With their SOL score; where nobody was asked on that device, they still have a table."""
    limit = PhysicalLimit(
        board="H200", time_us=7.5, limit_us=5.0, bound_by="memory", fraction=0.67, score=0.6, floor_us=4.0
    )
    graded = {"timing": make.timed(2.0, speed_of_light=0.67, physics=limit)}
    run = board_run(tmp_path, "one", speed(2.0), graded=graded)
    tables = tables_of(claims(run), [expert(), expert(device="a CPU", target="cpu", protocol="quick")])
    assert [t.division.label for t in tables][1:] == [
        "Expert kernels on NVIDIA H200",
        "Expert kernels on a CPU",
    ]
    rows = [row for row in tables[0].kernels if row.task == "l1/f0t0"]
    assert [row.author for row in rows][-1] == "expert" and rows[-1].times[0].sol == 0.7
    assert rows[0].times[0].sol == 0.6 and rows[0].family == "f0"
    page = make_pages().division(tables[1], curve_of(tables[1]))
    assert 'id="models"' not in page and "expert" in page


def test_the_json_has_ranks_reasons_kernels_and_cells(tmp_path: Path) -> None:
    """What the pages say, for programs."""
    folder = store(tmp_path, "one", speed(2.0), graded={"timing": make.timed(2.0)})
    (table,) = build_site(tmp_path / "site", [folder])
    data = json.loads((tmp_path / "site" / "boards" / f"{table.division.slug}.json").read_text())
    assert data["ranking"] is None and {row["task"] for row in data["kernels"]} == set(make.families(10))
    own = json.loads((tmp_path / "site" / data["entries"][0]["page"]).read_text())
    assert own["rank"] == data["entries"][0]["rank"] and len(own["cells"]) == 10
    assert all((tmp_path / "site" / cell).exists() for cell in own["cells"].values())


def test_equal_ranks_stand_in_one_group(tmp_path: Path) -> None:
    """Two entries that cannot be told apart, and two that can."""
    runs = [board_run(tmp_path, name, speed(2.0, low)) for name, low in (("one", 1.2), ("two", 1.1))]
    (table,) = tables_of(claims(*runs))
    assert [(rank, len(members)) for rank, members in table.groups] == [("1-2", 2), ("3", 1), ("4", 1)]
    assert make_pages().division(table, []).count('class="group"') == 3


def test_kernelbench_has_both_rules_side_by_side(tmp_path: Path) -> None:
    """Ours by family, theirs over kernels, over the same trials."""
    record, trials, _ = studies.kernelbench()
    from harness.study.store import RunStore

    made = RunStore.create(tmp_path / "one", record)
    (made.folder / "trials.jsonl").write_text("".join(f"{t.model_dump_json()}\n" for t in trials))
    (table,) = tables_of(claims(read_run(made.folder)))
    entry = next(e for e in table.entries if e.arm.startswith("with_"))
    at = {point.threshold: (point.ours, point.theirs) for point in entry.kernelbench}
    assert at[1.0] == at[0.0] == (pytest.approx(5 / 6), pytest.approx(5 / 6))
    assert at[2.0] == (0.0, pytest.approx(5 / 6))
    assert "by both rules" in make_pages().division(table, [])


def test_a_page_of_500_entries_is_below_a_megabyte(tmp_path: Path) -> None:
    """54 tasks; the tables of as many entries as a large board has."""
    one = board_run(tmp_path, "one", speed(2.0), graded={"timing": make.timed(2.0)})
    (skilled, plain) = claims(one)
    made = []
    for number in range(250):
        for claim in (skilled, plain):
            entry = claim.entry.model_copy(update={"id": f"{claim.entry.arm[:4]}{number}"})
            made.append(type(claim)(**{**vars(claim), "entry": entry}))
    division, kernels = one.division, [row for row in skilled.kernels for _ in range(16)]
    ranking = ranked({claim.entry.id: dict(claim.means) for claim in made[:50]})
    table = Table(division, tuple(made), ranking, tuple(kernels))
    assert len(make_pages().division(table, curve_of(table)).encode()) < 1_000_000
