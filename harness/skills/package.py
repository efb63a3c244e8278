"""Writes skill folders: a new one from a draft, or the next version of an old one.

A folder appears whole or not at all; of an old skill, whatever was not asked to change is the same byte for
byte, with its permissions and links.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import yaml

from harness.errors import UsageError
from harness.files import unsafe_path
from harness.skills import frontmatter
from harness.skills.edit import folded, replaced, with_newlines
from harness.skills.spec import FILE, validate_skill

_WIDTH = 100
"""YAML folds longer text."""
_LEFT_BEHIND = shutil.ignore_patterns(".git", "__pycache__")


@dataclass(frozen=True)
class SkillDraft:
    """A skill that is not yet a folder."""

    name: str
    description: str
    """Line breaks become spaces."""
    body: str
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Beside SKILL.md: relative POSIX path -> contents."""


def write_skill(draft: SkillDraft, out: Path, *, replace: bool = False) -> Path:
    """Write the draft to the folder `out`, which is named as the skill is, and return it.

    Raises UsageError when `out` exists (unless `replace`), when the frontmatter would break the
    specification, or when a file has a path that is not allowed. Links in the body are check_skill's matter.
    """
    if out.name != draft.name:
        raise UsageError(
            f"the skill {draft.name!r} cannot be written to {out}: the folder must have its name"
        )
    text = _skill_md(draft)
    for path in draft.files:
        _checked(path)
    with _in_place(out, replace) as fresh:
        fresh.mkdir()
        (fresh / FILE).write_bytes(text.encode())
        body_line = frontmatter.parse(text).body_line
        found = [f for f in validate_skill(fresh) if f.severity == "error" and (f.line or 0) < body_line]
        if found:
            faults = "; ".join(f.message for f in found)
            raise UsageError(f"the skill {draft.name!r} would be invalid: {faults}")
        for path, data in draft.files.items():
            target = fresh / path
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
            except OSError as fault:  # one path is another's folder
                raise UsageError(
                    f"the file {path!r} of a skill cannot be written: {fault.strerror}"
                ) from fault
    return out


def derive(
    old: Path,
    out: Path,
    *,
    body: str | None = None,
    changed: Mapping[str, str] | None = None,
    removed: Sequence[str] = (),
    metadata_updates: Mapping[str, str] | None = None,
    description: str | None = None,
    replace: bool = False,
) -> Path:
    """Write to the folder `out` the skill in `old` with what is given put in its place, and return `out`.

    `changed`: path -> new text, for new files too; `removed`: paths. None leaves a part as it is. `.git` and
    `__pycache__` stay behind. Raises UsageError, also where an edit of the frontmatter would touch more.
    """
    changed = dict(changed or {})
    for path in (*changed, *removed):
        _checked(path)
    both = sorted(set(changed) & set(removed))
    if both:
        raise UsageError(f"{both[0]!r} is to be changed and removed")
    try:
        data = (old / FILE).read_bytes()
    except OSError as fault:
        raise UsageError(f"{old / FILE} cannot be read: {fault.strerror}") from fault
    edited = replaced(
        data,
        str(old / FILE),
        body=body,
        description=description,
        metadata_updates=metadata_updates or {},
    )
    with _in_place(out, replace) as fresh:
        try:
            shutil.copytree(old, fresh, symlinks=True, ignore=_LEFT_BEHIND)
        except (shutil.Error, OSError) as fault:
            raise UsageError(f"{old} cannot be copied: {fault}") from fault
        if edited != data:
            _write(fresh, FILE, edited)
        for path in removed:
            _remove(fresh, path)
        for path, text in changed.items():
            _change(fresh, path, text)
    return out


# --- parts -----------------------------------------------------------------------------------


def _skill_md(draft: SkillDraft) -> str:
    fields: dict[str, object] = {"name": draft.name, "description": folded(draft.description)}
    if draft.license:
        fields["license"] = folded(draft.license)
    if draft.compatibility:
        fields["compatibility"] = folded(draft.compatibility)
    if draft.metadata:
        fields["metadata"] = {key: folded(value) for key, value in draft.metadata.items()}
    header = yaml.safe_dump(
        fields, sort_keys=False, allow_unicode=True, width=_WIDTH, default_flow_style=False
    )
    body = draft.body.encode("utf-8", "replace").decode().strip("\n")
    return f"---\n{header}---\n\n{body}\n"


def _checked(path: str) -> None:
    reason = unsafe_path(path)
    if reason is None and path == FILE:
        reason = "is written by itself"
    if reason is None and (not path or path.endswith("/") or PurePosixPath(path).as_posix() != path):
        reason = "is no plain path of a file"
    if reason is not None:
        raise UsageError(f"the path {path!r} in a skill {reason}")


def _unlinked(folder: Path, path: str) -> Path:
    """The path in the folder. Raises UsageError where it is a link or lies behind one."""
    target = folder / path
    for part in (target, *target.parents):
        if part == folder:
            break
        if part.is_symlink():
            raise UsageError(f"{path!r} is, or lies behind, a symbolic link: name the file itself")
    return target


def _remove(folder: Path, path: str) -> None:
    target = folder / path
    _unlinked(folder, PurePosixPath(path).parent.as_posix())
    if target.is_dir() and not target.is_symlink():
        raise UsageError(f"{path!r} is a folder: name the files to remove")
    try:
        target.unlink()
    except OSError as fault:
        raise UsageError(f"{path!r} cannot be removed from the skill: {fault.strerror}") from fault
    for parent in target.parents:
        if parent == folder or any(parent.iterdir()):
            break
        parent.rmdir()


def _change(folder: Path, path: str, text: str) -> None:
    """New text for a file, with the line ends and the mark that the old one had."""
    target = _unlinked(folder, path)
    data = text.encode("utf-8", "replace")
    if target.is_file():
        data = with_newlines(text, target.read_bytes())
    _write(folder, path, data)


def _write(folder: Path, path: str, data: bytes) -> None:
    """Write in place: an existing file keeps its permissions."""
    target = _unlinked(folder, path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not os.access(target, os.W_OK):
            mode = target.stat().st_mode
            target.chmod(mode | 0o200)
            target.write_bytes(data)
            target.chmod(mode)
        else:
            target.write_bytes(data)
    except OSError as fault:
        raise UsageError(f"{path!r} cannot be written into the skill: {fault.strerror}") from fault


@contextmanager
def _in_place(out: Path, replace: bool) -> Iterator[Path]:
    """A path, with `out`'s name, at which to make a folder; if all went well it becomes `out` by a rename."""
    there = os.path.lexists(out)
    if there and not replace:
        raise UsageError(f"{out} exists: name another place, or ask for it to be replaced")
    if there and (out.is_symlink() or not out.is_dir()):
        raise UsageError(f"{out} is no folder: it is not replaced")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".new-", dir=out.parent))
    except OSError as fault:
        raise UsageError(f"{out} cannot be written: {fault.strerror}") from fault
    try:
        yield scratch / out.name
        if there:
            out.rename(scratch / ".old")
        try:
            (scratch / out.name).rename(out)
        except OSError:
            if there:
                (scratch / ".old").rename(out)
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
