"""`liftbench plan` as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.cli.main import run
from harness.cli.plan import plan
from harness.errors import UsageError
from harness.report.study_size import GOALS, TABLE_FAMILIES
from harness.study.store import RunStore, sole_writer
from tests.report import factories as make


def test_plan_says_whether_the_suite_is_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """x1.15 takes more families than the 25 that are shipped; what they can find stands beside it."""
    assert run(["plan", "--effect", "15%"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].startswith(
        "to find x1.15: 53 families, about 114 tasks, 1,140 trials of one call each (about 9.0M tokens)"
    )
    assert lines[2] == "the tasks here: 54 in 25 families: not enough; they find x1.23 or more"
    assert any("observed in studies/cpu-kernel-builder: 13 families" in line for line in lines)
    assert [int(line.split()[0]) for line in lines[-10:]] == list(TABLE_FAMILIES)


def test_plan_without_arguments_sizes_the_usual_studies(capsys: pytest.CaptureFixture[str]) -> None:
    """Three effects, with 1, 2 and 5 replies: more replies, fewer families; the source is named."""
    assert run(["plan"]) == 0
    text = capsys.readouterr().out
    rows = [line.split() for line in text.splitlines() if "pts" in line[:8] or line.startswith("x1.15")]
    assert [(row[0], row[-1]) for row in rows[:3]] == [("+20", "pts")] * 3
    assert [row[3:5] for row in rows[:3]] == [["1", "47"], ["2", "25"], ["5", "12"]]
    assert rows[6][:6] == ["x1.15", "deployed", "1", "26", "to", "53"]
    assert "observed in studies/cpu-kernel-builder: 13 families, one reply per task" in text
    assert "observed in studies/cuda-kernel-builder: 12 families, two replies per task" in text
    plan(json_output=True)
    made = json.loads(capsys.readouterr().out)
    assert [(one["design"]["metric"], one["design"]["effect"]) for one in made[::3]] == list(GOALS)
    assert [one["needed"]["families"] for one in made[:3]] == [47, 25, 12]


def test_plan_knows_points_prices_and_families(capsys: pytest.CaptureFixture[str]) -> None:
    """20 points at sd 0.3 take 20 families; a priced model gives dollars; --families what they find."""
    model = ["anthropic/claude-haiku-4-5"]
    plan(effect="20%", metric="correct", sd=0.3, model=model, families=12, json_output=True)
    made = json.loads(capsys.readouterr().out)
    assert made["needed"]["families"] == 20
    assert made["needed"]["cost_usd"] == pytest.approx(215 * (6_800 * 1.0 + 9_000 * 5.0) / 1e6)
    assert made["asked"]["smallest_effect"] == pytest.approx(0.266, abs=0.002)
    assert made["needed"]["power"] >= 0.8


def test_plan_learns_from_an_earlier_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The spread and the costs of a run replace what is assumed; --sd wins over its spread."""
    run, trials, _ = make.study()
    store = RunStore.create(tmp_path / run.run_id, run)
    with sole_writer(store.folder):
        for trial in trials:
            store.append(trial)
    plan(effect="15%", earlier="last", runs_dir=tmp_path, json_output=True)
    made = json.loads(capsys.readouterr().out)
    assert run.run_id in made["design"]["spread"]["source"] and run.run_id in made["design"]["costs_source"]
    assert made["suite"]["cost_usd"] > 0
    plan(effect="15%", earlier="last", sd=0.5, runs_dir=tmp_path)
    assert "sd between families 0.5 of the log ratio: as given" in capsys.readouterr().out


def test_plan_knows_several_skills_and_models(capsys: pytest.CaptureFixture[str]) -> None:
    """Decisions made together share the level; a model without a known price is named."""
    plan(effect="60%", skills=2, model=["anthropic/claude-haiku-4-5", "x/y"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "deployed, 80% power, alpha 0.05, 4 decisions (Holm), 5 runs per task"
    needed = re.match(r"to find x1.60: (\d+) families, about \d+ tasks, ([\d,]+) trials", lines[1])
    assert needed is not None
    assert int(needed[2].replace(",", "")) == round(int(needed[1]) * 54 / 25) * 5 * 3 * 2
    assert any("unknown price: x/y" in line for line in lines)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "15"}, "--effect 15: write a percentage from 1% to 10000%, such as 15%"),
        ({"effect": "120%", "metric": "correct"}, "a share has 100 points"),
        ({"baseline": "40", "metric": "correct"}, "--baseline 40: write a percentage from 0% to 100%"),
        ({"baseline": "40%"}, "deployed is a ratio"),
        ({"effect": "20%", "baseline": "90%", "metric": "compiles"}, "90% without a skill leaves less"),
        ({"alpha": 0.1}, "--alpha 0.1: give a number above 0 and up to 0.05"),
        ({"sd": 1e9}, "--sd 1e+09: give a number above 0 and up to 10"),
        ({"power": 0.05}, "--power 0.05: give a number above --alpha"),
        ({"model": [f"a/{i}" for i in range(11)], "skills": 3}, "33 decisions: plan at most 30"),
        ({"earlier": "never"}, "no run 'never'"),
    ],
)
def test_plan_refuses_what_cannot_be(options: dict[str, Any], said: str) -> None:
    """What is wrong, and what to write instead."""
    with pytest.raises(UsageError, match=re.escape(said)):
        plan(**options)
