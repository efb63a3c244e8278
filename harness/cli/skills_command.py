"""`liftbench skills list|check`.

Owns: how skills are shown. Does not own: what is right about a skill (harness.skills).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.setup import CacheOption, JsonOption, SandboxOption

if TYPE_CHECKING:
    from collections.abc import Callable

    from harness.records import BuildResult, Project, Target

app = typer.Typer(help="Agent Skills.", no_args_is_help=True)


@app.command("list")
def list_skills_command(
    root: Annotated[Path | None, typer.Argument(help="Folder of skills (default: the shipped ones).")] = None,
    json_output: JsonOption = False,
) -> None:
    """List skills: name, size, description."""
    import json

    from rich.console import Console
    from rich.table import Table

    from harness.catalogue import data_directory
    from harness.skills.spec import estimate_tokens, list_skills

    found = list_skills(root or data_directory("skills"))
    if json_output:
        rows = [s.skill.model_dump(mode="json", exclude={"body"}) for s in found if s.skill is not None]
        print(json.dumps(rows, indent=1))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("skill", "tokens (estimate)", "files", "description"):
        table.add_column(name)
    for one in found:
        if one.skill is None:
            table.add_row(one.directory.name, "-", "-", f"unreadable: {one.problem}")
        else:
            size = str(estimate_tokens(one.skill.body))
            table.add_row(one.skill.name, size, str(len(one.skill.files)), one.skill.description)
    Console().print(table)


@app.command("check")
def check_skill_command(
    directory: Annotated[str, typer.Argument(help="A skill's folder, or the name of a shipped one.")],
    build: Annotated[bool, typer.Option(help="Build the projects that the skill shows.")] = True,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Check a skill: the specification, links, sizes, and that the code it shows builds."""
    from rich.console import Console

    from harness.catalogue import load_skill
    from harness.skills.check import check_skill

    path = Path(directory)
    if not path.is_dir():
        path = load_skill(directory).directory
    report = check_skill(path, build=_builder(sandbox, cache) if build else None)
    if json_output:
        print(report.model_dump_json(indent=1))
        return 0 if report.ok else 3
    console = Console()
    for finding in report.findings:
        console.print(str(finding), markup=False, highlight=False)
    for project in report.projects:
        for result in project.builds:
            console.print(
                f"builds for {result.backend}: {'yes' if result.ok else 'NO'}", markup=False, highlight=False
            )
    body = report.body_tokens_estimate or 0
    console.print(
        f"{report.name or path.name}: {'ok' if report.ok else 'has errors'}; body {body} tokens (estimate), "
        f"{report.body_lines} lines, {report.files} files, {report.code_blocks} code blocks",
        markup=False,
        highlight=False,
    )
    return 0 if report.ok else 3


def _builder(sandbox: str, cache: Path | None) -> Callable[[Project, Target], BuildResult]:
    """Builds one project; a target whose toolchain is missing here raises UsageError."""
    from harness.builder.build import build
    from harness.cli.setup import cache_folder, make_workshop

    workshop = make_workshop(sandbox, cache)
    folder = cache_folder(cache) / "builds"
    return lambda project, target: (
        build(project, target, sandbox=workshop.sandbox, toolchain=workshop.toolchain, cache=folder).result
    )
