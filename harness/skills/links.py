"""Finds references from a skill's Markdown to files that it does not have.

A path may be relative to its file or to the skill's root, as the specification writes them. Links to the web
are never fetched; what Markdown does not take for a link (code, HTML comments) is none.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote

from markdown_it import MarkdownIt

from harness.skills.findings import SkillFinding, error, warning

_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_BUNDLED: Final = ("references/", "scripts/", "assets/")
_PLACEHOLDER = re.compile(r"[*<>{}$|]|\.\.\.|\bpath/to\b", re.IGNORECASE)
_FRONTMATTER = re.compile(r"\A---\n.*?^---$", re.S | re.M)
_MARKDOWN: Final = MarkdownIt("commonmark").enable("table")


def link_findings(directory: Path, files: Sequence[str]) -> list[SkillFinding]:
    """Dead, absolute and escaping links in all of a skill's Markdown; `files` are the skill's, relative."""
    present = {str(path) for name in files for path in (PurePosixPath(name), *PurePosixPath(name).parents)}
    found: list[SkillFinding] = []
    for name in files:
        if name.endswith(".md"):
            text = (directory / name).read_bytes().decode("utf-8", errors="replace").replace("\r\n", "\n")
            spans = list(_spans(text))
            for line, target in sorted({(line, target) for line, kind, target in spans if kind == "link"}):
                found += _judged(directory, name, line, target, present)
            for line, code in [(line, code) for line, kind, code in spans if kind == "code"]:
                if code.startswith(_BUNDLED) and " " not in code and not _PLACEHOLDER.search(code):
                    found += _named(name, line, code, present)
    return found


def _spans(text: str) -> Iterator[tuple[int, str, str]]:
    """Links, images and code spans: 1-based line, kind of token, target or code."""
    env: dict[str, dict[str, dict[str, object]]] = {}
    blank = _FRONTMATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    line = 1
    for block in _MARKDOWN.parse(blank, env):
        line = block.map[0] + 1 if block.map else line
        at = line
        for token in block.children or ():
            match token.type:
                case "softbreak" | "hardbreak":
                    at += 1
                case "link_open":
                    yield at, "link", str(token.attrs["href"])
                case "image":
                    yield at, "link", str(token.attrs["src"])
                case "code_inline":
                    yield at, "code", token.content
    for definition in env.get("references", {}).values():
        lines = definition["map"]
        assert isinstance(lines, list)
        yield lines[0] + 1, "link", str(definition["href"])


def _judged(
    directory: Path, file: str, line: int, target: str, present: Collection[str]
) -> Iterator[SkillFinding]:
    path = unquote(target.partition("#")[0].partition("?")[0])
    if not path or _SCHEME.match(target) or target.startswith("//") or _PLACEHOLDER.search(path):
        return
    if path.startswith(("/", "~")):
        yield warning(file, line, f"the link {target!r} is absolute: use a path relative to this file")
        return
    beside = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    below_root = posixpath.normpath(path)
    resolved = next((place for place in (beside, below_root) if place in present), None)
    if resolved is not None:
        if resolved.count("/") > 1:
            yield warning(file, line, f"the link {target!r} is more than one level deep")
    elif beside.startswith(".."):
        yield warning(
            file, line, f"the link {target!r} leaves the skill's directory: the skill alone lacks it"
        )
    elif any((directory / place).exists() for place in (beside, below_root) if not place.startswith("..")):
        message = f"the link {target!r} points at a hidden file or a symbolic link: they are not installed"
        yield warning(file, line, message)
    else:
        yield error(file, line, f"the link {target!r} points at nothing in the skill{_meant(path, present)}")


def _meant(path: str, present: Collection[str]) -> str:
    """The only file of that name, as advice."""
    same = [name for name in present if posixpath.basename(name) == posixpath.basename(path)]
    return f": did you mean {same[0]}?" if len(same) == 1 else ""


def _named(file: str, line: int, code: str, present: Collection[str]) -> Iterator[SkillFinding]:
    places = (posixpath.normpath(code), posixpath.normpath(posixpath.join(posixpath.dirname(file), code)))
    if not any(place in present for place in places):
        yield warning(file, line, f"`{code}` is named here, but the skill has no such file")
