"""`liftbench plan` as a user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.cli.plan_command import plan
from harness.errors import UsageError
from harness.report.sizing import FAMILIES
from harness.study.store import RunStore
from tests.cli.test_main import liftbench
from tests.report import factories as make


def test_plan_says_whether_the_suite_is_enough() -> None:
    """x1.15 takes more families than the 25 that are shipped; what they can find stands beside it."""
    done = liftbench("plan", "--effect", "15%")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[1].startswith(
        "to find x1.15: 103 families, about 222 tasks, 2,220 trials of one call each (about 17.5M tokens)"
    )
    assert lines[2] == "the tasks here: 54 in 25 families: not enough; they find x1.34 or more"
    assert "assumed" in done.stdout
    assert [int(line.split()[0]) for line in lines[-10:]] == list(FAMILIES)


def test_plan_knows_points_prices_and_families(capsys: pytest.CaptureFixture[str]) -> None:
    """20 points of correct take 20 families; a priced model gives dollars; --families what they find."""
    plan(effect="20%", metric="correct", model=["anthropic/claude-haiku-4-5"], families=12, json_output=True)
    made = json.loads(capsys.readouterr().out)
    assert made["needed"]["families"] == 20
    assert made["needed"]["cost_usd"] == pytest.approx(215 * (6_800 * 1.0 + 9_000 * 5.0) / 1e6)
    assert made["asked"]["smallest_effect"] == pytest.approx(0.266, abs=0.002)
    assert made["needed"]["power"] >= 0.8


def test_plan_learns_from_an_earlier_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The spread, its chance between runs, and the tokens of a run replace what is assumed."""
    run, trials, _ = make.study()
    store = RunStore.create(tmp_path / run.run_id, run)
    with store.writer():
        for trial in trials:
            store.append(trial)
    made = []
    for runs in (20, 1):
        plan(effect="15%", earlier="last", repeats=runs, runs_dir=tmp_path, json_output=True)
        made.append(json.loads(capsys.readouterr().out))
    more, fewer = made
    assert run.run_id in more["sd_source"] and run.run_id in more["usage_source"]
    assert more["runs_count"] is True
    assert more["sd"] < fewer["sd"]
    assert more["needed"]["families"] <= fewer["needed"]["families"]
    assert more["suite"]["cost_usd"] > 0


def test_plan_knows_placebos_skills_models_and_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """Everything that `eval` runs is in the words and the figures, with the error of the simulation."""
    plan(effect="60%", skills=2, arms=["placebo"], model=["anthropic/claude-haiku-4-5", "x/y"], look=1)
    said, told = capsys.readouterr()
    assert told.splitlines()[:2] == ["simulating: families needed", "simulating: 25 families, the tasks here"]
    lines = said.splitlines()
    assert lines[0] == (
        "deployed, 80% power, alpha 0.025 (look 1), 2 skills x 2 models, each against a placebo too "
        "(4 decisions, Holm), 5 runs per task"
    )
    needed = re.match(
        r"to find x1.60: (\d+) families, about \d+ tasks, ([\d,]+) trials of one call", lines[1]
    )
    assert needed is not None
    assert int(needed[2].replace(",", "")) == round(int(needed[1]) * 54 / 25) * 5 * 5 * 2
    assert lines[2].startswith("  where all 4 have x1.60: each is found in ")
    assert "no price is known of x/y, so no dollars" in said
    assert (
        "simulated: 750 studies a figure, decided as a report decides; Monte-Carlo error 1.5 points" in said
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "15"}, "--effect 15: write a percentage from 1% to 10000%, such as 15%"),
        ({"effect": "0%"}, "write a percentage from 1%"),
        ({"effect": "120%", "metric": "correct"}, "a share has 100 points"),
        ({"metric": "speed"}, "there are deployed, correct and compiles"),
        ({"power": 1.0}, "--power 1: give a number above 0 and below 1"),
        ({"alpha": 0.1}, "--alpha 0.1: give a number above 0 and up to 0.05"),
        ({"sd": 0.0}, "--sd 0: give a number above 0"),
        ({"sd": 1e9}, "--sd 1e+09: give a number above 0 and up to 10"),
        ({"effect": f"{'9' * 400}%"}, "write a percentage from 1%"),
        ({"power": 0.05}, "--power 0.05: give a number above --alpha"),
        ({"look": 2, "alpha": 0.01}, "--alpha and --look: give one of them"),
        ({"look": 11}, "--look 11: give at most 10"),
        ({"arms": ["old=x"]}, "--arms old=x: write placebo"),
        ({"skills": 16}, "--skills 16: give at most 15"),
        ({"model": ["a/b", "a/b"]}, "a model is named twice"),
        ({"model": [f"a/{i}" for i in range(11)], "skills": 3}, "33 decisions, and Holm leaves next to"),
        ({"model": ["nothing"]}, "provider"),
        ({"earlier": "never"}, "no run 'never'"),
    ],
)
def test_plan_refuses_what_cannot_be(options: dict[str, Any], said: str) -> None:
    """What is wrong, and what to write instead."""
    with pytest.raises(UsageError, match=re.escape(said)):
        plan(**options)


def test_a_refusal_ends_with_2() -> None:
    """As every usage error does."""
    assert liftbench("plan", "--effect", "15").returncode == 2
