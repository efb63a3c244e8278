"""`liftbench plan`: how large a study must be to find an effect."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from harness.cli.card import plain_table
from harness.cli.options import (
    DEFAULT_RUNS,
    JsonOption,
    RepeatsOption,
    RunsDirOption,
    TasksRootOption,
    model_specs,
)
from harness.errors import UsageError
from harness.models.prices import find_price
from harness.records import Metric
from harness.report import figures
from harness.report.spread import OBSERVED, Spread, observed_spread
from harness.report.study_size import (
    ASSUMED_COSTS,
    GOAL_REPLIES,
    GOALS,
    StudyDesign,
    StudyPlan,
    StudySize,
    costs_of_run,
)
from harness.study.store import find_run
from harness.suite.catalogue import all_tasks

_EFFECT_PERCENT = (1, 10_000)
_MAX_SD = 10.0
"""Of a log ratio: families that differ by a factor of 20,000."""
_MAX_DECISIONS = 30
_EXACT = "t approximation: below 15 families the exact test finds an effect up to 10 points less often"


def plan(
    effect: Annotated[
        str | None, typer.Option(help="Such as 15%: x1.15 in deployed, 15 points of correct or compiles.")
    ] = None,
    metric: Annotated[
        Metric | None, typer.Option(metavar="METRIC", help="deployed (default), correct or compiles.")
    ] = None,
    power: Annotated[float, typer.Option(help="Chance to find the effect.")] = 0.8,
    families: Annotated[int | None, typer.Option(min=2, help="Number of families you have.")] = None,
    repeats: RepeatsOption = 5,
    sd: Annotated[float | None, typer.Option(help="Between families; of the log ratio for deployed.")] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="Share without a skill, such as 0% (default: the least favorable)."),
    ] = None,
    alpha: Annotated[float, typer.Option(help="Level of the decision.")] = 0.05,
    skills: Annotated[int, typer.Option(min=1, help="Arms with a skill, decided together by Holm.")] = 1,
    earlier: Annotated[
        str | None, typer.Option("--from", help="An earlier run: its spread, tokens and dollars.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("-m", "--model", help="provider/model, for its price; repeatable.")
    ] = None,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    tasks_root: TasksRootOption = None,
    json_output: JsonOption = False,
) -> None:
    models = tuple(model or ())
    primary = metric or "deployed"
    wanted = None if effect is None else _parse_effect(effect, primary)
    _require(0.0 < alpha <= 0.05, f"--alpha {alpha:g}: give a number above 0 and up to 0.05")
    _require(0.0 < power < 1.0, f"--power {power:g}: give a number above 0 and below 1")
    _require(alpha < power, f"--power {power:g}: give a number above --alpha ({alpha:g})")
    if sd is not None:
        _require(0.0 < sd <= _MAX_SD, f"--sd {sd:g}: give a number above 0 and up to {_MAX_SD:g}")
    model_specs(list(models), None)
    decisions = skills * max(1, len(models))
    _require(decisions <= _MAX_DECISIONS, f"{decisions} decisions: plan at most {_MAX_DECISIONS} at once")
    tasks = all_tasks(tasks_root)
    _require(bool(tasks), f"no tasks below {tasks_root}")
    prices = {name: find_price(name) for name in models}
    grounds = _grounds(primary, sd, earlier, runs_dir)
    if baseline is not None:
        grounds["baseline"] = _parse_baseline(baseline, primary)
    level = grounds.get("baseline") or 0.0
    fits = wanted is None or primary == "deployed" or wanted + level <= 1.0
    _require(fits, f"--effect {effect}: {level:.0%} without a skill leaves less; give another --baseline")
    design = StudyDesign(
        **grounds,
        metric=primary,
        effect=wanted,
        power=power,
        alpha=alpha,
        runs=repeats,
        skills=skills,
        models=max(1, len(models)),
        prices=tuple(prices.values()) or (None,),
        suite_families=len({t.task.family for t in tasks}),
        suite_tasks=len(tasks),
    )
    if (metric, effect, families, sd, baseline, earlier) == (None,) * 6:
        _print_goals(design, json_output=json_output)
        return
    made = design.plan(families)
    if json_output:
        print(made.model_dump_json(indent=1))
        return
    print(*_lines(made, [name for name, price in prices.items() if price is None]), sep="\n")
    Console().print(_table(made))


def _grounds(metric: str, sd: float | None, earlier: str | None, runs_dir: Path) -> dict[str, Any]:
    """Spread between families and costs of a trial, with their sources. Raises UsageError."""
    found: dict[str, Any] = {"spread": OBSERVED[metric], "costs": ASSUMED_COSTS}
    found["costs_source"] = "assumed: 1.6k of prompt, 3.6k of skill, 4.5k of reply"
    if earlier is not None:
        store = find_run(runs_dir, earlier)
        run, trials = store.run(), store.load()
        found |= {"costs": costs_of_run(run, trials), "costs_source": f"as in {run.run_id}"}
        if sd is None:
            found["spread"], level = observed_spread(run, trials, metric)
            found["baseline"] = level if found["spread"].share else None
    if sd is not None:
        found["spread"] = Spread(source="as given", total=sd, replies=1.0, between=sd, share=False)
    return found


def _print_goals(design: StudyDesign, *, json_output: bool) -> None:
    """What the effects that most studies look for take, with one, two and five replies."""
    plans = []
    for (metric, effect), replies in itertools.product(GOALS, GOAL_REPLIES):
        changed = {"metric": metric, "effect": effect, "runs": replies, "spread": OBSERVED[metric]}
        plans.append(design.model_copy(update=changed).plan(None))
    if json_output:
        print(json.dumps([one.model_dump(mode="json", exclude={"rows"}) for one in plans], indent=1))
        return
    names = ("to find", "replies", "families", "trials", "tokens", "the tasks here find")
    table = plain_table(*names, right=names[1:])
    for one in plans:
        assert one.needed is not None
        fewest, most = one.least_families, one.needed.families
        table.add_row(
            f"{_effect(one.design, one.design.effect)} {one.design.metric}",
            str(one.design.runs),
            str(most) if fewest == most else f"{fewest} to {most}",
            f"{one.needed.trials:,}",
            figures.tokens(one.needed.tokens),
            _effect(one.design, one.suite.smallest_effect),
        )
    print(f"{_terms(design)}, replies per task and arm")
    Console().print(table)
    print(f"\nthe tasks here: {design.suite_tasks} in {design.suite_families} families")
    for source in dict.fromkeys(one.design.spread.source for one in plans):
        print(f"spread of families: {source}")
    print("shares: a baseline in the middle, where replies scatter most; --baseline 0% takes fewer families")
    print("deployed: fewest if the spread came from replies alone, most if none of it did")
    print(_EXACT)


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UsageError(message)


def _parse_effect(text: str, metric: str) -> float:
    """`15%` -> 0.15. Raises UsageError."""
    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)%", text.strip())
    least, most = _EFFECT_PERCENT
    if found is None or not least <= float(found[1]) <= most:
        raise UsageError(f"--effect {text}: write a percentage from {least}% to {most}%, such as 15%")
    _require(metric == "deployed" or float(found[1]) <= 100.0, f"--effect {text}: a share has 100 points")
    return float(found[1]) / 100


def _parse_baseline(text: str, metric: str) -> float:
    """`40%` -> 0.4. Raises UsageError."""
    _require(metric != "deployed", "--baseline: deployed is a ratio, and needs none; give --metric compiles")
    found = re.fullmatch(r"(\d+(?:\.\d+)?)%", text.strip())
    if found is None or float(found[1]) > 100.0:
        raise UsageError(f"--baseline {text}: write a percentage from 0% to 100%, such as 40%")
    return float(found[1]) / 100


def _terms(design: StudyDesign) -> str:
    count = design.skills * design.models
    decisions = "one decision" if count == 1 else f"{count} decisions (Holm)"
    return f"{figures.percent(design.power)} power, alpha {design.alpha:g}, {decisions}"


def _lines(made: StudyPlan, unpriced: list[str]) -> Iterator[str]:
    design = made.design
    yield f"{design.metric}, {_terms(design)}, {figures.plural(design.runs, 'run')} per task"
    if made.needed is not None:
        yield f"to find {_effect(design, design.effect)}: {_size(made.needed)}"
    if made.asked is not None:
        yield f"{_size(made.asked)}: find {_or_more(design, made.asked)}"
    enough = ""
    if made.needed is not None:
        enough = " enough;" if made.needed.families <= design.suite_families else " not enough;"
    suite = f"{design.suite_tasks} in {design.suite_families} families"
    yield f"the tasks here: {suite}:{enough} they find {_or_more(design, made.suite)}"
    unit = "log ratio" if design.metric == "deployed" else "share"
    parts = "" if design.spread.between is not None else "; as if more replies did not lower it"
    if design.spread.share:
        level = "where replies scatter most" if design.baseline is None else figures.percent(design.baseline)
        parts = f"; {design.spread.between:.2g} without the scatter of replies; baseline {level}"
    yield f"sd between families {design.sd:.2g} of the {unit}: {design.spread.source}{parts}"
    prices = f"; unknown price: {', '.join(unpriced)} (add it with LIFTBENCH_PRICES)" if unpriced else ""
    yield f"tokens: {design.costs_source}{prices}"
    yield _EXACT
    yield ""


def _effect(design: StudyDesign, effect: float | None) -> str:
    if effect is None:
        return "nothing"
    return f"x{1 + effect:.2f}" if design.metric == "deployed" else f"+{100 * effect:.0f} pts"


def _or_more(design: StudyDesign, row: StudySize) -> str:
    return _effect(design, row.smallest_effect) + ("" if row.smallest_effect is None else " or more")


def _size(row: StudySize) -> str:
    cost = f"about {figures.tokens(row.tokens)} tokens" if row.tokens is not None else "tokens unknown"
    dollars = "" if row.cost_usd is None else f", about {figures.dollars(row.cost_usd)}"
    counts = f"{figures.plural(row.families, 'family')}, about {figures.plural(row.tasks, 'task')}"
    return f"{counts}, {row.trials:,} trials of one call each ({cost}{dollars})"


def _table(made: StudyPlan) -> Table:
    design = made.design
    priced = made.suite.cost_usd is not None
    names = ["families", "tasks", "trials", "tokens", *(["cost"] if priced else []), "finds"]
    if design.effect is not None:
        names.append(f"chance to find {_effect(design, design.effect)}")
    table = plain_table(*names, right=names)
    for row in made.rows:
        cells = [str(row.families), str(row.tasks), f"{row.trials:,}", figures.tokens(row.tokens)]
        cells += [figures.dollars(row.cost_usd)] if priced else []
        cells += [_effect(design, row.smallest_effect)]
        cells += [] if row.power is None else [figures.percent(row.power)]
        table.add_row(*cells)
    return table
