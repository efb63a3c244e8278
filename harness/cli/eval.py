"""`liftbench eval`: does a skill help a model? The same command resumes its run."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.case_runs import print_tally
from harness.cli.cases import ask_cases, read_cases
from harness.cli.options import (
    BaseUrlOption,
    FleetOptions,
    GradingOptions,
    JsonOption,
    ModelsOption,
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
from harness.errors import BudgetSpent, UsageError
from harness.models.providers import make_model
from harness.records import Sampling
from harness.report.schema import Summary
from harness.report.study_size import detectable, least_families
from harness.report.write import report_run
from harness.skills.overlap import excluded_tasks
from harness.skills.spec import LoadedSkill, load_skill
from harness.study.run import RunContext, execute, open_run
from harness.study.study import Study, make_arms, record_looks, with_looks


@dataclass(frozen=True)
class Threshold:
    """`--fail-under METRIC=LIFT`."""

    metric: str
    lift: float

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """`correct=0.1` is +10 points; `deployed=1.05` is a ratio. Raises UsageError."""
        found = re.fullmatch(r"(compiles|correct|deployed|correct_emulated)=([-+]?\d*\.?\d+)", text)
        if found is None:
            raise UsageError(f"--fail-under {text}: write compiles=0.1, correct=0.1 or deployed=1.05")
        return cls(found[1], float(found[2]))

    def missed(self, summary: Summary) -> tuple[str, ...]:
        """A message for each comparison with without_skill that did not measure at least this lift."""
        compared = [one for one in summary.comparisons if one.control == "without_skill"]
        wanted = f"--fail-under wanted a lift of {self.metric}={self.lift:g}"
        if not compared:
            return (f"{wanted}, and no skill was compared with no skill",)
        missed = []
        for one in compared:
            row = next(row for row in one.rows if row.metric == self.metric)
            if row.lift is None or row.lift < self.lift:
                got = "not measured" if row.lift is None else f"measured {row.lift:.4g}"
                why = f" ({row.not_measured})" if row.not_measured else ""
                missed.append(f"{wanted}, {one.model} x {one.label}: {got}{why}")
        return tuple(missed)


def evaluate(
    skill: Annotated[list[str], typer.Argument(help="Skills' folders, or names of shipped or fetched ones.")],
    model: ModelsOption,
    *,
    tasks: PatternsOption = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only the first N tasks.")] = None,
    repeats: RepeatsOption = 5,
    arms: Annotated[list[str] | None, typer.Option(help="Further arms: placebo, old=DIR.")] = None,
    combine: Annotated[bool, typer.Option(help="Every combination of the skills is an arm too.")] = False,
    cases: Annotated[Path | None, typer.Option(help="Also ask the test cases in this file.")] = None,
    base_url: BaseUrlOption = None,
    temperature: Annotated[float | None, typer.Option(help="Default: the provider's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Sent to providers that take one.")] = None,
    fail_under: Annotated[str | None, typer.Option(help="METRIC=LIFT: exit 3 if less was measured.")] = None,
    dry_run: Annotated[bool, typer.Option(help="Show what would be done, and stop.")] = False,
    fresh: Annotated[bool, typer.Option(help="Begin a new run even if this one exists.")] = False,
    trial: TrialOptions,
    grading: GradingOptions,
    several: FleetOptions,
    json_output: JsonOption = False,
) -> int:
    threshold = None if fail_under is None else Threshold.parse(fail_under)
    with_placebo, old = parse_arms(arms or [])
    skills = [load_skill(name) for name in skill]
    if cases is not None:
        if len(skills) != 1:
            raise UsageError("--cases are one skill's: give one skill")
        read_cases(str(cases))  # an unreadable file is reported before any model is asked
    chosen = chosen_tasks(tasks or [], grading)[:limit]
    specs = model_specs(model, base_url)
    study = Study(
        make_arms(
            [one.skill for one in skills],
            combine=combine,
            with_placebo=with_placebo,
            old=None if old is None else old.skill,
            delivery=trial.delivery,
        ),
        chosen,
        specs,
        repeats=repeats,
        target=grading.target,
        protocol=grading.protocol,
        sampling=Sampling(max_output_tokens=trial.max_tokens, temperature=temperature, seed=seed),
        metric=primary_metric(trial.metric, grading.target),
        briefing=briefing_for(trial.briefing, specs),
        turns=trial.turns,
        leaked=excluded_tasks([*skills, *([old] if old is not None else [])], chosen),
    )
    if dry_run:
        _print_plan(with_looks(study, skills, StderrDisplay().say, fresh=fresh)[0])
        return 0
    # Keys and addresses are checked before anything is written or built.
    meter = trial.meter()
    models = {spec.name: meter.wrap(make_model(spec)) for spec in study.models}
    limits = trial.max_wall, trial.max_connections
    setup = make_setup(grading, several)
    context = RunContext(setup, models, trial.runs_dir, *limits, StderrDisplay(), fresh)
    code = _execute(study, skills, context, threshold, json_output=json_output)
    if cases is not None and code != 1:
        asked = {spec: models[spec.name] for spec in study.models}
        try:
            found, _ = ask_cases(skills[0], str(cases), asked, repeats, trial.runs_dir, grading)
        except BudgetSpent as spent:
            print(f"test cases: {spent}; the same command resumes", file=sys.stderr)
            return code
        if not json_output:
            print()
            print_tally(found)
    return code


def _execute(
    study: Study,
    skills: list[LoadedSkill],
    context: RunContext,
    threshold: Threshold | None,
    *,
    json_output: bool,
) -> int:
    """Run what is owed and report it; the exit code."""
    study, looks = with_looks(study, skills, context.display.say, fresh=context.fresh)
    store = open_run(study, context)
    record_looks(looks)
    try:
        execute(study, store, context)
    finally:
        context.setup.close()
        summary = report_run(store, json_output=json_output)
    if not summary.progress.scored:
        return 1
    missed = () if threshold is None else threshold.missed(summary)
    for line in missed:
        print(f"threshold missed: {line}", file=sys.stderr)
    return 3 if missed else 0


def _print_plan(study: Study) -> None:
    arms = study.arms.arms
    count = f"{len(study.tasks)} tasks x {len(arms)} arms x {len(study.models)} models x {study.repeats}"
    turns = f", up to {study.turns} turns each" if study.turns > 1 else ""
    print(f"{study.trials} trials: {count}{turns}")
    print(f"briefing {study.briefing}")
    for loaded in study.tasks:
        print(f"  {loaded.task.id}  ({loaded.task.family})")
    names = {digest: name for name, digest in study.arms.digests.items()}
    for arm in arms:
        print(f"  {arm.kind}  {' + '.join(names[digest] for digest in arm.skills) or '-'}")
    for task, why in study.leaked.items():
        print(f"  left out of comparisons: {task}: {why}")
    counted = [t.task.family for t in study.tasks if t.task.id not in study.leaked]
    print(f"families: {len(set(counted))} (a decision needs {least_families(study.alpha)})")
    found = detectable(study.metric, counted, study.repeats, study.alpha)
    print(f"minimum detectable effect: {found.statement}")
