"""Parses the Python, TOML, JSON and YAML that a skill shows. Nothing is executed.

Keys that a partial build.toml leaves out are no fault.
"""

from __future__ import annotations

import ast
import copy
import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from harness.builder import build_toml
from harness.builder.build_toml import faults, hints, nearest
from harness.builder.schema import NoToml, key_lines, normalized, toml_fields
from harness.skills.blocks import CodeBlock, is_template
from harness.skills.spec import SkillFinding, error, warning
from sandboxes.orphans import owned_folder

_TABLES: Final = {"general", "kernel", "torch", "torch-noarch", "tvm-ffi"}
_NEWER: Final = re.compile(r"f-string|\bt[\"']|\b(?:def|class|type) \w+\s*\[|\btype \w+\s*=|except [\w.]+,")
"""Syntax that a later Python version may accept."""
_COMMENTED: Final = re.compile(r"^[ \t]*(?://|/\*)", re.M)
_HINT = re.compile(r"line (\d+): (.*)", re.S)
_YAML_DEPTH: Final = 100
_FRAMEWORKS: Final = {"torch", "torch-noarch", "tvm-ffi"}
_KEYS: Final = (
    "backends", "edition", "universal", "cuda", "hub", "src", "backend", "depends", "language", "include",
    "cuda-capabilities", "cuda-flags", "cxx-flags", "cuda-minver", "rocm-archs", "pyext", "stable-abi",
    "capabilities",
)  # fmt: skip


def is_parsed(block: CodeBlock) -> bool:
    """Whether its language is parsed."""
    return block.language == "toml" or block.language in _PARSERS


def parse_block(block: CodeBlock, backend: str = "cuda") -> list[SkillFinding]:
    """The faults of a block: errors in a whole file, warnings in a piece or template.

    Advice on a build.toml is for `backend`.
    """
    return _toml(block, backend) if block.language == "toml" else _PARSERS[block.language](block)


def whole_build_toml(
    block: CodeBlock, backend: str
) -> tuple[build_toml.BuildToml | None, list[SkillFinding]]:
    """A build.toml parsed by kernel-builder's own parser; None with findings if it is refused."""
    with owned_folder("skill") as scratch:
        data = block.text.encode()
        (Path(scratch) / "build.toml").write_bytes(data)
        validity = build_toml.check(Path(scratch), backend)
    found = [warning(block.file, block.text_line, message) for message in validity.warnings]
    if validity.finding is not None:
        report = warning if is_template(block.text) else error
        return None, [*found, report(block.file, block.line or 1, validity.finding.message)]
    return build_toml.read_build_toml(data), found


def _report(block: CodeBlock) -> Callable[[str, int | None, str], SkillFinding]:
    return warning if block.path is None or is_template(block.text) else error


def _at(block: CodeBlock, line: int) -> int:
    """The skill's line; at most the block's last one."""
    return block.line + min(line, block.text.rstrip("\n").count("\n") + 1)


def _python(block: CodeBlock) -> list[SkillFinding]:
    if block.text.lstrip().startswith(">>>"):
        return []
    try:
        ast.parse(textwrap.dedent(block.text))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        line = getattr(fault, "lineno", None) or 1
        message = getattr(fault, "msg", None) or str(fault)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        newer = _NEWER.search(f"{block.text.splitlines()[line - 1 : line]} {message}") is not None
        report = warning if newer else _report(block)
        return [report(block.file, _at(block, line), f"this Python does not parse ({version}): {message}")]
    return []


def _toml(block: CodeBlock, backend: str) -> list[SkillFinding]:
    try:
        fields = toml_fields(block.text)
    except NoToml as fault:
        return [_report(block)(block.file, block.line or 1, f"this TOML does not parse: {fault}")]
    tables = _TABLES & {name for name, value in fields.items() if isinstance(value, dict)}
    if not _is_build_toml(block, fields):
        return []
    if {"general", "kernel"} <= tables and _FRAMEWORKS & tables:
        return whole_build_toml(block, backend)[1]
    return _partial_build_toml(block, fields, backend)


def _is_build_toml(block: CodeBlock, fields: dict[str, Any]) -> bool:
    """Whether its name or a key is kernel-builder's; other tools have a [general] table too."""
    if block.path is not None and Path(block.path).name == "build.toml":
        return True
    general, kernels = fields.get("general"), fields.get("kernel")
    tables = [fields.get(name) for name in _FRAMEWORKS] + [general]
    tables += list(kernels.values()) if isinstance(kernels, dict) else []
    written = {str(key) for table in tables if isinstance(table, dict) for key in table}
    shared = {"name", "version", "license"}  # any project has these
    return any(nearest(key, _KEYS) is not None for key in written - shared)


def _partial_build_toml(block: CodeBlock, fields: dict[str, Any], backend: str) -> list[SkillFinding]:
    """Violations of the schema in the keys that are there."""
    lines = key_lines(normalized(block.text))
    advice = {m[1]: m[2] for m in map(_HINT.match, hints(block.text, backend)) if m is not None}
    found = []
    for fault in faults(_completed(fields), backend):
        ends = (fault.path[:end] for end in range(len(fault.path), 0, -1))
        line = next((lines[path] for path in ends if path in lines), 1)
        said = advice.get(str(line), fault.advice)
        report = warning if is_template(block.text) else error
        found.append(report(block.file, block.line + line, f"kernel-builder refuses this: {said}"))
    return found


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


def _json(block: CodeBlock) -> list[SkillFinding]:
    try:
        json.loads(block.text)
    except (ValueError, RecursionError) as fault:
        line = getattr(fault, "lineno", 1)
        message = f"this JSON does not parse: {getattr(fault, 'msg', fault)}"
        report = warning if _COMMENTED.search(block.text) else _report(block)
        return [report(block.file, _at(block, line), message)]
    return []


def _yaml(block: CodeBlock) -> list[SkillFinding]:
    try:
        depth = 0
        for event in yaml.parse(block.text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _YAML_DEPTH:  # the parser takes quadratic time
                message = f"this YAML is nested more than {_YAML_DEPTH} deep"
                return [_report(block)(block.file, block.text_line, message)]
    except yaml.MarkedYAMLError as fault:
        line = 1 if fault.problem_mark is None else fault.problem_mark.line + 1
        message = f"this YAML does not parse: {fault.problem or fault.context}"
        return [_report(block)(block.file, _at(block, line), message)]
    except (yaml.YAMLError, RecursionError) as fault:
        return [_report(block)(block.file, block.text_line, f"this YAML does not parse: {fault}")]
    return []


_PARSERS: Final[dict[str, Callable[[CodeBlock], list[SkillFinding]]]] = {
    "python": _python,
    "json": _json,
    "yaml": _yaml,
}
