"""`liftbench skills list|check|install|uninstall`.

`check` ends with 3 when a finding is an error; what is installed is told copy by copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.setup import CacheOption, JsonOption, SandboxOption, make_workshop

if TYPE_CHECKING:
    from harness.skills.install import Client, Place

_TOLD_EVERY = 10
"""Pieces of code between two lines of progress, where stderr is no terminal."""

app = typer.Typer(help="Agent Skills.", no_args_is_help=True)

ClaudeOption = Annotated[bool, typer.Option("--claude", help="Claude Code: .claude/skills.")]
CodexOption = Annotated[bool, typer.Option("--codex", help="Codex: .codex/skills.")]
OpencodeOption = Annotated[
    bool, typer.Option("--opencode", help="opencode: .opencode/skills, ~/.config/opencode/skills.")
]
AgentsOption = Annotated[
    bool, typer.Option("--agents", help="The folder that several clients share: .agents/skills.")
]
GlobalOption = Annotated[bool, typer.Option("--global", help="In your home, not in this folder.")]


@app.command("list")
def list_skills_command(
    root: Annotated[Path | None, typer.Argument(help="Folder of skills (default: the shipped ones).")] = None,
    tree: Annotated[bool, typer.Option("--tree", help="Tokens of every part of each skill.")] = False,
    json_output: JsonOption = False,
) -> None:
    """List shipped and installed skills with their sizes.

    Sizes are in tokens (estimates).
    """
    import json

    from rich.console import Console

    from harness.cli.skills_view import listed_row, skill_table, skill_tree
    from harness.errors import UsageError, refuse_url
    from harness.files import data_directory
    from harness.skills.install import PROJECT_FOLDERS, places
    from harness.skills.spec import list_skills

    if root is not None and not root.is_dir():
        refuse_url(str(root))
        raise UsageError(f"{root} is no folder: give a folder that holds skills")
    own = list_skills(root or data_directory("skills"))
    clients = list(PROJECT_FOLDERS)
    where = [*places(clients, user=False), *places(clients, user=True)]
    installed = [(place, one) for place in where for one in list_skills(place.folder)]
    if json_output:
        rows = [listed_row(one) for one in own] + [listed_row(one, place) for place, one in installed]
        print(json.dumps(rows, indent=1))
        return
    console = Console()
    if tree:
        for one in [*own, *(one for _, one in installed)]:
            console.print(skill_tree(one), markup=False, highlight=False, soft_wrap=True)
        return
    console.print(skill_table([(None, one) for one in own]))
    if installed:
        console.print()
        console.print(skill_table(list(installed)))


@app.command("check")
def check_skill_command(
    directory: Annotated[str, typer.Argument(help="A skill's folder, or the name of a shipped one.")],
    build: Annotated[bool, typer.Option(help="Compile the code that the skill shows.")] = True,
    sandbox: SandboxOption = "auto",
    json_output: JsonOption = False,
    cache: CacheOption = None,
) -> int:
    """Check a skill: specification, links, code, facts, leaks.

    Its code must compile, and it must not repeat what solves a task.
    """
    import sys

    from rich.console import Console

    from harness.cli.skills_view import report_lines
    from harness.skills.check import check_skill
    from harness.skills.spec import load_skill
    from harness.suite.catalogue import all_tasks

    path = Path(directory)
    if not path.is_dir():
        path = load_skill(directory).directory
    name = path.resolve().name
    workshop = make_workshop(sandbox, cache) if build else None
    builder = None if workshop is None else workshop.result
    try:
        with Console(stderr=True).status(f"{name}: check ...") as status:

            def progress(done: int, total: int) -> None:
                status.update(f"{name}: {done} of {total} pieces of code built ...")
                if not sys.stderr.isatty() and (done == total or done % _TOLD_EVERY == 0):
                    print(f"{name}: {done} of {total} pieces of code built", file=sys.stderr)

            report = check_skill(path, build=builder, tasks=all_tasks(), progress=progress)
    finally:
        if workshop is not None:
            workshop.sandbox.stop()
    if json_output:
        print(report.model_dump_json(indent=1))
    else:
        Console().print("\n".join(report_lines(report)), markup=False, highlight=False, soft_wrap=True)
    return 0 if report.ok else 3


@app.command("install")
def install_command(
    skill: Annotated[str, typer.Argument(help="A skill's folder, or the name of a shipped one.")],
    claude: ClaudeOption = False,
    codex: CodexOption = False,
    opencode: OpencodeOption = False,
    agents: AgentsOption = False,
    user: GlobalOption = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace another skill of that name; take an invalid one.")
    ] = False,
) -> None:
    """Copy a skill to where your agents look for skills.

    In this folder, or (--global) in your home.
    """
    from harness.files import data_directory
    from harness.skills.install import install

    path = Path(skill)
    if not (path / "SKILL.md").is_file() and (data_directory("skills") / skill / "SKILL.md").is_file():
        path = data_directory("skills") / skill
    for done in install(path, _places(claude, codex, opencode, agents, user=user), force=force):
        print(f"{done.place.client}: {done.directory}{'' if done.changed else ' (was there already)'}")


@app.command("uninstall")
def uninstall_command(
    names: Annotated[list[str], typer.Argument(help="Names of installed skills.")],
    claude: ClaudeOption = False,
    codex: CodexOption = False,
    opencode: OpencodeOption = False,
    agents: AgentsOption = False,
    user: GlobalOption = False,
) -> None:
    """Remove installed skills.

    From this folder, or (--global) from your home.
    """
    from harness.skills.install import uninstall

    wanted = _places(claude, codex, opencode, agents, user=user)
    for name in names:
        for directory in uninstall(name, wanted):
            print(f"removed {directory}")


def _places(claude: bool, codex: bool, opencode: bool, agents: bool, *, user: bool) -> list[Place]:
    """Raises UsageError when no client is named."""
    from harness.errors import UsageError
    from harness.skills.install import places

    asked: dict[Client, bool] = {"claude": claude, "codex": codex, "opencode": opencode, "agents": agents}
    chosen = [client for client, wanted in asked.items() if wanted]
    if not chosen:
        raise UsageError("for which agent? Give one or more of --claude, --codex, --opencode, --agents")
    return places(chosen, user=user)
