"""`liftbench compare` and `regrade`: two runs side by side, and the replies of a run graded again."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.text import Text

from harness.cli.options import (
    DEFAULT_RUNS,
    CacheOption,
    EmulateOption,
    FleetOptions,
    GradingOptions,
    JsonOption,
    RunArgument,
    RunsDirOption,
    SandboxOption,
    TasksRootOption,
    make_setup,
)
from harness.cli.progress import StderrDisplay
from harness.cli.runs import short_run
from harness.cli.tasks import chosen_tasks
from harness.records import Target
from harness.report import figures
from harness.report.run_comparison import ALPHA, Cell, PairedRow, RunComparison, Side, compare_runs
from harness.report.write import report_run
from harness.study.regrade import read_source
from harness.study.regrade import regrade as regrade_run
from harness.study.run import RunContext
from harness.study.store import find_run
from harness.text import clean

_LABEL, _LEVEL, _CHANGE, _INTERVAL, _P = 16, 10, 10, 18, 8
_TRIALS: Final = 20
"""At most this many trials whose verdict changed are printed; --json has all."""

Line = tuple[str, str]


def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="A run, as `show` takes it.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The run that is compared with it.")],
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
) -> None:
    """Trials are paired by task; intervals and p values are by family."""
    found = compare_runs(find_run(runs_dir, a), find_run(runs_dir, b))
    if json_output:
        print(found.model_dump_json(indent=1))
    else:
        print_comparison(found, Console())


def regrade(
    run: RunArgument,
    *,
    target: Annotated[Target | None, typer.Option(help="Default: the run's.")] = None,
    tasks: Annotated[
        list[str] | None, typer.Option(help="Of the run's tasks only these: globs, kernelbench:PATH.")
    ] = None,
    sandbox: SandboxOption = "auto",
    emulate: EmulateOption = True,
    max_connections: Annotated[int, typer.Option(min=1, help="Trials under way at once.")] = 4,
    max_wall: Annotated[float | None, typer.Option(min=1, help="Limit in seconds.")] = None,
    fresh: Annotated[bool, typer.Option(help="Begin again even if this was done before.")] = False,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
    several: FleetOptions,
) -> int:
    """Into a new run, without asking a model; the same command resumes. Ends with what changed."""
    store, say = find_run(runs_dir, run), StderrDisplay().say
    record = store.run()
    config = record.config
    chosen = target or config.target
    if chosen != config.target:
        say(f"warning: the replies were asked for {config.target}; a project without {chosen} fails to build")
    grading = GradingOptions(
        target=chosen,
        protocol=config.protocol,
        sandbox=sandbox,
        emulate=emulate,
        tasks_root=tasks_root,
        cache=cache,
    )
    source = read_source(store, record, chosen_tasks(tasks or config.tasks, grading), chosen)
    if source.missing:
        say(
            f"{figures.plural(source.missing, 'trial')} not graded: the exchange with the model has not ended"
        )
    with closing(make_setup(grading, several)) as setup:
        context = RunContext(setup, {}, runs_dir, max_wall, max_connections, StderrDisplay(), fresh)
        made = regrade_run(source, chosen, context, emulate=emulate)
    summary = report_run(made, json_output=False, quiet=True)
    found = compare_runs(store, made)
    if json_output:
        print(found.model_dump_json(indent=1))
    else:
        print_comparison(found, Console())
        print(f"\nreport: {made.folder / 'report.html'}")
    return 0 if summary.progress.scored else 1


def print_comparison(found: RunComparison, console: Console) -> None:
    """The comparison at the console's width; data is never read as markup."""
    for text, style in _lines(found, max(60, console.width)):
        console.print(Text(clean(text), style=style), soft_wrap=True, highlight=False)


def _lines(found: RunComparison, width: int) -> Iterable[Line]:
    for name, side in (("A", found.a), ("B", found.b)):
        yield from _side(name, side, width)
    yield "", ""
    same = "nothing differs in what was asked and by what it was graded"
    yield "what differs" if found.changes else same, "bold"
    for change in found.changes:
        yield from _wrapped(f"{change.what}: {change.a} -> {change.b}", width)
    for note in (*found.unpaired, *(f"{task}: {why}" for task, why in found.left_out.items())):
        yield from _wrapped(f"not compared: {note}", width, "yellow")
    for cell in found.cells:
        yield from _cell(cell, width)
    yield "", ""
    yield from _verdicts(found, width)
    yield from _conclusion(found, width)


def _wrapped(text: str, width: int, style: str = "", indent: str = "  ") -> Iterable[Line]:
    for line in textwrap.wrap(clean(text), width, initial_indent=indent, subsequent_indent=2 * indent):
        yield line, style


def _side(name: str, side: Side, width: int) -> Iterable[Line]:
    """A run, its date, and its lifts and decisions."""
    again = f", {short_run(side.regraded_from)} graded again" if side.regraded_from else ""
    yield f"{name}  {short_run(side.run)}  {side.created[:10]}{again}", "bold"
    for one in side.comparisons:
        lift = figures.lifted(one.unit, one.lift, one)
        yield from _wrapped(f"{one.decision}: {lift} {one.metric}, {one.model} x {one.skill}", width)


def _columns(label: str, cells: Sequence[str]) -> str:
    """Label, A, B, change, interval and p value."""
    a, b, change, interval, p = cells
    figures_of = f"{a:>{_LEVEL}}{b:>{_LEVEL}}{change:>{_CHANGE}}"
    return f"{label:<{_LABEL}}{figures_of}   {interval:<{_INTERVAL}}{p:>{_P}}".rstrip()


def _cell(cell: Cell, width: int) -> Iterable[Line]:
    """A table of metrics; what was not measured stands with the levels only."""
    shown = [row for row in cell.rows if cell.what == "level" or not row.not_measured]
    if not shown:
        return
    yield "", ""
    models, labels = ((cell.model_a, cell.model_b), (cell.label_a, cell.label_b))
    both = " x ".join(" -> ".join(dict.fromkeys(names)) for names in (models, labels))
    what = ", lift over no skill" if cell.what == "lift" else ""
    trials = f" ({cell.trials_a} and {cell.trials_b} trials)" if cell.what == "level" else ""
    yield from _wrapped(f"{both}{what}{trials}", width, "bold", indent="")
    interval = f"{figures.confidence(ALPHA)}, by family"
    yield _columns("", ("A", "B", "change", interval, "adj. p")), "dim"
    for row in shown:
        yield from _row(cell, row, width)


def _row(cell: Cell, row: PairedRow, width: int) -> Iterable[Line]:
    if row.not_measured:
        yield from _wrapped(f"{row.label:<{_LABEL - 2}} not measured ({row.not_measured})", width, "dim")
        return
    worded = figures.change if cell.what == "lift" else figures.level
    cells = [worded(row.unit, row.control), worded(row.unit, row.treatment)]
    cells += [figures.change(row.unit, row.lift), figures.bounds(row.unit, row), figures.p_value(row.p_holm)]
    style = {"better": "green", "worse": "red"}.get(row.outcome, "")
    yield _columns(f"  {row.label}", cells), style


def _verdicts(found: RunComparison, width: int) -> Iterable[Line]:
    """Trials of both runs with one reply: how many of each verdict became which, and those that changed."""
    if not found.same_replies:
        yield "no trial has the same reply in both runs", "dim"
        return
    changed = [one for one in found.verdicts if one.a != one.b]
    count = sum(len(one.trials) for one in changed)
    yield f"{found.same_replies} trials with the same reply: {count} with another verdict", "bold"
    for one in found.verdicts:
        arrow = f"{one.a} -> {one.b}" if one.a != one.b else f"{one.a}, as before"
        yield from _wrapped(f"{len(one.trials):>4}  {arrow}", width)
    names = [f"{one.a} -> {one.b}: {name}" for one in changed for name in one.trials]
    for name in names[:_TRIALS]:
        yield from _wrapped(name, width, "dim")
    if len(names) > _TRIALS:
        yield f"  and {len(names) - _TRIALS} more: --json has all", "dim"


def _conclusion(found: RunComparison, width: int) -> Iterable[Line]:
    """The rows that changed by more than noise."""
    clear = [(cell, row) for cell in found.cells for row in cell.rows if row.outcome in ("better", "worse")]
    for cell, row in clear:
        where = "the lift of " if cell.what == "lift" else ""
        text = f"{row.outcome} by more than noise: {figures.change(row.unit, row.lift)} {row.label}"
        style = "bold green" if row.outcome == "better" else "bold red"
        yield from _wrapped(f"{text}, {where}{cell.model_b} x {cell.label_b}", width, style, indent="")
    if not clear:
        tested = [row.n_families for cell in found.cells for row in cell.rows if not row.not_measured]
        count = figures.plural(max(tested), "family") if tested else "no family"
        text = f"nothing changed by more than noise (adjusted p at most {ALPHA:g}; {count})"
        yield from _wrapped(text, width, "bold yellow", indent="")
