"""`liftbench generate`: a teacher writes a skill, students show what it is worth.

The same command resumes an interrupted generation and pays for no reply twice.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from harness.cli.card import plain_table
from harness.cli.options import (
    BaseUrlOption,
    FleetOptions,
    GradingOptions,
    JsonOption,
    PatternsOption,
    RepeatsOption,
    TrialOptions,
    briefing_for,
    make_setup,
    model_specs,
    parse_arms,
    primary_metric,
)
from harness.cli.progress import StderrDisplay
from harness.cli.tasks import chosen_tasks
from harness.errors import UsageError, refuse_url
from harness.grading.setup import GradingSetup
from harness.models.providers import make_model
from harness.records import Sampling
from harness.report.write import report_run
from harness.study.run import RunContext
from harness.suite.catalogue import LoadedTask
from harness.teaching.generation import generate as run_generation
from harness.teaching.record import GenerationRecord, score_text
from harness.teaching.request import GenerationRequest


def generate(
    description: Annotated[str, typer.Argument(metavar="TASK", help="What the skill is to teach.")],
    teacher: Annotated[str, typer.Option(help="provider/model that writes the skill.")],
    *,
    student: Annotated[
        list[str] | None, typer.Option("-m", "--student", help="provider/model that reads it; repeatable.")
    ] = None,
    source: Annotated[Path | None, typer.Option("--from", help="A trace or a skill's folder.")] = None,
    example: Annotated[
        list[str] | None, typer.Option("-e", "--example", help="INPUT->OUTPUT; repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The skill's folder (default: skills/NAME).")
    ] = None,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Write a skill; measure nothing.")] = False,
    refine: Annotated[int, typer.Option(min=0, max=20, help="New versions, each from real failures.")] = 3,
    tasks: PatternsOption = None,
    repeats: RepeatsOption = 5,
    arms: Annotated[list[str] | None, typer.Option(help="A further arm of the test: placebo.")] = None,
    base_url: BaseUrlOption = None,
    teacher_base_url: Annotated[str | None, typer.Option(help="The teacher's server.")] = None,
    cases: Annotated[int, typer.Option(min=0, max=20, help="Test cases that the teacher writes.")] = 5,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing skill.")] = False,
    trial: TrialOptions,
    grading: GradingOptions,
    several: FleetOptions,
    json_output: JsonOption = False,
) -> int:
    """It is refined by what students' projects really do."""
    refuse_url(str(source or ""))
    with_placebo, old = parse_arms(arms or [])
    if old is not None:
        raise UsageError("--arms old=...: the old version is the skill that --from names")
    if not student and not no_eval:
        raise UsageError("name a --student whose projects are to show what the skill is worth, or --no-eval")
    meter = trial.meter()
    [teacher_spec] = model_specs([teacher], teacher_base_url)
    students = () if no_eval else model_specs(student or [], base_url)
    request = GenerationRequest(
        description=description,
        source=source,
        examples=tuple(map(_example, example or [])),
        output=output,
        tasks=_fitting(tasks or [], grading),
        teacher=meter.wrap(make_model(teacher_spec), "teacher"),
        students=students,
        models={spec.name: meter.wrap(make_model(spec)) for spec in students},
        meter=meter,
        metric=primary_metric(trial.metric, grading.target),
        target=grading.target,
        protocol=grading.protocol,
        sampling=Sampling(max_output_tokens=trial.max_tokens),
        briefing=briefing_for(trial.briefing, [teacher_spec, *students]),
        rounds=refine,
        repeats=repeats,
        turns=trial.turns,
        delivery=trial.delivery,
        with_placebo=with_placebo,
        replace=force,
        cases=cases,
    )
    record = _run(request, trial, make_setup(grading, several), quiet=json_output)
    if json_output:
        print(record.model_dump_json(indent=1))
    else:
        _print_record(record)
    return 0


def _fitting(patterns: list[str], grading: GradingOptions) -> list[LoadedTask]:
    """The chosen tasks for the target. Raises UsageError if there are none."""
    fitting = [one for one in chosen_tasks(patterns, grading) if grading.target in one.task.dtypes]
    if not fitting:
        raise UsageError(f"no task is for target {grading.target}: choose other --tasks or --target")
    return fitting


def _run(
    request: GenerationRequest, trial: TrialOptions, opened: GradingSetup, *, quiet: bool
) -> GenerationRecord:
    limits = trial.max_wall, trial.max_connections
    with closing(opened) as setup:
        context = RunContext(setup, request.models, trial.runs_dir, *limits, StderrDisplay())
        return run_generation(
            request, context, lambda store: report_run(store, json_output=False, quiet=quiet)
        )


def _example(text: str) -> tuple[str, str]:
    """`INPUT->OUTPUT`. Raises UsageError."""
    asked, _, output = map(str.strip, text.partition("->"))
    if not asked or not output:
        raise UsageError(f"-e {text}: write INPUT->OUTPUT, such as -e 'reduce rows->one warp per row'")
    return asked, output


def _print_record(record: GenerationRecord) -> None:
    """Versions with their scores, which was kept and why, its measured worth, and the cost."""
    console = Console()
    console.print(_versions(record))
    lines = [f"* {record.why}" if record.why else "", f"written: {record.written or 'nothing'}"]
    if record.test_cases is not None:
        lines.append(f"test cases: {record.test_cases} in evals/evals.json (liftbench cases run)")
    if record.look is not None:
        lines.append(
            f"look {record.look.number} of lineage {record.look.lineage} at its test split: "
            f"tested at alpha {record.look.alpha:g}"
        )
    for role, spent in record.spent.items():
        cost = "unknown cost" if spent.cost_usd is None else f"${spent.cost_usd:.2f}"
        lines.append(f"{role}: {spent.calls} calls, {spent.tokens} tokens, {cost}")
    if record.stopped is not None:
        lines.append(f"stopped early: {record.stopped}; the same command resumes")
    for line in filter(None, lines):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in record.shortfalls:
        console.print(f"warning: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _versions(record: GenerationRecord) -> Table:
    selection = f"{record.metric} on selection"
    table = plain_table("version", "made from", "tokens (estimate)", selection, "development")
    if record.families:
        table.add_row("no skill", "", "", score_text(record.metric, record.without_skill), "")
    for one in record.candidates:
        verdicts = ", ".join(
            f"{count} {verdict}" for verdict, count in sorted((one.development or {}).items())
        )
        table.add_row(
            f"{one.index}{' *' if one.index == record.chosen else ''}",
            "-" if one.parent is None else str(one.parent),
            str(one.body_tokens_estimate),
            score_text(record.metric, one.selection),
            verdicts,
        )
    return table
