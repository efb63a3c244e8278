"""`liftbench eval`: does a skill help a model?

Owns: the options of an eval and turning them into a resolved configuration. Does not own: the run.
Invariant: the same command finds the same run again, and finishes it.
"""

from __future__ import annotations

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
    from harness.evaluation import Metric, Study
    from harness.records import ModelSpec


def _parse_metric(name: str | None) -> Metric:
    """Raises UsageError for anything but deployed, correct and compiles."""
    from harness.errors import UsageError

    if name is None or name == "deployed":
        return "deployed"
    if name == "correct":
        return "correct"
    if name == "compiles":
        return "compiles"
    raise UsageError(f"--metric {name}: there are deployed, correct and compiles")


def _model_specs(names: list[str], base_url: str | None) -> tuple[ModelSpec, ...]:
    """Raises UsageError for a name that is none, a repeat, or a base URL that fits no model."""
    from pydantic import ValidationError

    from harness.errors import UsageError
    from harness.models import PROVIDERS
    from harness.records import ModelSpec

    try:
        specs = [ModelSpec(name=name) for name in names]
    except ValidationError as error:
        raise UsageError(str(error.errors()[0]["msg"])) from None
    if len(set(names)) != len(names):
        raise UsageError("a model is named twice")
    if base_url is None:
        return tuple(specs)
    # Never send a provider's key to a server that was meant for another model.
    foreign = [s for s in specs if s.provider not in PROVIDERS]
    chosen = foreign or (specs if len(specs) == 1 else [])
    if not chosen:
        raise UsageError("--base-url fits none of the models; give it with one model at a time")
    return tuple(s.model_copy(update={"base_url": base_url}) if s in chosen else s for s in specs)


def evaluate(
    skill: Annotated[str, typer.Argument(help="A skill's folder, or the name of a shipped one.")],
    model: Annotated[list[str], typer.Option("-m", "--model", help="provider/model; repeatable.")],
    tasks: Annotated[list[str] | None, typer.Option(help="Globs, such as 'l1/*'; repeatable.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks.")] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per task, model and arm.")] = 5,
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
    max_cost: Annotated[float | None, typer.Option(min=0, help="Dollars; then nothing new starts.")] = None,
    fail_under: Annotated[str | None, typer.Option(help="METRIC=LIFT: exit 3 if less was measured.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done, and stop.")] = False,
    fresh: Annotated[bool, typer.Option(help="Begin a new run even if this one exists.")] = False,
    runs_dir: RunsOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
    tasks_root: TasksRootOption = None,
    cache: CacheOption = None,
) -> int:
    """Measure a skill's lift: tasks x arms (without, with) x models x runs."""
    import sys

    from harness.catalogue import load_skill, select_tasks
    from harness.cli.progress import EvalProgress
    from harness.cli.reporting import report_run
    from harness.evaluation import Threshold, make_study, open_run
    from harness.executors import make_executor
    from harness.models import make_model
    from harness.plan import plan
    from harness.records import Sampling
    from harness.run import Budget, Run
    from sandboxes.job import IMAGES_FACT

    threshold = None if fail_under is None else Threshold.parse(fail_under)
    study = make_study(
        load_skill(skill),
        select_tasks(tasks or [], tasks_root)[:limit],
        _model_specs(model, base_url),
        repeats=repeats,
        target=parse_target(target),
        protocol=parse_protocol(protocol),
        sampling=Sampling(max_output_tokens=max_tokens, temperature=temperature, seed=seed),
        metric=_parse_metric(metric),
    )
    if dry_run:
        _print_plan(study)
        return 0
    # Keys and addresses are checked before anything is written or built.
    models = {spec.name: make_model(spec) for spec in study.models}
    bench = make_bench(target, protocol, sandbox, cache)
    budget = Budget(max_wall_s=max_wall, max_cost_usd=max_cost)
    image = bench.sandbox.facts().get(IMAGES_FACT)
    store = open_run(study, *study.resolve(bench.sandbox.name, bench.machine, image), runs_dir, fresh=fresh)
    with store.writer():
        record = store.run()
        runner = Run(
            store,
            record,
            study.tasks_by_id,
            study.skills_by_digest,
            models,
            bench.grader,
            kill=bench.sandbox.stop,
        )
        before = [trial for trial in store.load() if not trial.infra]  # those are tried again
        planned = len(plan(record.config))
        print(f"run {store.folder}: {planned} trials, {len(before)} finished before", file=sys.stderr)
        try:
            with EvalProgress(planned, len(before)) as progress:
                outcome = runner.carry_out(make_executor("local", max_connections), progress, budget)
        finally:
            bench.grader.close()
            bench.sandbox.stop()
            summary = report_run(store, json_output=json_output)
    if outcome.stopped is not None:
        print(f"stopped: {outcome.stopped}; {outcome.owed} trials are owed", file=sys.stderr)
    return 3 if threshold is not None and not threshold.met(summary) else 0


def _print_plan(study: Study) -> None:
    count = (
        f"{len(study.tasks)} tasks x {len(study.arms)} arms x {len(study.models)} models x {study.repeats}"
    )
    print(f"{study.trials} trials: {count}")
    for task in study.tasks:
        print(f"  {task.task.id}  ({task.task.family})")
    print(f"families: {len({t.task.family for t in study.tasks})} (a decision needs 6)")
    print(study.detectable)
