"""`liftbench eval`: does a skill help a model?

The same command finds the same run again, and finishes it.
"""

from __future__ import annotations

import sys
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
    from harness.study.study import Study


def evaluate(
    skill: Annotated[list[str], typer.Argument(help="Skills' folders, or names of shipped ones.")],
    model: Annotated[list[str], typer.Option("-m", "--model", help="provider/model; repeatable.")],
    tasks: Annotated[list[str] | None, typer.Option(help="Globs, such as 'l1/*'; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks.")] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per task, model and arm.")] = 5,
    arms: Annotated[list[str] | None, typer.Option(help="Further arms: placebo, old=DIR.")] = None,
    combine: Annotated[bool, typer.Option(help="Every combination of the skills is an arm too.")] = False,
    delivery: Annotated[str, typer.Option(help="body, or disclosed: read by a tool, file by file.")] = "body",
    turns: Annotated[
        int, typer.Option(min=1, max=20, help="Replies a trial, each told what became of it.")
    ] = 1,
    cases: Annotated[
        Path | None, typer.Option(help="Test cases (skill_meta.json, evals.json) to ask beside the tasks.")
    ] = None,
    target: TargetOption = "cuda",
    protocol: ProtocolOption = "quick",
    sandbox: SandboxOption = "auto",
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server, with /v1.")] = None,
    temperature: Annotated[float | None, typer.Option(help="Default: the provider's.")] = None,
    max_tokens: Annotated[int, typer.Option(min=1, help="Output tokens per reply.")] = 16_000,
    seed: Annotated[int | None, typer.Option(help="Sent to providers that take one.")] = None,
    metric: Annotated[str | None, typer.Option(help="Primary metric: deployed, correct or compiles.")] = None,
    max_connections: Annotated[int, typer.Option(min=1, help="Trials under way at once.")] = 4,
    max_wall: Annotated[float | None, typer.Option(min=1, help="Seconds; what is left stays owed.")] = None,
    max_cost: Annotated[float | None, typer.Option(min=0, help="Dollars; then nothing new is asked.")] = None,
    max_calls: Annotated[int | None, typer.Option(min=1, help="Calls of models.")] = None,
    max_total_tokens: Annotated[int | None, typer.Option(min=1, help="Tokens, in and out.")] = None,
    fail_under: Annotated[str | None, typer.Option(help="METRIC=LIFT: exit 3 if less was measured.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done, and stop.")] = False,
    fresh: Annotated[bool, typer.Option(help="Begin a new run even if this one exists.")] = False,
    runs_dir: RunsOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Measure a skill's lift: tasks x arms x models x runs."""
    from harness.cli.cases_command import Asking, ask_beside, read_cases
    from harness.cli.kernelbench_view import chosen_tasks
    from harness.cli.progress import StderrDisplay
    from harness.cli.reporting import report_run
    from harness.cli.study_options import model_specs, parse_arms, parse_delivery, parse_metric
    from harness.errors import UsageError
    from harness.models import make_model
    from harness.models.meter import Limits, Meter
    from harness.records import Sampling
    from harness.report.threshold import Threshold
    from harness.skills.overlap import excluded_tasks
    from harness.skills.spec import load_skill
    from harness.study.arms import make_arms
    from harness.study.execute import RunContext, execute, open_study, record_looks, with_looks
    from harness.study.run import Budget
    from harness.study.study import make_study

    threshold = None if fail_under is None else Threshold.parse(fail_under)
    with_placebo, old = parse_arms(arms or [])
    skills = [load_skill(name) for name in skill]
    if cases is not None:
        if len(skills) != 1:
            raise UsageError("--cases are one skill's: give one skill")
        read_cases(str(cases))  # a file that cannot be read is told before anything is asked
    chosen = chosen_tasks(tasks or [], tasks_root, target, cache)[:limit]
    study = make_study(
        make_arms(
            [one.skill for one in skills],
            combine=combine,
            with_placebo=with_placebo,
            old=None if old is None else old.skill,
            delivery=parse_delivery(delivery),
        ),
        chosen,
        model_specs(model, base_url),
        repeats=repeats,
        target=parse_target(target),
        protocol=parse_protocol(protocol),
        sampling=Sampling(max_output_tokens=max_tokens, temperature=temperature, seed=seed),
        metric=parse_metric(metric),
        turns=turns,
        leaked=excluded_tasks([*skills, *([old] if old is not None else [])], chosen),
    )
    display = StderrDisplay()
    study, looks = with_looks(study, skills, display.say, fresh=fresh)
    if dry_run:
        _print_plan(study)
        return 0
    # Keys and addresses are checked before anything is written or built.
    meter = Meter(Limits(max_tokens=max_total_tokens, max_cost_usd=max_cost, max_calls=max_calls))
    models = {spec.name: meter.wrap(make_model(spec)) for spec in study.models}
    bench = make_bench(target, protocol, sandbox, cache)
    budget = Budget(max_wall_s=max_wall)
    context = RunContext(bench, models, runs_dir, budget, max_connections, display, fresh)
    store = open_study(study, context)
    record_looks(looks)
    try:
        execute(study, store, context)
    finally:
        bench.close()
        summary = report_run(store, json_output=json_output)
    if not summary.progress.scored:
        return 1
    if cases is not None:
        where = (repeats, sandbox, runs_dir, cache)
        ask_beside(Asking(skills[0], str(cases), study.models, models, *where), quiet=json_output)
    missed = () if threshold is None else threshold.missed(summary)
    for line in missed:
        print(f"threshold missed: {line}", file=sys.stderr)
    return 3 if missed else 0


def _print_plan(study: Study) -> None:
    from harness.report.planning import least_families, minimum_detectable

    arms = study.arms.arms
    count = f"{len(study.tasks)} tasks x {len(arms)} arms x {len(study.models)} models x {study.repeats}"
    turns = f", up to {study.turns} turns each" if study.turns > 1 else ""
    print(f"{study.trials} trials: {count}{turns}")
    for loaded in study.tasks:
        print(f"  {loaded.task.id}  ({loaded.task.family})")
    names = {digest: name for name, digest in study.arms.digests.items()}
    for arm in arms:
        print(f"  {arm.kind}  {' + '.join(names[digest] for digest in arm.skills) or '-'}")
    for task, why in study.leaked.items():
        print(f"  left out of comparisons: {task}: {why}")
    counted = {t.task.family for t in study.tasks if t.task.id not in study.leaked}
    print(f"families: {len(counted)} (a decision needs {least_families(study.alpha)})")
    print(minimum_detectable(study.metric, len(counted), study.alpha))
