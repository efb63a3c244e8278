"""Splits SKILL.md into YAML frontmatter and body, and keeps the line of every field.

A scalar's text is what stands in the file: `1.0` stays "1.0" and `yes` stays "yes", as the specification's
fields are all text, whatever type YAML would make of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml

_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_FIRST_YAML_LINE: Final = 2  # the frontmatter follows the `---` of line 1
BOM: Final = "\ufeff"


class FrontmatterError(ValueError):
    """SKILL.md cannot be read; the line is the file's."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


@dataclass(frozen=True)
class Field:
    """One top-level field: `text` for a scalar, `entries` for a map, neither for a list."""

    line: int
    text: str | None = None
    is_text: bool = True
    """Whether YAML reads the scalar as a string; false for a number, boolean, date or nothing."""
    entries: dict[str, Field] | None = None


@dataclass(frozen=True)
class Frontmatter:
    """SKILL.md taken apart."""

    fields: dict[str, Field]
    body: str
    body_line: int
    """1-based line of the body's first line in SKILL.md."""
    faults: tuple[tuple[int, str], ...] = field(default=())
    """Valid YAML that the specification's reference parser refuses, with lines."""


def decode(data: bytes) -> str:
    """UTF-8 text with `\\n` line ends, a byte order mark taken off. Raises FrontmatterError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise FrontmatterError(
            line, f"is not UTF-8 text (byte 0x{data[fault.start]:02x}); save it as UTF-8"
        ) from fault
    return text.removeprefix(BOM).replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str) -> Frontmatter:
    """Take decoded text apart. Raises FrontmatterError when there is no usable frontmatter."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise FrontmatterError(1, "has no frontmatter: the first line must be `---`")
    end = next((i for i in range(1, len(lines)) if lines[i].rstrip() == "---"), None)
    if end is None:
        raise FrontmatterError(1, "has a frontmatter that is never closed by a line `---`")
    source = "\n".join(lines[1:end]) + "\n"
    try:
        node = yaml.compose(source, Loader=yaml.SafeLoader)
        faults = tuple(_unusual(source))
    except yaml.MarkedYAMLError as fault:
        raise FrontmatterError(_line(fault.problem_mark), _yaml_message(fault)) from fault
    except (yaml.YAMLError, RecursionError) as fault:
        raise FrontmatterError(None, f"has a frontmatter that is no YAML: {fault}") from fault
    if not isinstance(node, yaml.MappingNode):
        raise FrontmatterError(_FIRST_YAML_LINE, "has a frontmatter that is no list of `field: value` lines")
    fields, repeats = _fields(node)
    body = "\n".join(lines[end + 1 :])
    return Frontmatter(fields, body, end + 2, tuple(sorted([*faults, *repeats])))


def _line(mark: yaml.Mark | None) -> int | None:
    return None if mark is None else mark.line + _FIRST_YAML_LINE


def _yaml_message(fault: yaml.MarkedYAMLError) -> str:
    message = f"has a frontmatter that is no YAML: {fault.problem or fault.context}"
    if fault.problem and "mapping values are not allowed" in fault.problem:
        message += " (put a value that holds `: ` in quotes, or fold it below `>-`)"
    return message


def _fields(node: yaml.MappingNode) -> tuple[dict[str, Field], list[tuple[int, str]]]:
    fields: dict[str, Field] = {}
    repeats: list[tuple[int, str]] = []
    for key, value in node.value:
        name = key.value if isinstance(key, yaml.ScalarNode) else str(key.tag)
        line = key.start_mark.line + _FIRST_YAML_LINE
        if name in fields:
            repeats.append((line, f"the field {name!r} stands twice"))
        fields[name] = _field(value, line)
    return fields, repeats


def _field(node: yaml.Node, line: int) -> Field:
    if isinstance(node, yaml.ScalarNode):
        return Field(line, text=node.value, is_text=node.tag == _TEXT_TAG)
    if isinstance(node, yaml.MappingNode):
        return Field(line, entries=_fields(node)[0])
    return Field(line)


def _unusual(source: str) -> Iterator[tuple[int, str]]:
    """Anchors, tags and flow collections: the reference parser (StrictYAML) knows none of them."""
    for event in yaml.parse(source, Loader=yaml.SafeLoader):
        mark = event.start_mark
        line = _FIRST_YAML_LINE + (0 if mark is None else mark.line)
        if getattr(event, "anchor", None) is not None:
            yield line, "YAML anchors and aliases are not allowed in a frontmatter"
        if getattr(event, "tag", None) is not None:
            yield line, "YAML tags are not allowed in a frontmatter"
        if getattr(event, "flow_style", False):
            yield line, "write a map or list one entry to a line; `{...}` and `[...]` are not allowed"
