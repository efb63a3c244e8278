"""From a teacher's reply to a skill folder.

A reply never raises; nothing outside of the new folder is written.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.errors import UsageError
from harness.files import unsafe_path
from harness.records import Reply
from harness.skills import frontmatter
from harness.skills.lineage import Lineage
from harness.skills.package import SkillDraft, derive, write_skill
from harness.skills.spec import FILE
from harness.text import slug

MAX_FILES: Final = 40
MAX_BYTES: Final = 1 << 20
_FILE = re.compile(r'<file path="(?P<path>[^"]+)">[ \t]*')
_FILE_END = re.compile(r"</file>[ \t]*")
_DELETE = re.compile(r'<delete path="(?P<path>[^"]+)"\s*/>[ \t]*')
_UNUSABLE: Final = {
    "length": "the reply was cut at the output limit: write less",
    "refusal": "the model refused",
    "overflow": "the brief does not fit into the model's context",
}


@dataclass(frozen=True)
class Changes:
    """The files that a reply gives whole, and those that it removes."""

    files: Mapping[str, str]
    removed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unusable:
    """Why a reply is no skill, in words that its writer can act on."""

    faults: tuple[str, ...]


def read_changes(reply: Reply) -> Changes | Unusable:
    """What a teacher's reply changes. A reply that is itself a SKILL.md is taken for one."""
    if reply.stop in _UNUSABLE:
        return Unusable((_UNUSABLE[reply.stop],))
    text = reply.text.replace("\r\n", "\n")
    files, removed = _marked(text.split("\n"))
    if not files and text.lstrip().startswith("---\n"):
        files = {FILE: text.lstrip()}
    faults = [
        f"the path {path!r} {reason}"
        for path in (*files, *removed)
        if (reason := unsafe_path(path)) is not None
    ]
    if not files:
        faults.append('no file was given: write <file path="SKILL.md">, its lines, then </file>')
    if FILE in removed:
        faults.append(f"{FILE} cannot be removed")
    size = sum(len(content.encode()) for content in files.values())
    if len(files) > MAX_FILES or size > MAX_BYTES:
        faults.append(f"{len(files)} files of {size} bytes: at most {MAX_FILES} and {MAX_BYTES} are taken")
    return Unusable(tuple(faults)) if faults else Changes(files, removed)


def _marked(lines: Sequence[str]) -> tuple[dict[str, str], tuple[str, ...]]:
    """The files between their marks, and the paths to delete outside of those."""
    ends = [number for number, line in enumerate(lines) if _FILE_END.fullmatch(line)]
    files: dict[str, str] = {}
    removed: list[str] = []
    after = 0
    for number, line in enumerate(lines):
        if number < after:
            continue
        end = bisect_right(ends, number)
        if (opening := _FILE.fullmatch(line)) is not None and end < len(ends):
            after = ends[end] + 1
            files[opening["path"].strip()] = "".join(f"{text}\n" for text in lines[number + 1 : ends[end]])
        elif (deletion := _DELETE.fullmatch(line)) is not None:
            removed.append(deletion["path"].strip())
    return files, tuple(removed)


def write_new(changes: Changes, parent: Path, lineage: Lineage, name: str | None) -> Path | Unusable:
    """Write a first version below `parent`; its folder is named as the skill is."""
    if FILE not in changes.files:
        return Unusable((f"{FILE} is missing",))
    try:
        parsed = frontmatter.parse(changes.files[FILE])
    except frontmatter.FrontmatterError as fault:
        return Unusable((f"{FILE} {fault.message}",))
    texts = {field: (entry.text or "").strip() for field, entry in parsed.fields.items()}
    if not texts.get("description"):
        return Unusable((f"{FILE} has no description in its frontmatter",))
    draft = SkillDraft(
        name=name or slug(texts.get("name", "")),
        description=texts["description"],
        body=parsed.body,
        metadata=lineage.metadata,
        files={path: text.encode() for path, text in changes.files.items() if path != FILE},
    )
    try:
        return write_skill(draft, parent / draft.name)
    except UsageError as fault:
        return Unusable((str(fault),))


def write_next(changes: Changes, base: Path, out: Path, lineage: Lineage) -> Path | Unusable:
    """Write a next version of the skill in `base` to `out`: what was not given stays byte for byte."""
    body: str | None = None
    description: str | None = None
    if FILE in changes.files:
        try:
            parsed = frontmatter.parse(changes.files[FILE])
        except frontmatter.FrontmatterError as fault:
            return Unusable((f"{FILE} {fault.message}",))
        body = parsed.body
        entry = parsed.fields.get("description")
        description = entry.text.strip() if entry is not None and entry.text else None
    try:
        return derive(
            base,
            out,
            body=body,
            changed={path: text for path, text in changes.files.items() if path != FILE},
            removed=changes.removed,
            metadata_updates=lineage.metadata,
            description=description,
        )
    except UsageError as fault:
        return Unusable((str(fault),))
