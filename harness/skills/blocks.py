"""Extracts the code that a skill shows in its Markdown: pieces, and files that make up projects."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from harness.files import unsafe_path
from harness.records import Project, ProjectFile
from harness.student.fences import Block, fenced_blocks

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
"""Word of an info string: the code is incomplete, and is neither compiled nor parsed."""

_ELIDED = re.compile(
    r"^\s*(?:\.\.\.|…)|//.*(?:\.\.\.|…)|/\*[^*]*(?:\.\.\.|…)|^\s*#.*(?:\.\.\.|…)|\{\s*\.\.\.\s*\}|[(,]\s*\.\.\.\s*\)\s*;"
    r"|<your[ _-]|\bYOUR_|\{\{\s*[a-z_]+\s*\}\}|\{%",
    re.M,
)
_TEMPLATE = re.compile(r"\{\{-?\s*\w|\{%|<%|\$\{|<[A-Za-z][\w -]*>|\.\.\.|…|\bYOUR_|[\"']X\.Y")
_WRONG = re.compile(
    r"\b(?:wrong|incorrect|bad|broken|invalid|anti-?pattern|never|refused?|rejected|fails?|mistakes?|pseudo-?code|old"
    r"|(?:do|does|will|must|can) ?not|(?:do|does|wo|ca)n['’]?t|instead of|before:)\b|❌|✗|🚫",
    re.IGNORECASE,
)
_WRONG_COMMENT = re.compile(
    r"(?://|#|/\*).*(?:\b(?:WRONG|BAD|BROKEN|INCORRECT|ERROR)\b|(?i:\bdoes not (?:compile|build|parse))"
    r"|❌|✗|🚫)"
)
_LEAD: Final = 2
"""Lines above a block that may say that it is wrong."""


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a skill, or one of its files."""

    file: str
    """The file that contains it."""
    line: int
    """1-based line of the opening fence; 0 for a whole file."""
    language: str
    """In lower case, with aliases resolved; empty without one."""
    path: str | None
    """Path of the complete file that it shows; None for a piece."""
    text: str
    fragment: bool = False
    """The author marks it as incomplete."""
    unclosed: str | None = None
    """The evidence that the closing fence is missing; None if it is closed."""

    @property
    def text_line(self) -> int:
        """1-based line of the text's first line in the file."""
        return self.line + 1


@dataclass(frozen=True)
class ShownProject:
    """A complete project that a document shows."""

    blocks: tuple[CodeBlock, ...]
    """In document order; a later block replaces an earlier one with the same path."""

    @property
    def build_toml(self) -> CodeBlock:
        """The last block that shows build.toml."""
        return [b for b in self.blocks if b.path == "build.toml"][-1]

    @property
    def project(self) -> Project:
        """The files in the form of a student's reply."""
        texts = {b.path: b.text for b in self.blocks if b.path is not None}
        return Project(files=tuple(ProjectFile(path=p, text=texts[p]) for p in sorted(texts)))


def code_blocks(file: str, markdown: str) -> list[CodeBlock]:
    """All fenced blocks. The info string `cpp dir/file.cpp` (or `cpp path=...`) names a complete file, the
    word `fragment` marks incomplete code."""
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
    """A file of the skill as one block; None if its language is not checked."""
    suffix = PurePosixPath(name).suffix.lower().removeprefix(".")
    language = _LANGUAGES.get(suffix, suffix)
    return CodeBlock(name, 0, language, name, text) if language in _FILES else None


def shown_projects(blocks: Sequence[CodeBlock]) -> list[ShownProject]:
    """The projects in one document's blocks; each further build.toml starts another project."""
    groups: list[list[CodeBlock]] = [[]]
    for block in blocks:
        if block.path is None:
            continue
        if block.path == "build.toml" and any(b.path == "build.toml" for b in groups[-1]):
            groups.append([])
        groups[-1].append(block)
    return [ShownProject(tuple(g)) for g in groups if any(b.path == "build.toml" for b in g)]


def is_elided(text: str) -> bool:
    """Whether something is left out of this code, or it has a placeholder."""
    return _ELIDED.search(text) is not None


def is_template(text: str) -> bool:
    """Whether this configuration or script has a placeholder."""
    return _TEMPLATE.search(text) is not None


def shown_as_wrong(block: CodeBlock, document: str) -> bool:
    """Whether the lines above a block, or a comment in it, say that the code is wrong."""
    above = [line for line in document.split("\n")[: max(block.line - 1, 0)] if line.strip()][-_LEAD:]
    lead = above if block.line else []
    return any(_WRONG.search(line) for line in lead) or _WRONG_COMMENT.search(block.text) is not None
