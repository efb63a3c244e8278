"""`liftbench cases check|run`: test cases of a skill, in the format of upskill, agentskills.io or NVIDIA.

A sandbox is opened only if a case has a command.
"""

from __future__ import annotations

import json
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.cases.benchmark import benchmark
from harness.cases.importing import load_cases
from harness.cases.running import CasesStore, answers_of, cases_config, run_cases, tally
from harness.cases.schema import ArmSums, CaseAnswer, CaseRow, CasesTally, ModelTally, Rate, TestCase, Worth
from harness.cases.scoring import Commands, sentence, verdict, worth_of
from harness.cli.card import plain_table
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
from harness.text import clean, first_line, slug

_CLIP_CHARS = 400
DECIDED_ELSEWHERE = "test cases are strings; the decision rests on `liftbench eval`"


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
    print_failures(store, None if whole else _CLIP_CHARS)
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


def print_failures(store: CasesStore, clip_chars: int | None) -> None:
    """Of each case and arm that failed: how often, the failed checks, and one failing reply."""
    config, answers, console = store.run().config, store.load(), Console()
    cases = {case.id: case for case in config.cases}
    grouped: dict[tuple[str, str, str], list[CaseAnswer]] = {}
    for key in answers_of(config):
        if key in answers:
            grouped.setdefault((key.model, key.case, key.arm), []).append(answers[key])
    for (model, name, arm), found in grouped.items():
        failed = [one for one in found if verdict(one.outcomes) == "failed"]
        if not failed:
            continue
        words = arm.partition("-")[0].replace("_", " ")
        console.print(Text(f"{first_line(name)} {words} ({model}): {len(failed)} of {len(found)} failed"))
        for number, outcome in enumerate(failed[0].outcomes):
            if outcome.passed is False:
                console.print(Text(f"  {cases[name].words(number)}: {outcome.cause}", style="red"))
        console.print(Text(textwrap.indent(_reply_text(failed[0].reply.text, clip_chars), "  | ")))
        console.print()


def _reply_text(text: str, clip_chars: int | None) -> str:
    shown = clean(text).strip() or "(empty reply)"
    if clip_chars is None or len(shown) <= clip_chars:
        return shown
    return f"{shown[:clip_chars].rstrip()}\n... {len(shown) - clip_chars:,} more characters (--whole)"


def print_tally(result: CasesTally) -> None:
    console = Console()
    for one in result.models:
        head = f"{one.model} x {first_line(result.skill)}   {len(one.rows)} cases x {result.repeats} runs"
        console.print(Text(head))
        console.print(_table(one))
        for name, sums in (("without", one.without_skill), ("with", one.with_skill)):
            console.print(Text(f"{name}: {_cost(sums)}", style="dim"))
        console.print()
    if result.answers_owed:
        console.print(Text(f"{result.answers_owed} answers are owed; the same command asks for them"))
    console.print(Text(DECIDED_ELSEWHERE))


def _table(one: ModelTally) -> Table:
    table = plain_table("case", "without", "with", "", right=("without", "with"))
    for row in one.rows:
        style = "dim" if row.worth.worth == "none" else ""
        cells = (first_line(row.case), _rate(row.without_skill), _rate(row.with_skill), _note(row))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    total = (_rate(one.without_skill.rate), _rate(one.with_skill.rate))
    worthless = any(row.worth.worth == "none" for row in one.rows)
    table.add_row("total", *total, "without the worthless" if worthless else "")
    return table


def _note(row: CaseRow) -> str:
    if row.worth.worth != "some":
        return row.worth.why
    return "tells nothing apart" if row.tells_nothing_apart else ""


def _rate(rate: Rate) -> str:
    """`3/5 60%`, and how many were not run."""
    waiting = f" ({rate.not_run} not run)" if rate.not_run else ""
    if not rate.scored:
        return f"-{waiting}"
    return f"{rate.passed}/{rate.scored} {rate.passed / rate.scored:.0%}{waiting}"


def _cost(sums: ArmSums) -> str:
    tokens = [
        f"{name} tokens {'unknown' if count is None else f'{count:,}'}"
        for name, count in (("input", sums.input_tokens), ("output", sums.output_tokens))
    ]
    return ", ".join([*tokens, f"cost {'unknown' if sums.cost_usd is None else f'${sums.cost_usd:.4f}'}"])
