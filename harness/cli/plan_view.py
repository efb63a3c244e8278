"""What `liftbench plan` says: the answer in words, what it rests on, and the table over families.

Progress goes to stderr, the answer to stdout; what is simulated says so, with its error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table

from harness.models.prices import Price
from harness.report import figures as f
from harness.report.sizing import SizePlan, SizeRow


@contextmanager
def showing(*, simulated: bool) -> Iterator[Callable[[str], None]]:
    """One live line on stderr in a terminal, a plain line for each step elsewhere; a formula needs none."""
    live = sys.stderr.isatty()

    def show(what: str) -> None:
        if simulated and live:
            print(f"\r\x1b[Ksimulating: {what}", end="", file=sys.stderr, flush=True)
        elif simulated:
            print(f"simulating: {what}", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        if simulated and live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def print_plan(made: SizePlan, priced: Mapping[str, Price | None]) -> None:
    """priced: the models that were named, with their prices."""
    unit = "log ratio" if made.metric == "deployed" else "share"
    level = f"alpha {made.alpha:g}" + ("" if made.look is None else f" (look {made.look})")
    print(
        f"{made.metric}, {f.percent(made.power)} power, {level}, {_design(made)}, "
        f"{f.plural(made.runs, 'run')} per task"
    )
    if made.needed is not None:
        print(f"to find {_effect(made, made.effect)}: {_size(made.needed)}")
        _print_everywhere(made, made.needed)
    if made.needed_above is not None:
        print(f"to find {_effect(made, made.effect)}: more than {made.needed_above} families")
    if made.asked is not None:
        print(f"{_size(made.asked)}: find {_or_more(made, made.asked)}")
        _print_everywhere(made, made.asked)
    print(_suite(made))
    _print_everywhere(made, made.suite)
    print(f"sd between families {made.sd:.2g} of the {unit}: {made.sd_source}")
    if not made.runs_count:
        print("what more runs per task would gain is not counted: a run knows it (--from)")
    print(f"tokens: {made.usage_source}{_prices(priced)}")
    for line in _method(made):
        print(line)
    print()
    Console().print(_table(made))


def _design(made: SizePlan) -> str:
    """Such as `2 arms`, or `3 skills x 2 models, each against a placebo too (6 decisions, Holm)`."""
    count = made.skills * made.models
    if count == 1:
        return "two arms" if not made.placebo else "without, with and placebo"
    against = ", each against a placebo too" if made.placebo else ""
    return (
        f"{f.plural(made.skills, 'skill')} x {f.plural(made.models, 'model')}{against} "
        f"({count} decisions, Holm)"
    )


def _method(made: SizePlan) -> Iterator[str]:
    if made.simulated_studies is None or made.monte_carlo_error is None:
        yield "t approximation; below 15 families the exact test finds up to 5 points less often than here"
        return
    yield (
        f"simulated: {made.simulated_studies:,} studies a figure, decided as a report decides; "
        f"Monte-Carlo error {100 * made.monte_carlo_error:.1f} points"
    )
    several = made.skills * made.models > 1
    if several:
        yield "a chance is that of one comparison while no other has any effect, the hardest case for Holm"
    if made.placebo:
        yield "the placebo is taken to do nothing: the effect is over it as well as over no skill"


def _prices(priced: Mapping[str, Price | None]) -> str:
    unknown = [name for name, price in priced.items() if price is None]
    if unknown:
        return (
            f"; no price is known of {', '.join(unknown)}, so no dollars: name it in a table of yours "
            "(LIFTBENCH_PRICES)"
        )
    return f"; price of {', '.join(priced)}, nothing cached" if priced else ""


def _effect(made: SizePlan, effect: float | None) -> str:
    if effect is None:
        return "nothing"  # too few families for any p below alpha
    return f"x{1 + effect:.2f}" if made.metric == "deployed" else f"+{100 * effect:.0f} pts"


def _or_more(made: SizePlan, row: SizeRow) -> str:
    more = "" if row.smallest_effect is None else " or more"
    return f"{_effect(made, row.smallest_effect)}{more}"


def _size(row: SizeRow) -> str:
    cost = f"about {f.tokens(row.tokens)} tokens" if row.tokens is not None else "tokens unknown"
    dollars = "" if row.cost_usd is None else f", about {f.dollars(row.cost_usd)}"
    counts = f"{f.plural(row.families, 'family')}, about {f.plural(row.tasks, 'task')}"
    return f"{counts}, {row.trials:,} trials of one call each ({cost}{dollars})"


def _print_everywhere(made: SizePlan, row: SizeRow) -> None:
    if row.power_each is not None and row.power_all is not None:
        count = made.skills * made.models
        print(
            f"  where all {count} have {_effect(made, made.effect)}: each is found in "
            f"{f.percent(row.power_each)} of studies, all of them in {f.percent(row.power_all)}"
        )


def _suite(made: SizePlan) -> str:
    has = f"the tasks here: {made.suite_tasks} in {made.suite_families} families"
    finds = f"they find {_or_more(made, made.suite)}"
    if made.effect is None:
        return f"{has}; {finds}"
    enough = made.needed is not None and made.needed.families <= made.suite_families
    return f"{has}: {'enough' if enough else 'not enough'}; {finds}"


def _table(made: SizePlan) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    priced = made.suite.cost_usd is not None
    finds = made.simulated_studies is None or made.effect is None
    names = ["families", "tasks", "trials", "tokens", *(["cost"] if priced else [])]
    names += [*(["finds"] if finds else [])]
    if made.effect is not None:
        names.append(f"chance to find {_effect(made, made.effect)}")
    for name in names:
        table.add_column(name, justify="right")
    for row in made.rows:
        cells = [str(row.families), str(row.tasks), f"{row.trials:,}", f.tokens(row.tokens)]
        cells += [f.dollars(row.cost_usd)] if priced else []
        cells += [_effect(made, row.smallest_effect)] if finds else []
        table.add_row(*cells, *([] if row.power is None else [f.percent(row.power)]))
    return table
