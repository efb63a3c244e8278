"""Runs of test cases in the terminal: the tally, what failed, and the list for `liftbench runs`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from harness.cases.running import CasesStore, all_case_runs, answers_of
from harness.cases.schema import ArmSums, CaseAnswer, CaseRow, CasesTally, ModelTally, Rate
from harness.cases.scoring import case_text, verdict
from harness.cli.card import plain_table
from harness.errors import UsageError, did_you_mean
from harness.text import clean, first_line

TALLY: Final = "tally.json"
"""Beside the answers; written when the command ends."""
CLIP_CHARS: Final = 400
DECIDED_ELSEWHERE: Final = "test cases are strings; the decision rests on `liftbench eval`"


def find_case_run(root: Path, name: str) -> CasesStore | None:
    """A run of test cases by folder, or by name (or the end of one) below `root`."""
    known = all_case_runs(root)
    direct = [one for one in all_case_runs(Path(name).parent) if one.folder.resolve() == Path(name).resolve()]
    found = direct or [one for one in known if name != "last" and one.folder.name.endswith(name)]
    return found[-1] if found else None


def case_rows(root: Path) -> Iterable[dict[str, Any]]:
    """Of every run of test cases below `root`, by model: replies that passed; None before its end."""
    for store in all_case_runs(root):
        config, known = store.run().config, _tally(store)
        for model in config.models:
            found = next((one for one in known.models if one.model == model.name), None) if known else None
            sums = None if found is None else (found.without_skill.rate, found.with_skill.rate)
            yield {
                "run": store.folder.name,
                "skill": config.skill,
                "model": model.name,
                "cases": len(config.cases),
                "without_skill": None if sums is None else sums[0].model_dump(),
                "with_skill": None if sums is None else sums[1].model_dump(),
            }


def print_case_runs(rows: Sequence[dict[str, Any]]) -> None:
    """One line for each of the rows of `case_rows`; nothing where there is none."""
    if not rows:
        return
    table = plain_table("test cases", "skill", "model", "cases", "without", "with", whole=("test cases",))
    for row in rows:
        rates = [_rate(Rate(**row[arm])) if row[arm] else "-" for arm in ("without_skill", "with_skill")]
        cells = (row["run"], first_line(row["skill"]), row["model"], str(row["cases"]), *rates)
        table.add_row(*(Text(clean(cell)) for cell in cells))
    console = Console()
    console.print()
    console.print(table)


def show_case(store: CasesStore, part: str, *, json_output: bool) -> None:
    """The case of that id, else the one that contains it: its prompt, every reply, and what failed."""
    config, answers = store.run().config, store.load()
    ids = [case.id for case in config.cases]
    found = [one for one in ids if one == part] or [one for one in ids if part in one]
    if len(found) != 1:
        said = ", ".join(found or ids)
        raise UsageError(f"{len(found)} cases match {part!r}; give one of {said}{did_you_mean(part, ids)}")
    case = next(case for case in config.cases if case.id == found[0])
    given = [answers[key] for key in answers_of(config) if key.case == case.id and key in answers]
    if json_output:
        print(json.dumps([one.model_dump(mode="json") for one in given], indent=1))
        return
    console = Console()
    console.print(Rule("prompt", align="left"))
    console.print(Text(clean(case_text(case))))
    for one in given:
        head = f"{_arm(one)} #{one.key.repeat} ({one.key.model}): {verdict(one.outcomes).replace('_', ' ')}"
        console.print(Rule(clean(head), align="left"))
        console.print(Text(clean(one.reply.text)))
        for number, outcome in enumerate(one.outcomes):
            state = "passed" if outcome.passed else outcome.cause
            style = "" if outcome.passed else "red"
            console.print(Text(clean(f"  {case.words(number)}: {state}"), style=style))


def report_case_run(store: CasesStore, *, json_output: bool) -> None:
    """The tally and what failed. Raises UsageError before the run has ended once."""
    known = _tally(store)
    if known is None:
        raise UsageError(f"{store.folder} has no tally yet: `liftbench cases run` writes it when it ends")
    if json_output:
        print(known.model_dump_json(indent=1))
        return
    print_failures(store, CLIP_CHARS)
    print_tally(known)


def _tally(store: CasesStore) -> CasesTally | None:
    try:
        return CasesTally.model_validate_json((store.folder / TALLY).read_text())
    except (OSError, ValidationError):
        return None


def _arm(answer: CaseAnswer) -> str:
    return answer.key.arm.partition("-")[0].replace("_", " ")


def print_failures(store: CasesStore, clip_chars: int | None) -> None:
    """Of each case and arm that failed: how often, the failed checks, and one failing reply."""
    config, answers, console = store.run().config, store.load(), Console()
    cases = {case.id: case for case in config.cases}
    grouped: dict[tuple[str, str, str], list[CaseAnswer]] = {}
    for key in answers_of(config):
        if key in answers:
            grouped.setdefault((key.model, key.case, key.arm), []).append(answers[key])
    for (model, name, _), found in grouped.items():
        failed = [one for one in found if verdict(one.outcomes) == "failed"]
        if not failed:
            continue
        console.print(
            Text(f"{first_line(name)} {_arm(failed[0])} ({model}): {len(failed)} of {len(found)} failed")
        )
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
