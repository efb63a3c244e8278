"""Extracts the code that a skill shows, and parses its Python, TOML, JSON and YAML. Nothing is executed."""

from __future__ import annotations

import ast
import copy
import json
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from harness.builder.build_toml import BuildToml, NoToml, key_lines, normalized, toml_fields
from harness.builder.check_build_toml import faults, read_build_toml
from harness.files import unsafe_path
from harness.records import Project, ProjectFile
from harness.skills.spec import SkillFinding, error, warning
from harness.student.fences import fenced_blocks

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
CHECKED: Final = ("python", "cpp", "cuda", "toml", "json", "yaml")
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
_COMMENTED: Final = re.compile(r"^[ \t]*(?://|/\*)", re.M)
_YAML_DEPTH: Final = 100
Fault = tuple[int, str]
"""Line, from 1 in the text, and message."""
_FRAMEWORKS: Final = {"torch", "torch-noarch", "tvm-ffi"}
_GENERAL_KEYS: Final = {"backends", "edition", "universal", "cuda", "hub"}


@dataclass(frozen=True)
class CodeBlock:
    """A fenced block of a skill, or one of its files."""

    file: str
    line: int
    """1-based line of the opening fence; 0 for a whole file."""
    language: str
    """In lower case, with aliases resolved; empty without one."""
    path: str | None
    """Path of the complete file that it shows; None for a piece."""
    text: str
    fragment: bool = False
    closed: bool = True

    @property
    def text_line(self) -> int:
        """1-based line of the text's first line in the file."""
        return self.line + 1

    def holds(self, line: int) -> bool:
        """Whether that line of the file is the opening fence or in the text."""
        return self.line <= line <= self.line + self.text.count("\n")


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
        found.append(
            CodeBlock(file, block.line, language, path, block.text, "fragment" in rest, block.closed)
        )
    return found


def code_file(name: str, text: str) -> CodeBlock:
    """A file of the skill as one block."""
    suffix = PurePosixPath(name).suffix.lower().removeprefix(".")
    return CodeBlock(name, 0, _LANGUAGES.get(suffix, suffix), name, text)


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


def is_compiled(block: CodeBlock) -> bool:
    return block.language in ("cuda", "cpp")


def is_parsed(block: CodeBlock) -> bool:
    return block.language == "toml" or block.language in _PARSERS


def parse_block(block: CodeBlock) -> list[SkillFinding]:
    """The faults of a block: errors in a whole file, warnings in a piece or template."""
    if block.language == "toml":
        return _toml(block)
    fault = _PARSERS[block.language](block.text)
    if fault is None:
        return []
    line, message = fault
    commented = block.language == "json" and _COMMENTED.search(block.text)
    report = warning if commented else _report(block)
    last = block.text.rstrip("\n").count("\n") + 1
    return [report(block.file, block.line + min(line, last), message)]


def whole_build_toml(block: CodeBlock) -> BuildToml | SkillFinding:
    """A build.toml parsed by kernel-builder's own parser, or why it is refused."""
    read = read_build_toml(block.text.encode())
    if isinstance(read, BuildToml):
        return read
    report = warning if is_template(block.text) else error
    return report(block.file, block.line or 1, read.message)


def _report(block: CodeBlock) -> Callable[[str, int | None, str], SkillFinding]:
    return warning if block.path is None or is_template(block.text) else error


def _python(text: str) -> Fault | None:
    try:
        ast.parse("" if text.lstrip().startswith(">>>") else textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        message = f"this Python does not parse ({version}): {getattr(fault, 'msg', None) or fault}"
        return getattr(fault, "lineno", None) or 1, message
    return None


def _toml(block: CodeBlock) -> list[SkillFinding]:
    try:
        fields = toml_fields(block.text)
    except NoToml as fault:
        return [_report(block)(block.file, block.line or 1, f"this TOML does not parse: {fault}")]
    tables = {name for name, value in fields.items() if isinstance(value, dict)}
    # Other tools have a [general] table too.
    general = _GENERAL_KEYS & fields["general"].keys() if "general" in tables else set()
    named = block.path is not None and Path(block.path).name == "build.toml"
    if not (named or general or tables & {"kernel", *_FRAMEWORKS}):
        return []
    if {"general", "kernel"} <= tables and _FRAMEWORKS & tables:
        whole = whole_build_toml(block)
        return [whole] if isinstance(whole, SkillFinding) else []
    return list(_partial_build_toml(block, fields))


def _partial_build_toml(block: CodeBlock, fields: dict[str, Any]) -> Iterator[SkillFinding]:
    """Violations of the schema in the keys that are there."""
    lines = key_lines(normalized(block.text))
    for place, advice in faults(_completed(fields)):
        ends = (place[:end] for end in range(len(place), 0, -1))
        line = next((lines[path] for path in ends if path in lines), 1)
        report = warning if is_template(block.text) else error
        yield report(block.file, block.line + line, f"kernel-builder refuses this: {advice}")


def _completed(fields: dict[str, Any]) -> dict[str, Any]:
    """The tables with the required keys that a piece leaves out."""
    whole = copy.deepcopy(fields)
    general = whole.setdefault("general", {})
    if isinstance(general, dict):
        # A piece without an edition means the newest one.
        needed = {"name": "my-kernel", "version": 1, "edition": 5, "license": "MIT", "backends": ["cuda"]}
        whole["general"] = needed | general
    if not _FRAMEWORKS & whole.keys():
        whole["torch"] = {}
    kernels = whole.get("kernel", {})
    for name, kernel in kernels.items() if isinstance(kernels, dict) else ():
        if isinstance(kernel, dict):
            kernels[name] = {"backend": "cuda", "depends": ["torch"], "src": []} | kernel
    return whole


def _json(text: str) -> Fault | None:
    try:
        json.loads(text)
    except (ValueError, RecursionError) as fault:
        return getattr(fault, "lineno", 1), f"this JSON does not parse: {getattr(fault, 'msg', fault)}"
    return None


def _yaml(text: str) -> Fault | None:
    try:
        depth = 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _YAML_DEPTH:  # the parser takes quadratic time
                return 1, f"this YAML is nested more than {_YAML_DEPTH} deep"
    except yaml.MarkedYAMLError as fault:
        line = 1 if fault.problem_mark is None else fault.problem_mark.line + 1
        return line, f"this YAML does not parse: {fault.problem or fault.context}"
    except (yaml.YAMLError, RecursionError) as fault:
        return 1, f"this YAML does not parse: {fault}"
    return None


_PARSERS: Final = {"python": _python, "json": _json, "yaml": _yaml}
