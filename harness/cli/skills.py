"""`liftbench skills list|check|fetch|install|uninstall`."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from harness.cli.card import plain_table
from harness.cli.options import CacheOption, JsonOption, SandboxOption, SkillArgument, make_build_setup
from harness.errors import UsageError, refuse_url
from harness.files import data_directory
from harness.report.figures import plural
from harness.skills.check import FOLDERS, SkillReport, check_skill, skill_size
from harness.skills.fetch import Request, fetch, source_of
from harness.skills.install import PROJECT_FOLDERS, Place, install, places, uninstall
from harness.skills.spec import (
    FILE,
    ListedSkill,
    fetched_folders,
    find_skill,
    list_skills,
    load_skill,
    validate_skill,
)
from harness.suite.catalogue import all_tasks

_PROGRESS_EVERY = 10
"""Pieces of code between two lines of progress, where stderr is no terminal."""
_COLUMN = 58
_DESCRIPTION_CHARS = 160


@dataclass(frozen=True, kw_only=True)
class ClientOptions:
    """For which agents, and where."""

    claude: Annotated[bool, typer.Option("--claude", help="Claude Code: .claude/skills.")] = False
    codex: Annotated[bool, typer.Option("--codex", help="Codex: .codex/skills.")] = False
    opencode: Annotated[bool, typer.Option("--opencode", help="opencode: .opencode/skills.")] = False
    cursor: Annotated[bool, typer.Option("--cursor", help="Cursor: .cursor/skills.")] = False
    gemini: Annotated[bool, typer.Option("--gemini", help="Gemini CLI: .gemini/skills.")] = False
    copilot: Annotated[bool, typer.Option("--copilot", help="GitHub Copilot: .github/skills.")] = False
    agents: Annotated[bool, typer.Option("--agents", help="Several clients: .agents/skills.")] = False
    user: Annotated[bool, typer.Option("--global", help="In your home, not in this folder.")] = False

    def places(self) -> list[Place]:
        """Raises UsageError when no client is named."""
        chosen = [client for client in PROJECT_FOLDERS if getattr(self, client)]
        if not chosen:
            flags = ", ".join(f"--{client}" for client in PROJECT_FOLDERS)
            raise UsageError(f"for which agent? Give one or more of {flags}")
        return places(chosen, user=self.user)


def list_skills_command(
    root: Annotated[Path | None, typer.Argument(help="Folder of skills (default: the shipped ones).")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Tokens of every part of each skill.")] = False,
    json_output: JsonOption = False,
) -> None:
    """Sizes are in tokens (estimates)."""
    if root is not None and not root.is_dir():
        refuse_url(str(root))
        raise UsageError(f"{root} is no folder: give a folder that holds skills")
    own = list_skills(root or data_directory("skills"))
    clients = list(PROJECT_FOLDERS)
    where = [*places(clients, user=False), *places(clients, user=True)]
    installed = [(place, one) for place in where for one in list_skills(place.folder)]
    fetched = [] if root else [one for path in fetched_folders() for one in list_skills(path.parent)]
    if json_output:
        rows = [_row(one) for one in own] + [_row(one) | {"scope": "fetched"} for one in fetched]
        rows += [_row(one, place) for place, one in installed]
        print(json.dumps(rows, indent=1))
        return
    console = Console()
    if tree:
        for one in [*own, *fetched, *(one for _, one in installed)]:
            console.print(_tree(one), markup=False, highlight=False, soft_wrap=True)
        return
    console.print(_table([(None, one) for one in own]))
    if fetched:
        console.print("\nfetched:")
        console.print(_table([(None, one) for one in fetched]))
    if installed:
        console.print()
        console.print(_table(list(installed)))


def _row(one: ListedSkill, place: Place | None = None) -> dict[str, Any]:
    """For --json."""
    row: dict[str, Any] = {"directory": str(one.directory), "client": None, "scope": None}
    if place is not None:
        row |= {"client": place.client, "scope": place.scope}
    findings = [finding.model_dump(mode="json") for finding in validate_skill(one.directory)]
    row |= {"problem": one.problem, "findings": findings}
    if one.skill is not None:
        size = skill_size(one.skill)
        row |= one.skill.model_dump(mode="json", exclude={"body", "documents"})
        row["tokens_estimate"] = size.model_dump(mode="json") | {"total": size.total}
    return row


def _table(rows: Sequence[tuple[Place | None, ListedSkill]]) -> Table:
    """One row per skill; installed ones name their client."""
    for_whom = ["installed for"] if any(place is not None for place, _ in rows) else []
    figures = ("catalog", "body", "total", "files")
    columns = (*for_whom, "skill", *figures, "description (sizes: estimated tokens)")
    table = plain_table(*columns, right=figures, whole=("installed for", "skill"))
    for place, one in rows:
        cells = [] if place is None else [f"{place.client}, {place.scope}"]
        if one.skill is None:
            table.add_row(*cells, one.directory.name, "-", "-", "-", "-", f"unreadable: {one.problem}")
            continue
        size = skill_size(one.skill)
        cells += map(str, (one.skill.name, size.catalog, size.body, size.total, len(one.skill.files)))
        findings = validate_skill(one.directory)
        note = f"[{plural(len(findings), 'finding')}: `skills check`] " if findings else ""
        text = note + textwrap.shorten(one.skill.description, _DESCRIPTION_CHARS, placeholder=" ...")
        table.add_row(*cells, text.replace("[", "\\["))
    return table


def _tree(one: ListedSkill) -> str:
    """Estimated tokens of every part of a skill, and the findings on its frontmatter."""
    if one.skill is None:
        return f"{one.directory.name}: unreadable: {one.problem}"
    size = skill_size(one.skill)
    lines = [
        _line(one.skill.name, size.total, "tokens, estimated"),
        _line("  catalog line", size.catalog, "in every conversation"),
        _line("  SKILL.md body", size.body, "when it is used"),
    ]
    for folder in FOLDERS:
        files = size.in_folder(folder)
        if files:
            lines.append(_line(f"  {folder}/", sum(file.tokens or 0 for file in files), "on demand"))
            lines += [_line(f"    {file.path.removeprefix(f'{folder}/')}", file.tokens) for file in files]
    lines += [_line(f"  {file.path}", file.tokens) for file in size.in_folder(None)]
    lines += [f"  {finding}" for finding in validate_skill(one.directory)]
    return "\n".join(lines)


def _line(name: str, tokens: int | None, note: str = "") -> str:
    figure = "no text" if tokens is None else f"{tokens:,}"
    return f"{name:<{_COLUMN}}{figure:>9}  {note}".rstrip()


def check_skill_command(
    skill: SkillArgument,
    build: Annotated[bool, typer.Option(help="Compile the code that the skill shows.")] = True,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Its code must compile, and not repeat a task's solution. Exit code 3 if a finding is an error."""
    path = Path(skill)
    if not path.is_dir():
        path = load_skill(skill).directory
    name = path.resolve().name
    with ExitStack() as opened:
        setup = opened.enter_context(closing(make_build_setup(sandbox, cache))) if build else None
        status = opened.enter_context(Console(stderr=True).status(f"{name}: check ..."))

        def progress(done: int, total: int) -> None:
            status.update(f"{name}: {done} of {total} pieces of code built ...")
            if not sys.stderr.isatty() and (done == total or done % _PROGRESS_EVERY == 0):
                print(f"{name}: {done} of {total} pieces of code built", file=sys.stderr)

        builder = None if setup is None else setup.result
        report = check_skill(path, build=builder, tasks=all_tasks(), progress=progress)
    if json_output:
        print(report.model_dump_json(indent=1))
    else:
        Console().print("\n".join(report_lines(report)), markup=False, highlight=False, soft_wrap=True)
    return 0 if report.ok else 3


def report_lines(report: SkillReport) -> Iterator[str]:
    """Findings first, then the builds of the code, then one line on the whole."""
    yield from (str(finding) for finding in report.findings)
    for project in report.projects:
        for result in project.builds:
            where = f"{project.file}:{project.line}"
            yield f"{where}: {project.name} builds for {result.backend}: {'yes' if result.ok else 'NO'}"
    for language, counts in report.code.items():
        figures = counts.model_dump().items()
        yield f"{language}: " + ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in figures if n)
    tokens, lines = report.body_tokens_estimate, report.body_lines
    body = "no body"
    if tokens is not None and lines is not None:
        body = f"body {plural(tokens, 'token')} (estimate), {plural(lines, 'line')}"
    yield (
        f"{report.name or report.directory}: {'ok' if report.ok else 'has errors'}; {body}, "
        f"{plural(report.files, 'file')}, {plural(report.code_blocks, 'code block')}"
    )


def fetch_command(
    source: Annotated[str, typer.Argument(metavar="URL@COMMIT[:FOLDER]", help="Or a tag or branch.")],
    json_output: JsonOption = False,
) -> None:
    """Into your cache, by digest; nothing of the repository is run. `eval` then takes the skill's name."""
    found = fetch(Request.parse(source))
    origin, name = source_of(found.directory), found.directory.name
    if json_output:
        row = {"name": name, "digest": found.skill.digest, "directory": str(found.directory)}
        print(json.dumps(row | {"source": origin.model_dump(mode="json")}, indent=1))
        return
    shipped = (data_directory("skills") / name / FILE).is_file()
    several = sum(path.name == name for path in fetched_folders()) > 1
    given = str(found.directory) if shipped or several else name
    kind = "" if origin.revision == origin.commit else f" ({origin.revision})"
    findings = validate_skill(found.directory)
    size = skill_size(found.skill).total
    print(f"skill   {name}: {plural(len(found.skill.files), 'file')}, about {size:,} tokens")
    print(f"source  {origin.url}{f', folder {origin.folder}' if origin.folder else ''}")
    print(f"commit  {origin.commit}{kind}")
    print(f"digest  {found.skill.digest}")
    print(f"folder  {found.directory}")
    if findings:
        print(f"check   {plural(len(findings), 'finding')} against the specification: liftbench skills check")
    print(f"use     liftbench eval {given} -m provider/model")


def install_command(
    skill: SkillArgument,
    clients: ClientOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Replace another skill of that name; accept an invalid one.")
    ] = False,
    json_output: JsonOption = False,
) -> None:
    """In this folder, or (--global) in your home."""
    wanted = clients.places()
    installed = install(find_skill(skill), wanted, force=force)
    if json_output:
        rows = [
            {"client": one.place.client, "directory": str(one.directory), "changed": one.changed}
            for one in installed
        ]
        print(json.dumps(rows, indent=1))
        return
    for one in installed:
        print(f"{one.place.client}: {one.directory}{'' if one.changed else ' (was there already)'}")


def uninstall_command(
    names: Annotated[list[str], typer.Argument(help="Names of installed skills.")],
    clients: ClientOptions,
    json_output: JsonOption = False,
) -> None:
    """From this folder, or (--global) from your home."""
    where = clients.places()
    removed = []
    for directory in (one for name in names for one in uninstall(name, where)):
        removed.append(str(directory))
        if not json_output:
            print(f"removed {directory}")
    if json_output:
        print(json.dumps({"removed": removed}, indent=1))
