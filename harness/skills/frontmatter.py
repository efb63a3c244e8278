"""Parses and edits SKILL.md: YAML frontmatter with the line of every field, and a Markdown body.

Scalars keep the text of the file (`1.0` stays "1.0", `yes` stays "yes"), since all fields of the
specification are text. An edit replaces the lines of the given fields and the body, and keeps all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import yaml

from harness.errors import UsageError

_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_FIRST_YAML_LINE: Final = 2  # the frontmatter follows the `---` of line 1
BOM: Final = "\ufeff"
_WIDTH: Final = 1 << 30


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
    fields: dict[str, Field]
    body: str
    body_line: int
    """1-based line of the body's first line in SKILL.md."""
    faults: tuple[tuple[int, str], ...] = ()
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
        line = None if fault.problem_mark is None else fault.problem_mark.line + _FIRST_YAML_LINE
        raise FrontmatterError(line, _yaml_message(fault)) from fault
    except (yaml.YAMLError, RecursionError) as fault:
        raise FrontmatterError(None, f"has a frontmatter that is no YAML: {fault}") from fault
    if not isinstance(node, yaml.MappingNode):
        raise FrontmatterError(_FIRST_YAML_LINE, "has a frontmatter that is no list of `field: value` lines")
    fields, repeats = _fields(node)
    body = "\n".join(lines[end + 1 :])
    return Frontmatter(fields, body, end + 2, tuple(sorted([*faults, *repeats])))


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


def edited(
    data: bytes,
    where: str,
    *,
    body: str | None = None,
    description: str | None = None,
    metadata_updates: Mapping[str, str] | None = None,
) -> bytes:
    """SKILL.md with a new body, description or metadata entries; None keeps a part.

    Raises UsageError, naming the file as `where`, if the frontmatter cannot be edited.
    """
    try:
        old_text = decode(data)
        old = parse(old_text)
    except FrontmatterError as fault:
        raise UsageError(f"{where}{f':{fault.line}' if fault.line else ''} {fault.message}") from fault
    changed: dict[str, object] = {}
    if description is not None:
        changed["description"] = folded(description)
        if not changed["description"]:
            raise UsageError(f"{where}: a description cannot be empty")
    if metadata_updates:
        updates = {key: folded(value) for key, value in metadata_updates.items()}
        changed["metadata"] = _metadata(old, where) | updates
    header = _replaced(old_text.split("\n")[1 : old.body_line - 2], old.fields, changed)
    new_body = old.body
    if body is not None and body.replace("\r\n", "\n") != old.body:
        new_body = "\n" + body.replace("\r\n", "\n").strip("\n") + "\n"
    text = "\n".join(["---", *header, "---", new_body])
    if text == old_text:
        return data
    try:
        same = _values(parse(text).fields) == {**_values(old.fields), **changed}
    except FrontmatterError:
        same = False
    if not same:
        raise UsageError(f"{where}: its frontmatter cannot be edited: write it as plain `field: value` lines")
    return with_newlines(text, data)


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


def dumped(fields: Mapping[str, object]) -> str:
    """Fields as block YAML, one line per entry, quoted only where YAML needs it."""
    # The lineage's lines are removed one by one before a student reads SKILL.md.
    text: str = yaml.safe_dump(dict(fields), sort_keys=False, allow_unicode=True, width=_WIDTH)
    return text


def _metadata(old: Frontmatter, where: str) -> dict[str, str]:
    """The entries of the field `metadata`. Raises UsageError if they are not text."""
    field = old.fields.get("metadata")
    if field is None or (field.text is not None and not field.is_text):  # absent or null
        return {}
    entries = {key: entry.text for key, entry in (field.entries or {}).items() if entry.text is not None}
    if field.entries is None or len(entries) != len(field.entries):
        raise UsageError(f"{where}: metadata is no map of text to text: write it as `key: value` lines")
    return entries


def _replaced(header: list[str], fields: Mapping[str, Field], changed: Mapping[str, object]) -> list[str]:
    """The lines of a frontmatter with fields replaced or added; comments below a field stay."""
    starts = sorted((field.line - _FIRST_YAML_LINE, name) for name, field in fields.items())
    ends = [start for start, _ in starts[1:]] + [len(header)]
    lines = header[: starts[0][0]] if starts else header
    for (start, name), end in zip(starts, ends, strict=True):
        if name in changed:
            lines += _lines({name: changed[name]})
            start = end  # of the field; blank lines and comments below it follow
            while not header[start - 1].strip() or header[start - 1].startswith("#"):
                start -= 1
        lines += header[start:end]
    return [*lines, *_lines({name: value for name, value in changed.items() if name not in fields})]


def _lines(fields: Mapping[str, object]) -> list[str]:
    return dumped(fields).rstrip("\n").split("\n") if fields else []


def _values(fields: Mapping[str, Field]) -> dict[str, object]:
    return {
        name: _values(entry.entries) if entry.entries is not None else entry.text
        for name, entry in fields.items()
    }
