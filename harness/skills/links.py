"""Finds references from a skill's Markdown to files that it does not have.

Owns: what counts as a reference. Does not own: links to the web (never fetched).
Invariant: text inside fenced code is no reference.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from harness.fences import fenced_blocks
from harness.skills.findings import SkillFinding, error, warning

_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_LINK = re.compile(r"\]\(\s*(?:<([^>]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s+[\"'(][^)]*)?\s*\)")
_DEFINITION = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_BUNDLED: Final = ("references/", "scripts/", "assets/")
_PLACEHOLDER = re.compile(r"[*<>{}$|\s]|\.\.\.")


def link_findings(directory: Path, files: Sequence[str]) -> list[SkillFinding]:
    """Dead, absolute and escaping links in all of a skill's Markdown; `files` are the skill's, relative."""
    present = set(files)
    present.update(posixpath.dirname(f) for f in files)
    found: list[SkillFinding] = []
    for name in files:
        if name.endswith(".md"):
            text = (directory / name).read_bytes().decode("utf-8", errors="replace")
            found += _in_document(name, text.replace("\r\n", "\n"), present)
    return found


def _in_document(file: str, text: str, present: set[str]) -> Iterator[SkillFinding]:
    for line, prose in _prose(text):
        for target in _targets(_CODE.sub("", prose)):
            yield from _judged(file, line, target, present)
        for _, code in _CODE.findall(prose):
            if code.startswith(_BUNDLED) and not _PLACEHOLDER.search(code) and not _known(code, present):
                yield warning(file, line, f"`{code}` is named here, but the skill has no such file")


def _prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside fenced code, with their 1-based numbers."""
    code = {number for block in fenced_blocks(text) for number in range(block.line, block.end)}
    return ((number, line) for number, line in enumerate(text.split("\n"), 1) if number not in code)


def _targets(prose: str) -> Iterator[str]:
    for bracketed, bare in _LINK.findall(prose):
        yield bracketed or bare
    definition = _DEFINITION.match(prose)
    if definition is not None and not definition[0].lstrip().startswith("[^"):
        yield definition[1]


def _judged(file: str, line: int, target: str, present: set[str]) -> Iterator[SkillFinding]:
    path = unquote(target.partition("#")[0].partition("?")[0])
    if not path or _SCHEME.match(target) or target.startswith("//"):
        return
    if path.startswith(("/", "~")):
        yield error(file, line, f"the link {target!r} is absolute: use a path relative to this file")
        return
    resolved = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    if resolved.startswith(".."):
        yield error(file, line, f"the link {target!r} leaves the skill's directory")
    elif resolved not in present and resolved != ".":
        yield error(file, line, f"the link {target!r} points at nothing in the skill")
    elif resolved.count("/") > 1:
        yield warning(file, line, f"the link {target!r} is more than one level deep")


def _known(path: str, present: set[str]) -> bool:
    return posixpath.normpath(path) in present
