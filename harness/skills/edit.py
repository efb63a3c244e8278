"""Edits SKILL.md as text, so that nothing but the touched field changes.

Every byte outside of the touched fields and the body stays; the result is parsed again, and an edit that
says anything else than was asked is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import yaml

from harness.errors import UsageError
from harness.skills import frontmatter
from harness.skills.frontmatter import BOM, Field, FrontmatterError

_WIDTH: Final = 100
_ENDLESS: Final = 1 << 30


class _Parts(NamedTuple):
    """SKILL.md as it stands, line ends included; joined they are the whole file."""

    opening: str
    """A byte order mark where there is one, and the first `---`."""
    header: str
    closing: str
    body: str


def replaced(
    data: bytes, where: str, *, body: str | None, description: str | None, metadata_updates: Mapping[str, str]
) -> bytes:
    """SKILL.md with a new body, description or metadata. Raises UsageError, naming the file as `where`."""
    try:
        old = frontmatter.parse(frontmatter.decode(data))
    except FrontmatterError as fault:
        raise UsageError(f"{where}{f':{fault.line}' if fault.line else ''} {fault.message}") from fault
    parts = _split(data.decode("utf-8"))
    newline = "\r\n" if parts.opening.endswith("\r\n") else "\r" if parts.opening.endswith("\r") else "\n"
    header = parts.header
    wanted: dict[str, Field] = dict(old.fields)
    if description is not None:
        text = folded(description)
        if not text:
            raise UsageError(f"{where}: a description cannot be empty")
        header = _with_field(header, "description", text, newline)
        wanted["description"] = Field(0, text=text)
    updates = {key: folded(value) for key, value in metadata_updates.items()}
    for key, value in updates.items():
        header = _with_metadata(header, key, value, newline, where)
    if updates:
        known = wanted["metadata"].entries if "metadata" in wanted else None
        wanted["metadata"] = Field(
            0, entries={**(known or {}), **{k: Field(0, text=v) for k, v in updates.items()}}
        )
    new_body = parts.body if body is None else _new_body(parts.body, old.body, body, newline)
    text = parts.opening + header + parts.closing + new_body
    _verify(text, wanted, where)
    return text.encode("utf-8", "replace")


def folded(text: str) -> str:
    """Text as one line: what YAML could not hold is left out, line breaks become spaces."""
    kept = "".join(c for c in text if c.isspace() or c.isprintable() or c in "\u200b\u200c\u200d")
    return " ".join(kept.encode("utf-8", "ignore").decode().split())


def with_newlines(text: str, old: bytes) -> bytes:
    """New contents of a file, with the line ends and byte order mark of its old ones."""
    crlf = b"\r\n" in old and old.count(b"\r\n") == old.count(b"\n")
    plain = text.replace("\r\n", "\n")
    data = (plain.replace("\n", "\r\n") if crlf else plain).encode("utf-8", "replace")
    mark = BOM.encode()
    return mark + data if old.startswith(mark) and not data.startswith(mark) else data


# --- parts -----------------------------------------------------------------------------------


def _split(text: str) -> _Parts:
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)
    end = next(i for i in range(1, len(lines)) if lines[i].rstrip() == "---")
    return _Parts(lines[0], "".join(lines[1:end]), lines[end], "".join(lines[end + 1 :]))


def _new_body(old_text: str, old_body: str, body: str, newline: str) -> str:
    """The body with the file's line ends, after as many blank lines as the old one had."""
    plain = body.replace("\r\n", "\n")
    if plain == old_body:
        return old_text
    blank = re.match(r"(?:[ \t]*(?:\r\n|\r|\n))*", old_text)
    lead = blank[0] if blank is not None and old_text else newline
    return lead + plain.strip("\n").replace("\n", newline) + newline


def _nodes(header: str) -> list[tuple[yaml.Node, yaml.Node]]:
    node = yaml.compose(header, Loader=yaml.SafeLoader)
    return node.value if isinstance(node, yaml.MappingNode) else []


def _span(header: str, node: yaml.Node) -> tuple[int, int]:
    """Where a value stands, without the blank lines that YAML counts to a block's end."""
    begin, end = node.start_mark.index, node.end_mark.index
    return begin, begin + len(header[begin:end].rstrip())


def _scalar(text: str, width: int = _ENDLESS) -> str:
    """The text as a value in a block: quoted only where YAML needs it."""
    dumped = yaml.safe_dump({"k": text}, allow_unicode=True, width=width, default_flow_style=False)
    return dumped.removeprefix("k:").strip()


def _quoted(text: str) -> str:
    """The text as a value that may stand anywhere."""
    return yaml.safe_dump(text, allow_unicode=True, width=_ENDLESS, default_style='"').strip()


def _with_field(header: str, name: str, text: str, newline: str) -> str:
    """The header with a top-level field set."""
    value = _scalar(text, _WIDTH).replace("\n", newline)
    found = [v for k, v in _nodes(header) if isinstance(k, yaml.ScalarNode) and k.value == name]
    if not found:
        return f"{_ended(header, newline)}{name}: {value}{newline}"
    begin, end = _span(header, found[-1])
    return _put(header, begin, end, value)


def _put(header: str, begin: int, end: int, value: str) -> str:
    space = "" if header[:begin].endswith((" ", "\t")) else " "  # `key:` with nothing after it
    return header[:begin] + space + value + header[end:]


def _with_metadata(header: str, key: str, value: str, newline: str, where: str) -> str:
    """The header with one entry of `metadata` set."""
    name, text = _scalar(key), _scalar(value)
    found = [v for k, v in _nodes(header) if isinstance(k, yaml.ScalarNode) and k.value == "metadata"]
    if not found:
        return f"{_ended(header, newline)}metadata:{newline}  {name}: {text}{newline}"
    node = found[-1]
    if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:null":
        begin, end = _span(header, node)
        return header[:begin].rstrip(" ") + f"{newline}  {name}: {text}" + header[end:]
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{where}: metadata is no map: write it as `key: value` lines")
    entries = [(k, v) for k, v in node.value if isinstance(k, yaml.ScalarNode)]
    same = [v for k, v in entries if k.value == key]
    if same:
        if not isinstance(same[-1], yaml.ScalarNode):
            raise UsageError(f"{where}: metadata.{key} is no text: it is not replaced")
        return _put(header, *_span(header, same[-1]), _quoted(value) if node.flow_style else text)
    if node.flow_style or not entries:
        close = header.rindex("}", 0, node.end_mark.index)
        comma = ", " if node.value else ""
        return header[:close].rstrip(" ") + f"{comma}{_quoted(key)}: {_quoted(value)}" + header[close:]
    _, end = _span(header, entries[-1][1])
    line_end = re.compile(r"[^\r\n]*").match(header, end)
    at = end if line_end is None else line_end.end()  # a comment behind the last entry stays with it
    indent = " " * entries[0][0].start_mark.column
    return header[:at] + f"{newline}{indent}{name}: {text}" + header[at:]


def _ended(header: str, newline: str) -> str:
    return header if not header or header.endswith(("\n", "\r")) else header + newline


def _verify(text: str, wanted: Mapping[str, Field], where: str) -> None:
    """Raises UsageError unless the text says exactly what is wanted."""
    try:
        found = frontmatter.parse(frontmatter.decode(text.encode("utf-8", "replace")))
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
