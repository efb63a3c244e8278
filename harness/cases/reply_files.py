"""The files in a reply to a test case: fenced blocks that name a path, with any suffix.

Every path is relative, without `..`, and can be written together with the others; a reply never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from harness.files import unsafe_path
from harness.student.answer import MAX_BYTES, MAX_FILES, MAX_REPLY_CHARS
from harness.student.fences import ANY_PATH, FileNames, fenced_blocks

_NAME_BYTES: Final = 255  # NAME_MAX of Linux


@dataclass(frozen=True)
class ReplyFiles:
    """The files in a reply."""

    files: Mapping[str, str]
    left_out: Mapping[str, str]
    """By path, why a block is not a file."""


def reply_files(text: str, wanted: Iterable[str] = ()) -> ReplyFiles:
    """The files of a reply; `wanted` are paths that count even without a suffix (`my notes`).

    A later block with the same path replaces an earlier one.
    """
    known = sorted({re.escape(path) for path in wanted}, key=len, reverse=True)
    names = FileNames("|".join([*known, ANY_PATH]), quoted=True)
    files: dict[str, str] = {}
    left_out: dict[str, str] = {}
    size = 0
    for block in fenced_blocks(text[:MAX_REPLY_CHARS]):
        named = names.find(block)
        if named is None:
            continue
        path, contents = named
        tidy = path if "\\" in path else PurePosixPath(path).as_posix()
        size += len(contents.encode(errors="replace"))
        reason = unfit(tidy, files)
        if reason is None and (len(files) >= MAX_FILES and tidy not in files):
            reason = f"is beyond the first {MAX_FILES} files"
        if reason is None and size > MAX_BYTES:
            reason = f"is beyond the first {MAX_BYTES} bytes"
        if reason is None:
            files[tidy] = contents
        else:
            left_out[tidy] = reason
    return ReplyFiles(files, left_out)


def write_files(files: Mapping[str, str], folder: Path) -> None:
    """Write them below `folder`, which need not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="replace", newline="")


def overlaid(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    """Both sets of files; where two conflict, also as file and folder of one name, that of `above`."""
    kept = {path: text for path, text in below.items() if path in above or unfit(path, above) is None}
    return {**kept, **above}


def unfit(path: str, files: Mapping[str, str]) -> str | None:
    """Why `path` cannot be written together with `files`; None if it can."""
    reason = unsafe_path(path)
    if reason is not None:
        return reason
    if any(len(part.encode(errors="replace")) > _NAME_BYTES for part in path.split("/")):
        return f"has a name of more than {_NAME_BYTES} bytes"
    if any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 for char in path):
        return "has characters that no file name should have"
    inner = {parent.as_posix() for file in files for parent in PurePosixPath(file).parents}
    outer = {parent.as_posix() for parent in PurePosixPath(path).parents}
    if path in inner or outer & set(files):
        return "is a file and a folder at once"
    return None
