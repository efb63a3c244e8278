"""Writes skill folders: a new one from a draft, or the next version of an existing one.

A folder appears whole or not at all. Files that a new version does not change stay the same, byte for byte.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from harness.errors import UsageError
from harness.files import directory_atomically, unsafe_path
from harness.skills.frontmatter import dumped, edited, folded, with_newlines
from harness.skills.spec import FILE, skill_md_findings

_NOT_COPIED = shutil.ignore_patterns(".git", "__pycache__")


@dataclass(frozen=True)
class SkillDraft:
    """A skill that is not yet a folder."""

    name: str
    description: str
    body: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Other files: relative POSIX path -> contents."""

    @property
    def skill_md(self) -> str:
        """The text of SKILL.md."""
        fields: dict[str, object] = {"name": self.name, "description": folded(self.description)}
        if self.metadata:
            fields["metadata"] = {key: folded(value) for key, value in self.metadata.items()}
        body = self.body.encode("utf-8", "replace").decode().strip("\n")
        return f"---\n{dumped(fields)}---\n\n{body}\n"


def write_skill(draft: SkillDraft, out: Path) -> Path:
    """Write the draft to the folder `out`, which must have the skill's name, and return it.

    Raises UsageError if `out` exists or the skill would be invalid. Links in the body are not checked.
    """
    text = draft.skill_md.encode()
    for path in draft.files:
        _check_path(path)
    errors = [f.message for f in skill_md_findings(text, out.name) if f.severity == "error"]
    if errors:
        raise UsageError(f"the skill {draft.name!r} would be invalid: {'; '.join(errors)}")
    with _new_folder(out, replace=False) as fresh:
        for path, data in {FILE: text, **draft.files}.items():
            _write(fresh, path, data)
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
    """Write the skill in `old` with the given parts replaced to the folder `out`, and return `out`.

    `changed`: path -> text of changed and new files; `removed`: paths; None keeps a part. `.git` and
    `__pycache__` are not copied. Raises UsageError.
    """
    changed = dict(changed or {})
    for path in (*changed, *removed):
        _check_path(path)
    try:
        data = (old / FILE).read_bytes()
    except OSError as fault:
        raise UsageError(f"{old / FILE} cannot be read: {fault.strerror}") from fault
    new = edited(data, str(old / FILE), body=body, description=description, metadata_updates=metadata_updates)
    with _new_folder(out, replace=replace) as fresh:
        try:
            shutil.copytree(old, fresh, symlinks=True, ignore=_NOT_COPIED, dirs_exist_ok=True)
        except (shutil.Error, OSError) as fault:
            raise UsageError(f"{old} cannot be copied: {fault}") from fault
        if new != data:
            _write(fresh, FILE, new)
        for path in removed:
            _remove(fresh, path)
        for path, text in changed.items():
            target = _unlinked(fresh, path)
            before = target.read_bytes() if target.is_file() else b""
            _write(fresh, path, with_newlines(text, before))
    return out


def _check_path(path: str) -> None:
    reason = unsafe_path(path)
    plain = PurePosixPath(path).as_posix()
    if reason is None and plain == FILE:
        reason = "is written by itself"
    if reason is None and plain != path:
        reason = "is no plain path of a file"
    if reason is not None:
        raise UsageError(f"the path {path!r} in a skill {reason}")


def _unlinked(folder: Path, path: str) -> Path:
    """The path in the folder. Raises UsageError if it is a symbolic link or below one."""
    target = folder / path
    for part in (target, *target.parents):
        if part == folder:
            break
        if part.is_symlink():
            raise UsageError(f"{path!r} is, or lies behind, a symbolic link: name the file itself")
    return target


def _remove(folder: Path, path: str) -> None:
    """Remove a file, and the folders that it leaves empty."""
    target = folder / path
    _unlinked(folder, PurePosixPath(path).parent.as_posix())
    try:
        target.unlink()
    except OSError as fault:
        raise UsageError(f"{path!r} cannot be removed from the skill: {fault.strerror}") from fault
    for parent in target.parents:
        if parent == folder or any(parent.iterdir()):
            break
        parent.rmdir()


def _write(folder: Path, path: str, data: bytes) -> None:
    """Write in place, so that an existing file keeps its permissions."""
    target = _unlinked(folder, path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    except OSError as fault:
        raise UsageError(f"{path!r} cannot be written into the skill: {fault.strerror}") from fault


@contextmanager
def _new_folder(out: Path, *, replace: bool) -> Iterator[Path]:
    """A folder to fill, which then takes the place of `out`."""
    if os.path.lexists(out):
        if not replace:
            raise UsageError(f"{out} exists: name another place, or ask for it to be replaced")
        if out.is_symlink() or not out.is_dir():
            raise UsageError(f"{out} is no folder: it is not replaced")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with directory_atomically(out) as fresh:
            fresh.chmod(0o755)
            yield fresh
    except OSError as fault:
        raise UsageError(f"{out} cannot be written: {fault.strerror}") from fault
