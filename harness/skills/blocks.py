"""Takes the code that a skill shows out of its Markdown: fragments, and files that make up projects.

Every block keeps the line at which it stands, so that a fault can be shown there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from harness.fences import Block, fenced_blocks
from harness.files import unsafe_path
from harness.records import Project, ProjectFile

_PATH = re.compile(r"(?:path=)?(?P<path>[\w.+-]+(?:/[\w.+-]+)*\.\w+)")
_LANGUAGES: Final = {
    "py": "python",
    "python3": "python",
    "c": "cpp",
    "c++": "cpp",
    "cc": "cpp",
    "cxx": "cpp",
    "hpp": "cpp",
    "h": "cpp",
    "cu": "cuda",
    "cuh": "cuda",
    "yml": "yaml",
}
_FILES: Final = ("python", "cpp", "cuda", "toml", "json", "yaml")
_FRAGMENT: Final = "fragment"
"""Word of an info string: the code is not whole, and is not to be compiled or parsed."""


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a skill, or a whole file of it."""

    file: str
    """The file in which it stands."""
    line: int
    """1-based line of the opening fence; 0 for a whole file."""
    language: str
    """As written, in lower case and with aliases resolved; empty without one."""
    path: str | None
    """Path of the complete file that it shows; None for a fragment."""
    text: str
    fragment: bool = False
    """The author says that it is not whole."""
    unclosed: str | None = None
    """How it shows that a fence is missing; None where it is closed."""

    @property
    def text_line(self) -> int:
        """1-based line of the text's first line in the file."""
        return self.line + 1


@dataclass(frozen=True)
class ShownProject:
    """A complete project that a document shows."""

    blocks: tuple[CodeBlock, ...]
    """In document order; a later block with the same path replaces an earlier one."""

    @property
    def build_toml(self) -> CodeBlock:
        """The block that holds build.toml (the last one, if it stands twice)."""
        return [b for b in self.blocks if b.path == "build.toml"][-1]

    @property
    def project(self) -> Project:
        """The files as a student would have sent them."""
        texts = {b.path: b.text for b in self.blocks if b.path is not None}
        return Project(files=tuple(ProjectFile(path=p, text=texts[p]) for p in sorted(texts)))


def code_blocks(file: str, markdown: str) -> list[CodeBlock]:
    """All fenced blocks; the info string `cpp dir/file.cpp` (or `cpp path=...`) names a complete file,
    the word `fragment` in it says that the code is not whole."""
    found = []
    for block in fenced_blocks(markdown):
        language, *rest = block.info.split() or [""]
        named = _PATH.fullmatch(rest[0]) if rest else None
        path = None if named is None else PurePosixPath(named["path"]).as_posix()
        if path is not None and unsafe_path(path) is not None:
            path = None
        lowered = language.lower()
        language = _LANGUAGES.get(lowered, lowered)
        unclosed = _unclosed(block)
        found.append(CodeBlock(file, block.line, language, path, block.text, _FRAGMENT in rest, unclosed))
    return found


def _unclosed(block: Block) -> str | None:
    if block.inner is not None:
        return f"another one begins in line {block.inner}"
    return None if block.closed else "it runs to the end of the file"


def code_file(name: str, text: str) -> CodeBlock | None:
    """A file of the skill as one block; None where it is no code that we read."""
    suffix = PurePosixPath(name).suffix.lower().removeprefix(".")
    language = _LANGUAGES.get(suffix, suffix)
    return CodeBlock(name, 0, language, name, text) if language in _FILES else None


def shown_projects(blocks: Sequence[CodeBlock]) -> list[ShownProject]:
    """The projects in one document's blocks: each build.toml after the first begins another one."""
    groups: list[list[CodeBlock]] = [[]]
    for block in blocks:
        if block.path is None:
            continue
        if block.path == "build.toml" and any(b.path == "build.toml" for b in groups[-1]):
            groups.append([])
        groups[-1].append(block)
    return [ShownProject(tuple(g)) for g in groups if any(b.path == "build.toml" for b in g)]
