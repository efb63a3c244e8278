"""`liftbench plan`: how large a study must be to find an effect, before anything is paid for.

Owns: its options and the wording of the answer. Does not own: the figures (report/sizing.py). Invariant:
what is assumed is said to be; nothing is run.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.runs_command import DEFAULT_RUNS, RunsOption
from harness.cli.setup import JsonOption, TasksRootOption

if TYPE_CHECKING:
    from pathlib import Path

    from harness.report.sizing import SizePlan, SizeRow, Sizing


_EFFECT_PERCENT = (1, 10_000)
_MOST_SD = 10.0
"""Of a log ratio: families that differ by a factor of 20,000."""


def plan(
    effect: Annotated[
        str | None, typer.Option(help="Such as 15%: x1.15 in deployed, 15 points of correct or compiles.")
    ] = None,
    metric: Annotated[str, typer.Option(help="deployed, correct or compiles.")] = "deployed",
    power: Annotated[float, typer.Option(help="Chance to find the effect.")] = 0.8,
    families: Annotated[int | None, typer.Option(min=2, help="Families at hand: what can they find?")] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per task, model and arm.")] = 5,
    sd: Annotated[float | None, typer.Option(help="Between families; of the log ratio for deployed.")] = None,
    alpha: Annotated[float, typer.Option(help="Level of the decision.")] = 0.05,
    earlier: Annotated[
        str | None, typer.Option("--from", help="An earlier run: its spread, tokens and dollars.")
    ] = None,
    model: Annotated[str | None, typer.Option("-m", "--model", help="provider/model, for its price.")] = None,
    runs_dir: RunsOption = DEFAULT_RUNS,
    tasks_root: TasksRootOption = None,
    json_output: JsonOption = False,
) -> None:
    """Say how many families, tasks and replies an effect takes, and about what they cost."""
    wanted = None if effect is None else _parse_effect(effect)
    sizing = _sizing(wanted, metric, power, repeats, sd, alpha, earlier, model, runs_dir, tasks_root)
    made = sizing.plan(families)
    if json_output:
        print(made.model_dump_json(indent=1))
        return
    _print(made, model)


def _parse_effect(text: str) -> float:
    """`15%` -> 0.15. Raises UsageError, below 1% too: tables show two digits."""
    from harness.errors import UsageError

    found = re.fullmatch(r"\+?(\d+(?:\.\d+)?)%", text.strip())
    if found is None or not _EFFECT_PERCENT[0] <= float(found[1]) <= _EFFECT_PERCENT[1]:
        least, most = _EFFECT_PERCENT
        raise UsageError(f"--effect {text}: write a percentage from {least}% to {most}%, such as 15%")
    return float(found[1]) / 100


def _share(value: float, option: str, most: float) -> float:
    from harness.errors import UsageError

    if not 0.0 < value <= most or value == 1.0:
        limit = f"up to {most:g}" if most < 1 else "below 1"
        raise UsageError(f"{option} {value:g}: give a number above 0 and {limit}")
    return value


def _sizing(
    effect: float | None,
    metric: str,
    power: float,
    repeats: int,
    sd: float | None,
    alpha: float,
    earlier: str | None,
    model: str | None,
    runs_dir: Path,
    tasks_root: Path | None,
) -> Sizing:
    """Raises UsageError for what cannot be."""
    from harness.catalogue import all_tasks
    from harness.cli.study_options import parse_metric
    from harness.errors import UsageError
    from harness.models.prices import load_prices, price_of
    from harness.report.sizing import (
        ASSUMED_USAGE,
        Sizing,
        Spread,
        assumed_spread,
        spread_of,
        usage_of_run,
    )
    from harness.store import find_run

    chosen = parse_metric(metric)
    if chosen != "deployed" and effect is not None and effect > 1.0:
        raise UsageError(f"--effect {100 * effect:g}%: a share has 100 points")
    if sd is not None and not 0.0 < sd <= _MOST_SD:
        raise UsageError(f"--sd {sd:g}: give a number above 0 and up to {_MOST_SD:g}")
    if alpha >= power > 0.0:
        raise UsageError(
            f"--power {power:g}: give a number above --alpha ({alpha:g}), chance alone finds as often"
        )
    spread, usage = assumed_spread(chosen), ASSUMED_USAGE
    if earlier is not None:
        store = find_run(runs_dir, earlier)
        run, trials = store.run(), store.load()
        usage = usage_of_run(run, trials)
        spread = spread if sd is not None else spread_of(run, trials, chosen)
    if sd is not None:
        spread = Spread(sd, "as given")
    price = None if model is None else price_of(model, load_prices())
    if model is not None and price is None:
        raise UsageError(f"-m {model}: no price is known; name it in a table of yours (LIFTBENCH_PRICES)")
    tasks = all_tasks(tasks_root)
    if not tasks:
        raise UsageError(f"no tasks below {tasks_root}")
    return Sizing(
        metric=chosen,
        effect=effect,
        power=_share(power, "--power", 1.0),
        alpha=_share(alpha, "--alpha", 0.05),
        runs=repeats,
        spread=spread,
        usage=usage,
        price=price,
        suite_families=len({t.task.family for t in tasks}),
        suite_tasks=len(tasks),
    )


def _effect(made: SizePlan, effect: float | None) -> str:
    if effect is None:
        return "nothing"  # too few families for any p below alpha
    return f"x{1 + effect:.2f}" if made.metric == "deployed" else f"+{100 * effect:.0f} pts"


def _or_more(made: SizePlan, row: SizeRow) -> str:
    more = "" if row.smallest_effect is None else " or more"
    return f"{_effect(made, row.smallest_effect)}{more}"


def _size(row: SizeRow) -> str:
    from harness.report import figures as f

    cost = f"about {f.tokens(row.tokens)} tokens" if row.tokens is not None else "tokens unknown"
    dollars = "" if row.cost_usd is None else f", about {f.dollars(row.cost_usd)}"
    counts = f"{f.plural(row.families, 'family')}, about {f.plural(row.tasks, 'task')}"
    return f"{counts}, {row.replies:,} replies ({cost}{dollars})"


def _print(made: SizePlan, model: str | None) -> None:
    from rich.console import Console

    from harness.report import figures as f

    unit = "log ratio" if made.metric == "deployed" else "share"
    print(
        f"{made.metric}, {f.percent(made.power)} power, alpha {made.alpha:g}, two arms, "
        f"{f.plural(made.runs, 'run')} per task"
    )
    if made.needed is not None:
        print(f"to find {_effect(made, made.effect)}: {_size(made.needed)}")
    if made.asked is not None:
        print(f"{_size(made.asked)}: find {_or_more(made, made.asked)}")
    print(_suite(made))
    print(f"sd between families {made.sd:.2g} of the {unit}: {made.sd_source}")
    if not made.runs_count:
        print("what more runs per task would gain is not counted: a run knows it (--from)")
    print(f"tokens: {made.usage_source}{'' if model is None else f'; price of {model}, nothing cached'}")
    print("t approximation; below 15 families the exact test finds up to 5 points less often than said here")
    print()
    Console().print(_table(made))


def _suite(made: SizePlan) -> str:
    has = f"the tasks here: {made.suite_tasks} in {made.suite_families} families"
    finds = f"they find {_or_more(made, made.suite)}"
    if made.needed is None:
        return f"{has}; {finds}"
    if made.needed.families <= made.suite_families:
        return f"{has}: enough; {finds}"
    return f"{has}: not enough; {finds}"


def _table(made: SizePlan) -> object:
    from rich.table import Table

    from harness.report import figures as f

    table = Table(box=None, pad_edge=False, header_style="dim")
    priced = made.suite.cost_usd is not None
    names = ["families", "tasks", "replies", "tokens", *(["cost"] if priced else []), "finds"]
    if made.effect is not None:
        names.append(f"chance to find {_effect(made, made.effect)}")
    for name in names:
        table.add_column(name, justify="right")
    for row in made.rows:
        cells = [str(row.families), str(row.tasks), f"{row.replies:,}", f.tokens(row.tokens)]
        cells += [*([f.dollars(row.cost_usd)] if priced else []), _effect(made, row.smallest_effect)]
        table.add_row(*cells, *([] if row.power is None else [f.percent(row.power)]))
    return table
