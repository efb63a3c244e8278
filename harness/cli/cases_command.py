"""`liftbench cases check|run`: test cases of a skill, in upskill's format or that of agentskills.io.

A sandbox is opened only where a case has a command.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.runs_command import DEFAULT_RUNS, RunsOption
from harness.cli.setup import CacheOption, JsonOption, SandboxOption, make_workshop

if TYPE_CHECKING:
    from harness.cases.commands import Commands
    from harness.cases.records import CaseAnswer, TestCase, Worth
    from harness.cases.tally import ArmSums, CaseRow, CasesTally, ModelTally, Rate
    from harness.models import Model
    from harness.records import ModelSpec
    from harness.skills.spec import LoadedSkill

app = typer.Typer(help="Test cases of skills: strings and files, not kernels.", no_args_is_help=True)

DECIDED_ELSEWHERE = "test cases are strings; the decision rests on `liftbench eval`"


@app.command("check")
def check_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SKILL_DIR|FILE", help="A skill (folder or shipped name), or a file of cases."
        ),
    ],
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Read test cases, and try each on answers that solve nothing.

    A case that such an answer passes proves nothing.
    """
    import json

    from harness.cases.worth import sentence, worth_of

    cases = read_cases(source)
    with _commands(cases, sandbox, cache) as commands:
        worths = [worth_of(case, commands) for case in cases]
    if json_output:
        rows = [
            {"case": case.model_dump(mode="json"), "worth": worth.model_dump(mode="json")}
            for case, worth in zip(cases, worths, strict=True)
        ]
        print(json.dumps({"cases": rows, "sentence": sentence(worths)}, indent=1))
        return 0
    _print_cases(cases, worths)
    print(f"\n{sentence(worths)}")
    return 0


@app.command("run")
def run_command(
    skill: Annotated[str, typer.Argument(help="A skill's folder, or the name of a shipped one.")],
    model: Annotated[list[str], typer.Option("-m", "--model", help="provider/model; repeatable.")],
    cases_file: Annotated[
        Path | None, typer.Option("--cases", help="A file of test cases (default: the skill's own).")
    ] = None,
    repeats: Annotated[int, typer.Option("--runs", min=1, help="Replies per case, model and arm.")] = 5,
    base_url: Annotated[str | None, typer.Option(help="An OpenAI-compatible server, with /v1.")] = None,
    sandbox: SandboxOption = "auto",
    runs_dir: RunsOption = DEFAULT_RUNS,
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Ask models a skill's test cases, without the skill and with it.

    The same command resumes.
    """
    from harness.cli.study_options import model_specs
    from harness.models import make_model
    from harness.skills.spec import load_skill

    specs = model_specs(model, base_url)
    loaded = load_skill(skill)
    source = str(cases_file or loaded.directory)
    models = {spec.name: make_model(spec) for spec in specs}
    result, problems = _ask(Asking(loaded, source, specs, models, repeats, sandbox, runs_dir, cache))
    if json_output:
        print(result.model_dump_json(indent=1))
    else:
        _print_tally(result)
    return 1 if problems else 0


@dataclass(frozen=True)
class Asking:
    """Which cases are asked, of whom, and where the answers are kept."""

    loaded: LoadedSkill
    source: str
    """A file of cases, a folder, or a shipped skill's name."""
    specs: tuple[ModelSpec, ...]
    models: Mapping[str, Model]
    repeats: int
    sandbox: str
    runs_dir: Path
    cache: Path | None


def ask_beside(asking: Asking, *, quiet: bool) -> None:
    """Test cases beside an eval: a table of their own below the lift, and no part of its decision."""
    from harness.errors import BudgetSpent

    try:
        result, _ = _ask(asking)
    except BudgetSpent as spent:
        print(f"test cases: {spent}; the same command goes on", file=sys.stderr)
        return
    if not quiet:
        print()
        _print_tally(result)


def _ask(asking: Asking) -> tuple[CasesTally, tuple[str, ...]]:
    """Ask what is owed of a skill's cases; the tally, and why answers are still owed. Raises UsageError."""
    from harness.cases.running import answers_of, cases_config, run_cases
    from harness.cases.store import CasesStore
    from harness.cases.tally import tally
    from harness.cases.worth import sentence, worth_of
    from harness.errors import UsageError
    from harness.study.executors import make_executor

    cases = read_cases(asking.source)
    config = cases_config(asking.loaded.skill, cases, asking.specs, repeats=asking.repeats)
    planned = answers_of(config)
    if not planned:
        raise UsageError(f"{asking.source}: none of its {len(cases)} test cases checks anything")
    with _commands(cases, asking.sandbox, asking.cache) as commands:
        worths = [worth_of(case, commands) for case in cases]
        print(sentence(worths), file=sys.stderr)
        store = CasesStore.open(config, asking.runs_dir)
        with store.writer():
            print(f"run {store.folder}: {len(planned)} answers, {len(store.load())} kept", file=sys.stderr)
            problems = run_cases(
                store, asking.models, make_executor("local", 4), commands=commands, observer=_say_what_came
            )
            result = tally(store.run(), store.load(), worths)
    for problem, count in Counter(map(_clean, problems)).items():
        print(f"{count} answers owed: {problem}", file=sys.stderr)
    return result, tuple(problems)


# --- what is needed ---------------------------------------------------------------------------------


def read_cases(source: str) -> tuple[TestCase, ...]:
    """The cases of a file, a folder or a shipped skill. Raises UsageError."""
    from harness.cases.importing import load_cases
    from harness.skills.spec import load_skill

    path = Path(source)
    return load_cases(path if path.exists() else load_skill(source).directory)


@contextmanager
def _commands(cases: Sequence[TestCase], sandbox: str, cache: Path | None) -> Iterator[Commands | None]:
    """What runs commands; None where there are none, or `auto` finds no sandbox (said on stderr)."""
    from harness.cases.commands import Commands
    from harness.errors import UsageError

    workshop = None
    if any(check.kind == "command" for case in cases for check in case.checks):
        try:
            workshop = make_workshop(sandbox, cache)
        except UsageError as error:
            if sandbox != "auto":
                raise
            print(f"commands are not run: {error}", file=sys.stderr)
    if workshop is None:
        yield None
        return
    try:
        yield Commands(workshop.sandbox, workshop.toolchain.python)
    finally:
        workshop.sandbox.stop()


def _clean(text: str) -> str:
    from harness.text import first_line

    return first_line(text)


def _say_what_came(answer: CaseAnswer) -> None:
    from harness.cases.scoring import verdict

    key = answer.key
    arm = key.arm.partition("-")[0]
    print(
        f"{_clean(key.case)} {arm} #{key.repeat} ({key.model}): {verdict(answer.outcomes).replace('_', ' ')}",
        file=sys.stderr,
        flush=True,
    )


# --- tables -----------------------------------------------------------------------------------------


def _print_cases(cases: Sequence[TestCase], worths: Sequence[Worth]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("case", "checks", "worth"):
        table.add_column(name, overflow="fold")
    for case, worth in zip(cases, worths, strict=True):
        style = "dim" if worth.worth == "none" else ""
        table.add_row(*(Text(cell, style=style) for cell in (_clean(case.id), _checks(case), worth.why)))
    Console().print(table)


def _checks(case: TestCase) -> str:
    """`contains 2, command 1, not checkable 3`."""
    counts = Counter(check.kind for check in case.checks)
    said = [f"{kind} {count}" for kind, count in counts.items()]
    if case.not_checkable:
        said.append(f"not checkable {len(case.not_checkable)}")
    return ", ".join(said) or "none"


def _print_tally(result: CasesTally) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console()
    for one in result.models:
        console.print(
            Text(f"{one.model} x {_clean(result.skill)}   {len(one.rows)} cases x {result.repeats} runs")
        )
        console.print(_table(one))
        for name, sums in (("without", one.without_skill), ("with", one.with_skill)):
            console.print(Text(f"{name}: {_cost(sums)}", style="dim"))
        console.print()
    if result.answers_owed:
        console.print(Text(f"{result.answers_owed} answers are owed; the same command asks for them"))
    console.print(Text(DECIDED_ELSEWHERE))


def _table(one: ModelTally) -> object:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("case", overflow="fold")
    for name in ("without", "with"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    for row in one.rows:
        style = "dim" if row.worth.worth == "none" else ""
        cells = (_clean(row.case), _rate(row.without_skill), _rate(row.with_skill), _note(row))
        table.add_row(*(Text(cell, style=style) for cell in cells))
    total = (_rate(one.without_skill.rate), _rate(one.with_skill.rate))
    table.add_row("total", *total, "without the worthless" if any(_vain(row) for row in one.rows) else "")
    return table


def _vain(row: CaseRow) -> bool:
    return row.worth.worth == "none"


def _note(row: CaseRow) -> str:
    if row.worth.worth != "some":
        return row.worth.why
    return "tells nothing apart" if row.tells_nothing_apart else ""


def _rate(rate: Rate) -> str:
    """`3/5 60%`, and what was not run."""
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
