"""Parses the code of a skill that is not compiled: Python, TOML, JSON, YAML.

Owns: what such code must satisfy, build.toml's schema included. Does not own: C++ and CUDA (compiling.py),
whole projects (projects.py). Nothing is executed.
Invariant: part of a build.toml is not blamed for what it leaves out, only for what it says.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from harness.builder.config import build_toml
from harness.builder.config.faults import faults
from harness.builder.config.hints import hints
from harness.builder.config.lines import positions
from harness.builder.config.toml_text import NoToml, plain, toml_fields
from harness.skills.blocks import CodeBlock
from harness.skills.findings import SkillFinding, error, warning
from sandboxes.owners import owned_folder

_TABLES: Final = {"general", "kernel", "torch", "torch-noarch", "tvm-ffi"}
_HINT = re.compile(r"line (\d+): (.*)", re.S)
_FRAMEWORKS: Final = {"torch", "torch-noarch", "tvm-ffi"}


def is_parsed(block: CodeBlock) -> bool:
    """Whether it is in a language that is parsed."""
    return block.language in _PARSERS


def parse_block(block: CodeBlock) -> list[SkillFinding]:
    """What is wrong with it: an error where nothing could use the code, a warning where it is a piece of
    something that does not parse by itself."""
    return _PARSERS[block.language](block)


def whole_build_toml(block: CodeBlock) -> tuple[build_toml.BuildToml | None, list[SkillFinding]]:
    """A build.toml by upstream's own parser: the records, or None and why."""
    with owned_folder("skill") as scratch:
        data = block.text.encode()
        (Path(scratch) / "build.toml").write_bytes(data)
        validity = build_toml.check(Path(scratch))
    found = [warning(block.file, block.text_line, message) for message in validity.warnings]
    if validity.finding is not None:
        return None, [*found, error(block.file, block.line or 1, validity.finding.message)]
    return build_toml.read_build_toml(data), found


def _report(block: CodeBlock) -> Callable[[str, int | None, str], SkillFinding]:
    return warning if block.path is None else error


def _at(block: CodeBlock, line: int) -> int:
    """The skill's line; what is missing at the end is told of the last one."""
    return block.line + min(line, block.text.rstrip("\n").count("\n") + 1)


def _python(block: CodeBlock) -> list[SkillFinding]:
    if block.text.lstrip().startswith(">>>"):
        return []
    try:
        ast.parse(textwrap.dedent(block.text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        line = getattr(fault, "lineno", None) or 1
        message = getattr(fault, "msg", None) or str(fault)
        return [_report(block)(block.file, _at(block, line), f"this Python does not parse: {message}")]
    return []


def _toml(block: CodeBlock) -> list[SkillFinding]:
    try:
        fields = toml_fields(block.text)
    except NoToml as fault:
        return [_report(block)(block.file, block.line or 1, f"this TOML does not parse: {fault}")]
    tables = _TABLES & {name for name, value in fields.items() if isinstance(value, dict)}
    if {"general", "kernel"} <= tables and _FRAMEWORKS & tables:
        return whole_build_toml(block)[1]
    return _partial_build_toml(block, fields) if tables else []


def _partial_build_toml(block: CodeBlock, fields: dict[str, Any]) -> list[SkillFinding]:
    """The schema's faults in what is there, at their lines."""
    lines = positions(plain(block.text))
    advice = {m[1]: m[2] for m in map(_HINT.match, hints(block.text)) if m is not None}
    found = []
    for fault in faults(_completed(fields)):
        ends = (fault.path[:end] for end in range(len(fault.path), 0, -1))
        line = next((lines[path] for path in ends if path in lines), 1)
        said = advice.get(str(line), fault.advice)
        found.append(error(block.file, block.line + line, f"kernel-builder refuses this: {said}"))
    return found


def _completed(fields: dict[str, Any]) -> dict[str, Any]:
    """With the required keys that a piece leaves out."""
    whole = copy.deepcopy(fields)
    general = whole.setdefault("general", {})
    if isinstance(general, dict):
        # An edition is written when it is not 4: a piece without one means the newest.
        needed = {"name": "my-kernel", "version": 1, "edition": 5, "license": "MIT", "backends": ["cuda"]}
        whole["general"] = needed | general
    if not _FRAMEWORKS & whole.keys():
        whole["torch"] = {}
    kernels = whole.get("kernel", {})
    for name, kernel in kernels.items() if isinstance(kernels, dict) else ():
        if isinstance(kernel, dict):
            kernels[name] = {"backend": "cuda", "depends": ["torch"], "src": []} | kernel
    return whole


def _json(block: CodeBlock) -> list[SkillFinding]:
    try:
        json.loads(block.text)
    except (ValueError, RecursionError) as fault:
        line = getattr(fault, "lineno", 1)
        message = f"this JSON does not parse: {getattr(fault, 'msg', fault)}"
        return [_report(block)(block.file, _at(block, line), message)]
    return []


def _yaml(block: CodeBlock) -> list[SkillFinding]:
    try:
        for _ in yaml.parse(block.text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as fault:
        line = 1 if fault.problem_mark is None else fault.problem_mark.line + 1
        message = f"this YAML does not parse: {fault.problem or fault.context}"
        return [_report(block)(block.file, _at(block, line), message)]
    except (yaml.YAMLError, RecursionError) as fault:
        return [_report(block)(block.file, block.text_line, f"this YAML does not parse: {fault}")]
    return []


_PARSERS: Final[dict[str, Callable[[CodeBlock], list[SkillFinding]]]] = {
    "python": _python,
    "toml": _toml,
    "json": _json,
    "yaml": _yaml,
}
