"""`liftbench cases check|run`: test cases of a skill, in the format of upskill, agentskills.io or NVIDIA.

A sandbox is opened only if a case has a command.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from harness.cases.benchmark import benchmark
from harness.cases.importing import load_cases
from harness.cases.running import CasesStore, answers_of, cases_config, run_cases, tally
from harness.cases.schema import CaseAnswer, CasesTally, TestCase, Worth
from harness.cases.scoring import Commands, sentence, verdict, worth_of
from harness.cli.card import plain_table
from harness.cli.case_runs import CLIP_CHARS, TALLY, print_failures, print_tally
from harness.cli.options import (
    DEFAULT_RUNS,
    BaseUrlOption,
    CacheOption,
    GradingOptions,
    JsonOption,
    ModelsOption,
    RunsDirOption,
    SandboxOption,
    SkillArgument,
    make_build_setup,
    model_specs,
)
from harness.errors import UsageError
from harness.files import write_atomically
from harness.models import Model
from harness.models.providers import make_model
from harness.records import ModelSpec
from harness.skills.spec import LoadedSkill, load_skill
from harness.study.executor import LocalExecutor
from harness.study.store import sole_writer
from harness.text import first_line, slug


def check_command(
    source: Annotated[str, typer.Argument(metavar="SKILL_DIR|FILE", help="A skill, or a file of cases.")],
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """A case that such an answer passes proves nothing."""
    cases = read_cases(source)
    with _commands(cases, sandbox, cache) as commands:
        worths = [worth_of(case, commands) for case in cases]
    if json_output:
        rows = [
            {"case": case.model_dump(mode="json"), "worth": worth.model_dump(mode="json")}
            for case, worth in zip(cases, worths, strict=True)
        ]
        print(json.dumps({"cases": rows, "sentence": sentence(worths)}, indent=1))
    else:
        _print_cases(cases, worths)
        print(f"\n{sentence(worths)}")
    return 0


def run_command(
    skill: SkillArgument,
    model: ModelsOption,
    cases_file: Annotated[
        Path | None, typer.Option("--cases", help="A file of test cases (default: the skill's own).")
    ] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per case, model and arm.")] = 5,
    base_url: BaseUrlOption = None,
    sandbox: SandboxOption = "auto",
    whole: Annotated[bool, typer.Option("--whole", help="Show failing replies whole, not clipped.")] = False,
    runs_dir: RunsDirOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """The same command resumes."""
    loaded = load_skill(skill)
    models = {spec: make_model(spec) for spec in model_specs(model, base_url)}
    source = str(cases_file or loaded.directory)
    grading = GradingOptions(sandbox=sandbox, cache=cache)
    result, problems = ask_cases(loaded, source, models, repeats, runs_dir, grading)
    if json_output:
        print(result.model_dump_json(indent=1))
        return 1 if problems else 0
    store = CasesStore(runs_dir / result.run_id)
    print_failures(store, None if whole else CLIP_CHARS)
    print_tally(result)
    return 1 if problems else 0


def ask_cases(
    loaded: LoadedSkill,
    source: str,
    models: Mapping[ModelSpec, Model],
    repeats: int,
    runs_dir: Path,
    grading: GradingOptions,
) -> tuple[CasesTally, tuple[str, ...]]:
    """Ask what is owed of a skill's cases; the tally, and why answers are still owed.

    `source`: a file of cases, a folder, or a shipped skill's name. Raises UsageError and BudgetSpent.
    """
    cases = read_cases(source)
    config = cases_config(loaded.skill, cases, tuple(models), repeats=repeats)
    planned = answers_of(config)
    if not planned:
        raise UsageError(f"{source}: none of its {len(cases)} test cases checks anything")
    asked = {spec.name: model for spec, model in models.items()}
    with _commands(cases, grading.sandbox, grading.cache) as commands:
        worths = [worth_of(case, commands) for case in cases]
        print(sentence(worths), file=sys.stderr)
        store = CasesStore.open(config, runs_dir)
        with sole_writer(store.folder):
            print(f"run {store.folder}: {len(planned)} answers, {len(store.load())} kept", file=sys.stderr)
            problems = run_cases(store, asked, LocalExecutor(4), commands=commands, observer=_print_answer)
            result = tally(store.run(), store.load(), worths)
            write_atomically(store.folder / TALLY, result.model_dump_json(indent=1) + "\n")
            for model in config.models:
                written = benchmark(store.run(), store.load(), worths, model.name)
                name = "benchmark.json" if len(config.models) == 1 else f"benchmark-{slug(model.name)}.json"
                write_atomically(store.folder / name, json.dumps(written, indent=1) + "\n")
    for problem, count in Counter(map(first_line, problems)).items():
        print(f"{count} answers owed: {problem}", file=sys.stderr)
    return result, tuple(problems)


def read_cases(source: str) -> tuple[TestCase, ...]:
    """The cases of a file, a folder or a shipped skill. Raises UsageError."""
    path = Path(source)
    return load_cases(path if path.exists() else load_skill(source).directory)


@contextmanager
def _commands(cases: Sequence[TestCase], sandbox: str, cache: Path | None) -> Iterator[Commands | None]:
    """What runs commands; None if no case has one, or `auto` finds no sandbox (printed on stderr)."""
    setup = None
    if any(check.kind == "command" for case in cases for check in case.checks):
        try:
            setup = make_build_setup(sandbox, cache)
        except UsageError as error:
            if sandbox != "auto":
                raise
            print(f"commands are not run: {error}", file=sys.stderr)
    if setup is None:
        yield None
        return
    with closing(setup):
        yield Commands(setup.sandbox, setup.toolchain.python)


def _print_answer(answer: CaseAnswer) -> None:
    key = answer.key
    result = verdict(answer.outcomes).replace("_", " ")
    line = f"{first_line(key.case)} {key.arm.partition('-')[0]} #{key.repeat} ({key.model}): {result}"
    print(line, file=sys.stderr, flush=True)


def _print_cases(cases: Sequence[TestCase], worths: Sequence[Worth]) -> None:
    table = plain_table("case", "checks", "worth")
    for case, worth in zip(cases, worths, strict=True):
        style = "dim" if worth.worth == "none" else ""
        table.add_row(*(Text(cell, style=style) for cell in (first_line(case.id), _checks(case), worth.why)))
    Console().print(table)


def _checks(case: TestCase) -> str:
    """`contains 2, command 1, not checkable 3`."""
    counts = Counter(check.kind for check in case.checks)
    parts = [f"{kind} {count}" for kind, count in counts.items()]
    if case.not_checkable:
        parts.append(f"not checkable {len(case.not_checkable)}")
    return ", ".join(parts) or "none"
