"""Installs a skill in the folders of agents, and uninstalls it.

A skill is copied whole or not at all, byte for byte. A different skill of that name is replaced only with
`force`, and anything that is no skill never.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal, NamedTuple

from harness.errors import UsageError, refuse_url
from harness.files import directory_atomically
from harness.skills.spec import FILE, skill_files, validate_skill

Client = Literal["claude", "codex", "opencode", "cursor", "gemini", "copilot", "agents"]
Contents = dict[str, tuple[bytes, bool]]
"""Relative path -> (bytes, executable)."""

PROJECT_FOLDERS: Final[Mapping[Client, tuple[str, ...]]] = {
    "claude": (".claude", "skills"),
    "codex": (".codex", "skills"),
    "opencode": (".opencode", "skills"),
    "cursor": (".cursor", "skills"),
    "gemini": (".gemini", "skills"),
    "copilot": (".github", "skills"),
    "agents": (".agents", "skills"),
}
"""Relative to the project's folder; `agents` is read by Codex, Cursor, Gemini CLI, Copilot and others.

Sources: cursor.com/docs/context/skills, geminicli.com/docs/cli/using-agent-skills and
docs.github.com/en/copilot/concepts/agents/about-agent-skills, as of 2026."""
USER_FOLDERS: Final[Mapping[Client, tuple[str, ...]]] = {
    **PROJECT_FOLDERS,
    "opencode": (".config", "opencode", "skills"),
    "copilot": (".copilot", "skills"),
}
"""Relative to the user's home, where it differs: opencode.ai/docs/skills, docs.github.com as above."""


class Place(NamedTuple):
    """A skills folder of a client."""

    client: Client
    scope: Literal["project", "user"]
    folder: Path


class Installed(NamedTuple):
    place: Place
    directory: Path
    changed: bool


def places(clients: Sequence[Client], *, user: bool) -> list[Place]:
    """The clients' skills folders: here, or in the user's home."""
    if user:
        return [Place(c, "user", Path.home().joinpath(*USER_FOLDERS[c])) for c in dict.fromkeys(clients)]
    return [Place(c, "project", Path.cwd().joinpath(*PROJECT_FOLDERS[c])) for c in dict.fromkeys(clients)]


def install(skill: Path, wanted: Sequence[Place], *, force: bool = False) -> list[Installed]:
    """Copy the skill in the folder `skill` to every place. Raises UsageError before anything is copied.

    `force` installs an invalid skill, and replaces a different one of that name.
    """
    refuse_url(str(skill))
    source = skill.resolve()
    if not (source / FILE).is_file():
        raise UsageError(f"{skill} is no skill: it has no {FILE}")
    errors = [f for f in validate_skill(source) if f.severity == "error"]
    if errors and not force:
        more = "" if len(errors) == 1 else f" (and {len(errors) - 1} more errors)"
        raise UsageError(f"{skill} is not a valid skill: {errors[0]}{more}; --force installs it all the same")
    contents = _contents(source)
    targets = [(place, place.folder / source.name) for place in wanted]
    for _, target in targets:
        _check_target(source, target, contents, force=force)
    return [Installed(place, target, _copy(contents, target)) for place, target in targets]


def uninstall(name: str, wanted: Sequence[Place]) -> list[Path]:
    """Remove the skill `name` from every place, and return the removed folders. Raises UsageError.

    A folder without SKILL.md stays; of a link only the link is removed.
    """
    if name in ("", ".", "..") or "/" in name or "\\" in name or ":" in name:
        raise UsageError(f"{name!r} is no skill's name: give the name alone, not a path")
    found = [place.folder / name for place in wanted if (place.folder / name / FILE).is_file()]
    if not found:
        looked = ", ".join(str(place.folder) for place in wanted)
        raise UsageError(f"no skill {name!r} is installed in {looked}")
    for directory in found:
        if directory.is_symlink():
            directory.unlink()
        else:
            shutil.rmtree(directory)
    return found


def write_contents(contents: Contents, folder: Path) -> None:
    """Write files below a folder."""
    for name, (data, executable) in contents.items():
        path = folder.joinpath(*name.split("/"))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        path.chmod(0o755 if executable else 0o644)


def _contents(directory: Path) -> Contents:
    """The skill's files."""
    found: Contents = {}
    for name in skill_files(directory):
        path = directory / name
        found[name] = path.read_bytes(), bool(path.stat().st_mode & 0o100)
    return found


def _check_target(source: Path, target: Path, contents: Contents, *, force: bool) -> None:
    if target.resolve() == source:
        raise UsageError(f"{target} is the skill itself: it is installed there already")
    if not target.exists() and not target.is_symlink():
        above = next(parent for parent in target.parents if os.path.lexists(parent))
        if not above.is_dir():
            raise UsageError(f"{above} is no folder, so no skill can be put there: move it away")
        return
    if target.is_symlink() or not (target / FILE).is_file():
        raise UsageError(f"{target} is there, and is no skill's folder: move it away")
    if _contents(target) != contents and not force:
        raise UsageError(f"{target} has a different skill of that name: --force replaces it")


def _copy(contents: Contents, target: Path) -> bool:
    """Write the files; False if they are there already."""
    if target.is_dir() and _contents(target) == contents:
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    with directory_atomically(target) as fresh:
        fresh.chmod(0o755)
        write_contents(contents, fresh)
    return True
