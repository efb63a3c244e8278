"""`liftbench generate`: a teacher writes a skill, students show what it is worth.

The same command goes on with an interrupted generation, and pays for no reply twice.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.runs_command import DEFAULT_RUNS, RunsOption
from harness.cli.setup import (
    CacheOption,
    JsonOption,
    ProtocolOption,
    SandboxOption,
    TargetOption,
    TasksRootOption,
    make_bench,
    parse_protocol,
    parse_target,
)

if TYPE_CHECKING:
    from harness.suite.catalogue import LoadedTask
    from harness.teaching.brief import Example
    from harness.teaching.record import GenerationRecord


def generate(
    description: Annotated[str, typer.Argument(metavar="TASK", help="What the skill is to teach.")],
    teacher: Annotated[str, typer.Option(help="provider/model that writes the skill.")],
    student: Annotated[
        list[str] | None,
        typer.Option("-m", "--student", help="provider/model that reads it; repeatable."),
    ] = None,
    source: Annotated[
        Path | None, typer.Option("--from", help="A trace (Markdown, JSON, JSONL) or a skill's folder.")
    ] = None,
    example: Annotated[
        list[str] | None, typer.Option("-e", "--example", help="INPUT->OUTPUT that is wanted; repeatable.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="The skill's folder (default: skills/NAME).")
    ] = None,
    no_eval: Annotated[bool, typer.Option("--no-eval", help="Write a skill; measure nothing.")] = False,
    refine: Annotated[int, typer.Option(min=0, max=20, help="New versions, each from real failures.")] = 3,
    tasks: Annotated[list[str] | None, typer.Option(help="Globs, such as 'l1/*'; repeatable.")] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per task and arm of the test.")] = 5,
    arms: Annotated[list[str] | None, typer.Option(help="A further arm of the test: placebo.")] = None,
    delivery: Annotated[str, typer.Option(help="body, or disclosed: read by a tool, file by file.")] = "body",
    turns: Annotated[
        int, typer.Option(min=1, max=20, help="Replies a trial, each told what became of it.")
    ] = 1,
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    sandbox: SandboxOption = "auto",
    base_url: Annotated[str | None, typer.Option(help="The students' OpenAI-compatible server.")] = None,
    teacher_base_url: Annotated[str | None, typer.Option(help="The teacher's.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens per reply.")] = 16_000,
    metric: Annotated[str | None, typer.Option(help="Primary metric: deployed, correct or compiles.")] = None,
    max_connections: Annotated[int, typer.Option(min=1, help="Trials under way at once.")] = 4,
    max_wall: Annotated[float | None, typer.Option(min=1, help="Seconds for each run of trials.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Dollars, teacher and students.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Calls of models.")] = None,
    max_total_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens, in and out.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a skill that is there.")] = False,
    runs_dir: RunsOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Write a skill, refine it, and test it on unseen families.

    It is refined by what students' projects really do.
    """
    from harness.cli.progress import StderrDisplay
    from harness.cli.reporting import report_run
    from harness.cli.study_options import model_specs, parse_arms, parse_delivery, parse_metric
    from harness.errors import UsageError, refuse_url
    from harness.models import make_model
    from harness.models.meter import Limits, Meter
    from harness.records import Sampling
    from harness.study.execute import RunContext
    from harness.study.run import Budget
    from harness.teaching.generation import generate as carry_out_generation
    from harness.teaching.request import GenerationRequest

    refuse_url(str(source or ""))
    with_placebo, old = parse_arms(arms or [])
    if old is not None:
        raise UsageError("--arms old=...: the old version is the skill that --from names")
    if not student and not no_eval:
        raise UsageError("name a --student whose projects are to show what the skill is worth, or --no-eval")
    meter = Meter(Limits(max_tokens=max_total_tokens, max_cost_usd=max_cost, max_calls=max_calls))
    [teacher_spec] = model_specs([teacher], teacher_base_url)
    students = () if no_eval else model_specs(student or [], base_url)
    request = GenerationRequest(
        description=description,
        source=source,
        examples=tuple(parse_example(text) for text in example or []),
        output=output,
        tasks=chosen(tasks, tasks_root, target, cache),
        teacher=meter.wrap(make_model(teacher_spec), "teacher"),
        students=students,
        models=(models := {spec.name: meter.wrap(make_model(spec)) for spec in students}),
        meter=meter,
        metric=parse_metric(metric),
        target=parse_target(target),
        protocol=parse_protocol(protocol),
        sampling=Sampling(max_output_tokens=max_tokens),
        rounds=refine,
        repeats=repeats,
        turns=turns,
        delivery=parse_delivery(delivery),
        with_placebo=with_placebo,
        replace=force,
    )
    bench = make_bench(target, protocol, sandbox, cache)
    try:
        context = RunContext(
            bench, models, runs_dir, Budget(max_wall_s=max_wall), max_connections, StderrDisplay()
        )
        record = carry_out_generation(
            request, context, lambda store: report_run(store, json_output=False, quiet=json_output)
        )
    finally:
        bench.close()
    show(record, json_output=json_output)
    return 0


def chosen(
    patterns: list[str] | None, root: Path | None, target: str, cache: Path | None
) -> list[LoadedTask]:
    """The tasks of all three splits."""
    from harness.cli.kernelbench_view import chosen_tasks
    from harness.errors import UsageError

    fit = [t for t in chosen_tasks(patterns or [], root, target, cache) if target in t.task.dtypes]
    if not fit:
        raise UsageError(f"none of these tasks is for target {target}: choose other --tasks or --target")
    return fit


def parse_example(text: str) -> Example:
    """`INPUT->OUTPUT`. Raises UsageError."""
    from harness.errors import UsageError
    from harness.teaching.brief import Example

    wanted_for, arrow, output = text.partition("->")
    if not arrow or not wanted_for.strip() or not output.strip():
        raise UsageError(f"-e {text}: write INPUT->OUTPUT, such as -e 'reduce rows->one warp per row'")
    return Example(wanted_for.strip(), output.strip())


def show(record: GenerationRecord, *, json_output: bool) -> None:
    """The versions with their scores, what was kept and why, what it is worth, and what it took."""
    from rich.console import Console
    from rich.table import Table

    from harness.teaching.record import score_text

    if json_output:
        print(record.model_dump_json(indent=1))
        return
    console = Console()

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("version", "made from", "tokens (estimate)", f"{record.metric} on selection", "development"):
        table.add_column(name)
    if record.families:
        table.add_row("no skill", "", "", score_text(record.metric, record.without_skill), "")
    for one in record.candidates:
        verdicts = ", ".join(
            f"{count} {verdict}" for verdict, count in sorted((one.development or {}).items())
        )
        kept = " *" if one.index == record.chosen else ""
        origin = "-" if one.parent is None else str(one.parent)
        table.add_row(
            f"{one.index}{kept}",
            origin,
            str(one.body_tokens_estimate),
            score_text(record.metric, one.selection),
            verdicts,
        )
    console.print(table)
    lines = [f"* {record.why}" if record.why else "", f"written: {record.written or 'nothing'}"]
    if record.look is not None:
        lines.append(
            f"look {record.look.number} of lineage {record.look.lineage} at its test split: "
            f"tested at alpha {record.look.alpha:g}"
        )
    for role, spent in record.spent.items():
        cost = "unknown cost" if spent.cost_usd is None else f"${spent.cost_usd:.2f}"
        lines.append(f"{role}: {spent.calls} calls, {spent.tokens} tokens, {cost}")
    if record.stopped is not None:
        lines.append(f"stopped early: {record.stopped}; the same command goes on")
    for line in filter(None, lines):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in record.shortfalls:
        console.print(f"warning: {line}", style="yellow", markup=False, highlight=False, soft_wrap=True)
