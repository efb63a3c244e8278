"""`liftbench plan`: how large a study must be to find an effect, before anything is paid for.

What is assumed is said to be; no model is asked and no project is graded.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.runs_command import DEFAULT_RUNS, RunsOption
from harness.cli.setup import JsonOption, TasksRootOption

if TYPE_CHECKING:
    from pathlib import Path

    from harness.models.prices import Price
    from harness.report.simulation import Design
    from harness.report.spread import Spread, Usage
    from harness.study.study import Metric


_EFFECT_PERCENT = (1, 10_000)
_MOST_SD = 10.0
"""Of a log ratio: families that differ by a factor of 20,000."""
_MOST_SKILLS, _MOST_LOOKS, _MOST_DECISIONS = 15, 10, 30


def plan(
    effect: Annotated[
        str | None, typer.Option(help="Such as 15%: x1.15 in deployed, 15 points of correct or compiles.")
    ] = None,
    metric: Annotated[str, typer.Option(help="deployed, correct or compiles.")] = "deployed",
    power: Annotated[float, typer.Option(help="Chance to find the effect.")] = 0.8,
    families: Annotated[int | None, typer.Option(min=2, help="Families at hand: what can they find?")] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per task, model and arm.")] = 5,
    sd: Annotated[float | None, typer.Option(help="Between families; of the log ratio for deployed.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Level of the decision (0.05).")] = None,
    look: Annotated[
        int | None, typer.Option(min=1, help="K-th look of a refined skill at the same tasks: 0.05 / 2^K.")
    ] = None,
    skills: Annotated[
        int, typer.Option(min=1, help="Arms with a skill: 3 skills, or 7 with all their combinations.")
    ] = 1,
    arms: Annotated[list[str] | None, typer.Option(help="placebo: helps must beat that, too.")] = None,
    earlier: Annotated[
        str | None, typer.Option("--from", help="An earlier run: its spread, tokens and dollars.")
    ] = None,
    model: Annotated[
        list[str] | None, typer.Option("-m", "--model", help="provider/model, for its price; repeatable.")
    ] = None,
    runs_dir: RunsOption = DEFAULT_RUNS,
    tasks_root: TasksRootOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say how large a study must be to find an effect.

    In families, tasks and replies, and about what they cost.
    """
    from harness.cli.plan_view import print_plan, showing
    from harness.cli.study_options import parse_metric
    from harness.errors import UsageError
    from harness.report.sizing import Sizing
    from harness.suite.catalogue import all_tasks

    chosen, models = parse_metric(metric), tuple(model or ())
    wanted = None if effect is None else _parse_effect(effect, chosen)
    level = _level(alpha, look)
    if level >= power > 0.0:
        raise UsageError(
            f"--power {power:g}: give a number above --alpha ({level:g}), chance alone finds as often"
        )
    spread, usage = _grounds(chosen, sd, earlier, runs_dir)
    prices = _prices(models)
    tasks = all_tasks(tasks_root)
    if not tasks:
        raise UsageError(f"no tasks below {tasks_root}")
    sizing = Sizing(
        metric=chosen,
        effect=wanted,
        power=_share(power, "--power", 1.0),
        alpha=level,
        look=look,
        runs=repeats,
        design=_design(skills, models, arms or []),
        spread=spread,
        usage=usage,
        prices=prices,
        suite_families=len({t.task.family for t in tasks}),
        suite_tasks=len(tasks),
    )
    with showing(simulated=not sizing.design.plain) as progress:
        made = sizing.plan(families, progress)
    if json_output:
        print(made.model_dump_json(indent=1))
        return
    priced = dict(zip(models, prices, strict=False))
    print_plan(made, priced)


def _parse_effect(text: str, metric: str) -> float:
    """`15%` -> 0.15. Raises UsageError, below 1% too: tables show two digits."""
    from harness.errors import UsageError

    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)%", text.strip())
    if found is None or not _EFFECT_PERCENT[0] <= float(found[1]) <= _EFFECT_PERCENT[1]:
        least, most = _EFFECT_PERCENT
        raise UsageError(f"--effect {text}: write a percentage from {least}% to {most}%, such as 15%")
    if metric != "deployed" and float(found[1]) > 100.0:
        raise UsageError(f"--effect {text}: a share has 100 points")
    return float(found[1]) / 100


def _share(value: float, option: str, most: float) -> float:
    from harness.errors import UsageError

    if not 0.0 < value <= most or value == 1.0:
        limit = f"up to {most:g}" if most < 1 else "below 1"
        raise UsageError(f"{option} {value:g}: give a number above 0 and {limit}")
    return value


def _level(alpha: float | None, look: int | None) -> float:
    """The level of the decision. Raises UsageError for both options, or for one that is out of range."""
    from harness.errors import UsageError

    if alpha is not None and look is not None:
        raise UsageError("--alpha and --look: give one of them; a look sets its own level, 0.05 / 2^K")
    if look is not None and look > _MOST_LOOKS:
        raise UsageError(
            f"--look {look}: give at most {_MOST_LOOKS}, then take tasks that were not looked at"
        )
    return 0.05 / 2**look if look is not None else _share(0.05 if alpha is None else alpha, "--alpha", 0.05)


def _design(skills: int, models: tuple[str, ...], arms: list[str]) -> Design:
    """Raises UsageError for what cannot be planned."""
    from harness.cli.study_options import model_specs
    from harness.errors import UsageError
    from harness.report.simulation import Design

    words = [word.strip() for text in arms for word in text.split(",")]
    other = [word for word in words if word != "placebo"]
    if other:
        raise UsageError(
            f"--arms {other[0]}: write placebo; an old version is planned as no skill is: give no --arms"
        )
    if skills > _MOST_SKILLS:
        raise UsageError(f"--skills {skills}: give at most {_MOST_SKILLS}, what --combine makes of 4 skills")
    if skills * len(models) > _MOST_DECISIONS:
        raise UsageError(
            f"--skills {skills} with {len(models)} models: {skills * len(models)} decisions, and Holm leaves "
            f"next to nothing to each; plan at most {_MOST_DECISIONS} at once"
        )
    model_specs(list(models), None)  # no name twice
    return Design(skills=skills, models=max(1, len(models)), placebo=bool(words))


def _grounds(metric: Metric, sd: float | None, earlier: str | None, runs_dir: Path) -> tuple[Spread, Usage]:
    """Spread and tokens: as given, else of the earlier run, else assumed. Raises UsageError."""
    from harness.errors import UsageError
    from harness.report.spread import ASSUMED_USAGE, Spread, assumed_spread, spread_of, usage_of_run
    from harness.study.store import find_run

    if sd is not None and not 0.0 < sd <= _MOST_SD:
        raise UsageError(f"--sd {sd:g}: give a number above 0 and up to {_MOST_SD:g}")
    given = None if sd is None else Spread(sd, "as given")
    if earlier is None:
        return given or assumed_spread(metric), ASSUMED_USAGE
    store = find_run(runs_dir, earlier)
    run, trials = store.run(), store.load()
    return given or spread_of(run, trials, metric), usage_of_run(run, trials)


def _prices(models: tuple[str, ...]) -> tuple[Price | None, ...]:
    """Of every model, None where unknown; one None without a model: as an earlier run paid, if any."""
    from harness.models.prices import load_prices, price_of

    table = load_prices()
    return tuple(price_of(name, table) for name in models) or (None,)
