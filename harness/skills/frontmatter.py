"""Parses and edits SKILL.md: YAML frontmatter with the line of every field, and a Markdown body.

Scalars keep the text of the file (`1.0` stays "1.0", `yes` stays "yes"), since all fields of the
specification are text. An edit changes nothing but the given fields and the body, byte for byte.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

import yaml

from harness.errors import UsageError

_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_FIRST_YAML_LINE: Final = 2  # the frontmatter follows the `---` of line 1
BOM: Final = "\ufeff"
_WIDTH: Final = 100
"""YAML folds longer text."""
_ENDLESS: Final = 1 << 30


class FrontmatterError(ValueError):
    """SKILL.md cannot be parsed; `line` is the file's."""

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
    """Whether YAML reads the scalar as a string, not as a number, boolean, date or null."""
    entries: dict[str, Field] | None = None


@dataclass(frozen=True)
class Frontmatter:
    """The parsed SKILL.md."""

    fields: dict[str, Field]
    body: str
    body_line: int
    """1-based line of the body's first line in SKILL.md."""
    faults: tuple[tuple[int, str], ...] = field(default=())
    """Line and message of valid YAML that the specification's reference parser refuses."""


def decode(data: bytes) -> str:
    """UTF-8 text with `\\n` line ends and without byte order mark. Raises FrontmatterError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as fault:
        line = data[: fault.start].count(b"\n") + 1
        raise FrontmatterError(
            line, f"is not UTF-8 text (byte 0x{data[fault.start]:02x}); save it as UTF-8"
        ) from fault
    return text.removeprefix(BOM).replace("\r\n", "\n").replace("\r", "\n")


def parse(text: str) -> Frontmatter:
    """Parse decoded text. Raises FrontmatterError if there is no usable frontmatter."""
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
    """Anchors, tags and flow collections, which the reference parser (StrictYAML) refuses."""
    for event in yaml.parse(source, Loader=yaml.SafeLoader):
        mark = event.start_mark
        line = _FIRST_YAML_LINE + (0 if mark is None else mark.line)
        if getattr(event, "anchor", None) is not None:
            yield line, "YAML anchors and aliases are not allowed in a frontmatter"
        if getattr(event, "tag", None) is not None:
            yield line, "YAML tags are not allowed in a frontmatter"
        if getattr(event, "flow_style", False):
            yield line, "write a map or list one entry to a line; `{...}` and `[...]` are not allowed"


# --- editing -------------------------------------------------------------------------------------


def edited(
    data: bytes,
    where: str,
    *,
    body: str | None = None,
    description: str | None = None,
    metadata_updates: Mapping[str, str] | None = None,
) -> bytes:
    """SKILL.md with a new body, description or metadata entries; None keeps a part.

    Raises UsageError, naming the file as `where`, if the frontmatter cannot be edited in place.
    """
    try:
        old = parse(decode(data))
    except FrontmatterError as fault:
        raise UsageError(f"{where}{f':{fault.line}' if fault.line else ''} {fault.message}") from fault
    lines: list[str] = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", data.decode("utf-8"))
    end = next(i for i in range(1, len(lines)) if lines[i].rstrip() == "---")
    newline = "\r\n" if lines[0].endswith("\r\n") else "\r" if lines[0].endswith("\r") else "\n"
    header, old_body = "".join(lines[1:end]), "".join(lines[end + 1 :])
    wanted: dict[str, Field] = dict(old.fields)
    if description is not None:
        text = folded(description)
        if not text:
            raise UsageError(f"{where}: a description cannot be empty")
        header = _with_description(header, text, newline)
        wanted["description"] = Field(0, text=text)
    updates = {key: folded(value) for key, value in (metadata_updates or {}).items()}
    for key, value in updates.items():
        header = _with_metadata(header, key, value, newline, where)
    if updates:
        known = (wanted["metadata"].entries if "metadata" in wanted else None) or {}
        wanted["metadata"] = Field(0, entries={**known, **{k: Field(0, text=v) for k, v in updates.items()}})
    if body is not None and body.replace("\r\n", "\n") != old.body:
        old_body = _new_body(old_body, body, newline)
    text = lines[0] + header + lines[end] + old_body
    _verify(text, wanted, where)
    return text.encode("utf-8", "replace")


def folded(text: str) -> str:
    """Text on one line; characters that YAML cannot hold are left out."""
    kept = "".join(c for c in text if c.isspace() or c.isprintable() or c in "\u200b\u200c\u200d")
    return " ".join(kept.encode("utf-8", "ignore").decode().split())


def with_newlines(text: str, old: bytes) -> bytes:
    """New contents of a file, with the line ends and byte order mark of its old contents."""
    crlf = b"\r\n" in old and old.count(b"\r\n") == old.count(b"\n")
    plain = text.replace("\r\n", "\n")
    data = (plain.replace("\n", "\r\n") if crlf else plain).encode("utf-8", "replace")
    mark = BOM.encode()
    return mark + data if old.startswith(mark) and not data.startswith(mark) else data


def dumped(fields: Mapping[str, object], width: int = _WIDTH) -> str:
    """Fields as block YAML, quoted only where YAML needs it."""
    text: str = yaml.safe_dump(
        dict(fields), sort_keys=False, allow_unicode=True, width=width, default_flow_style=False
    )
    return text


def _new_body(old_text: str, body: str, newline: str) -> str:
    """The body with the file's line ends, after as many blank lines as before the old body."""
    blank = re.match(r"(?:[ \t]*(?:\r\n|\r|\n))*", old_text)
    lead = blank[0] if blank is not None and old_text else newline
    return lead + body.replace("\r\n", "\n").strip("\n").replace("\n", newline) + newline


def _value_node(header: str, name: str) -> yaml.Node | None:
    """The value of a top-level field."""
    node = yaml.compose(header, Loader=yaml.SafeLoader)
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    found = [v for k, v in pairs if isinstance(k, yaml.ScalarNode) and k.value == name]
    return found[-1] if found else None


def _end(header: str, node: yaml.Node) -> int:
    """Where a value ends, without the blank lines that YAML counts to a block."""
    begin = node.start_mark.index
    return begin + len(header[begin : node.end_mark.index].rstrip())


def _scalar(text: str, width: int = _ENDLESS) -> str:
    return dumped({"k": text}, width).removeprefix("k:").strip()


def _put(header: str, node: yaml.Node, value: str) -> str:
    """The header with a value replaced."""
    begin = node.start_mark.index
    space = "" if header[:begin].endswith((" ", "\t")) else " "  # `key:` with nothing after it
    return header[:begin] + space + value + header[_end(header, node) :]


def _appended(header: str, lines: str, newline: str) -> str:
    ended = not header or header.endswith(("\n", "\r"))
    return header + ("" if ended else newline) + lines + newline


def _with_description(header: str, text: str, newline: str) -> str:
    value = _scalar(text, _WIDTH).replace("\n", newline)
    node = _value_node(header, "description")
    if node is None:
        return _appended(header, f"description: {value}", newline)
    return _put(header, node, value)


def _with_metadata(header: str, key: str, value: str, newline: str, where: str) -> str:
    """The header with one entry of `metadata` set."""
    name, text = _scalar(key), _scalar(value)
    node = _value_node(header, "metadata")
    if node is None:
        return _appended(header, f"metadata:{newline}  {name}: {text}", newline)
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        begin = node.start_mark.index
        return header[:begin].rstrip(" ") + f"{newline}  {name}: {text}" + header[_end(header, node) :]
    if not isinstance(node, yaml.MappingNode) or node.flow_style:
        raise UsageError(f"{where}: metadata is no block map: write it as `key: value` lines")
    entries = [(k, v) for k, v in node.value if isinstance(k, yaml.ScalarNode)]
    same = [v for k, v in entries if k.value == key]
    if same:
        if not isinstance(same[-1], yaml.ScalarNode):
            raise UsageError(f"{where}: metadata.{key} is no text: it is not replaced")
        return _put(header, same[-1], text)
    line_end = re.compile(r"[^\r\n]*").match(header, _end(header, entries[-1][1]))
    assert line_end is not None  # a comment after the last entry stays on its line
    indent = " " * entries[0][0].start_mark.column
    return header[: line_end.end()] + f"{newline}{indent}{name}: {text}" + header[line_end.end() :]


def _verify(text: str, wanted: Mapping[str, Field], where: str) -> None:
    """Raises UsageError unless the parsed text has exactly the wanted fields."""
    try:
        found = parse(decode(text.encode("utf-8", "replace")))
        same = _meaning(found.fields) == _meaning(wanted)
    except FrontmatterError:
        same = False
    if not same:
        message = "its frontmatter cannot be edited in place (anchors, or a form that is not understood)"
        raise UsageError(f"{where}: {message}: write it as plain `field: value` lines")


def _meaning(fields: Mapping[str, Field]) -> dict[str, object]:
    return {
        name: _meaning(entry.entries) if entry.entries is not None else entry.text
        for name, entry in fields.items()
    }
