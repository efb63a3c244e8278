"""The files in a reply to a test case: fenced blocks that name a path, with any suffix.

Every path is relative, without `..`, and can be written together with the others; a reply never raises.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from harness.fences import Block, fenced_blocks
from harness.files import unsafe_path
from harness.student.reply_parsing import MAX_BYTES, MAX_FILES, MAX_REPLY_CHARS

_NAMING_LIMIT: Final = 1_000
_NAME_BYTES: Final = 255  # NAME_MAX of Linux
# A suffix begins with a letter: `python3.11` and `v1.2` are not paths.
_ANY_PATH: Final = r"[\w.+@~\\/-]*[\w+-]\.[A-Za-z]\w{0,9}|Makefile|Dockerfile|LICENSE"
_HEADING: Final = re.compile(r"^\s*(?:#{1,6}\s+|\*\*|`|-\s+|\d+[.)]\s+|file(?:name)?\s*:)", re.I)
_COMMENT: Final = re.compile(r"^\s*(?://|\#(?!!)|/\*|--|<!--|;|%)(?P<said>.*)$")


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
    names = sorted({re.escape(path) for path in wanted}, key=len, reverse=True)
    word = re.compile(rf"(?<![\w./\\-])({'|'.join([*names, _ANY_PATH])})(?![\w/\\-])")
    files: dict[str, str] = {}
    left_out: dict[str, str] = {}
    size = 0
    for block in fenced_blocks(text[:MAX_REPLY_CHARS]):
        path, contents = _named(block, word)
        if path is None:
            continue
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


def _named(block: Block, word: re.Pattern[str]) -> tuple[str | None, str]:
    """The block's path, or None, and its contents: from the info string, the line above, or a comment."""
    found = word.search(block.info[:_NAMING_LIMIT])
    if found is not None:
        return found[1], block.text
    above = block.above
    if len(above) <= _NAMING_LIMIT:
        quoted = [
            found[1] for part in re.findall(r"`([^`]+)`", above) if (found := word.fullmatch(part.strip()))
        ]
        said = quoted or (word.findall(above) if _HEADING.match(above) else [])
        if len(said) == 1:
            return said[0], block.text
    first, _, rest = block.text.partition("\n")
    comment = _COMMENT.match(first[:_NAMING_LIMIT])
    if comment is not None:
        named = re.sub(r"^\s*file(?:name)?\s*[:=]|\*/\s*$|-->\s*$", "", comment["said"].strip(), flags=re.I)
        whole = word.fullmatch(named.strip().strip("`"))
        if whole is not None:
            return whole[1], rest
    return None, block.text


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
