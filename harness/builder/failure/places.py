"""Where in a project a message points to that no compiler wrote: a refusal, or a failed import.

A line is given only where the message names it or quotes what stands on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from harness.builder.failure.diagnostics import one_line, source_line
from harness.outcome import Cause
from harness.records import Diagnostic, DiagnosticKind, Finding

_KINDS: Final[dict[Cause, DiagnosticKind]] = {
    Cause.BAD_BUILD_TOML: "build_toml",
    Cause.BAD_LAYOUT: "layout",
    Cause.NO_BACKEND: "build_toml",
    Cause.REFUSED_FLAG: "flag_refused",
}
_TOML: Final = "build.toml"
_AT = re.compile(r"at line (\d{1,7})(?:, column (\d{1,7}))?")
_ADVICE = re.compile(r"line (\d{1,7}): ")
_FILE_LINE = re.compile(r"([\w.+@,=/-]+):(\d{1,7})(?:: | (?=includes ))", re.A)
_PREAMBLE: Final = "build.toml is not valid: "
_UNKNOWN_KEY = re.compile(r"[Uu]nknown field [`'\"]?([\w-]+)")
_PLACE = re.compile(r"(?:\b(src|include|cxx-flags|cuda-flags|cuda-capabilities) of )?\[([\w.-]+)\]")
_QUOTED = re.compile(r"\"([^\"\n]{1,400})\"|'([^'\n]{1,400})'")


def refusal(finding: Finding, files: Mapping[str, str]) -> Diagnostic:
    """The Diagnostic of a project that was refused before any compiler ran."""
    message = finding.message.partition("\n")[0].removeprefix(_PREAMBLE)
    named = _FILE_LINE.match(message)
    if named is not None and named[1] in files:
        kind: DiagnosticKind = "missing_header" if " includes " in message else "layout"
        if re.search(r": (?:Syntax|Indentation|Tab)Error: ", message):
            kind = "syntax"
        return _diagnostic(kind, message[named.end() :], files, named[1], int(named[2]))
    kind = _KINDS.get(finding.cause, "other")
    if "runs on sm_90" in message:
        kind = "wrong_arch"
    if _TOML not in files:
        return Diagnostic(kind=kind, message=one_line(message))
    advised, at = _ADVICE.match(message), _AT.search(message)
    if advised is not None:
        return _diagnostic(kind, message[advised.end() :], files, _TOML, int(advised[1]))
    if at is not None:
        return _diagnostic(
            kind, message[: at.start()].rstrip(" (") or message, files, _TOML, int(at[1]), at[2]
        )
    return _diagnostic(kind, message, files, _TOML, _line_of(message, files[_TOML]))


def _diagnostic(
    kind: DiagnosticKind,
    message: str,
    files: Mapping[str, str],
    file: str | None,
    line: int | None,
    column: str | None = None,
) -> Diagnostic:
    source = source_line(files, file, line)
    known = line if source is not None else None
    return Diagnostic(
        kind=kind,
        message=one_line(message),
        file=file,
        line=known,
        column=int(column) if column and known else None,
        source=source,
    )


def _line_of(message: str, toml: str) -> int | None:
    """The line of the table that holds what the message quotes, else that of the key or table."""
    place = _PLACE.search(message)
    lines = list(_table(toml, place[2] if place else None))
    for word in _words(message):
        for number, line in lines:
            if f'"{word}"' in line or f"'{word}'" in line:
                return number
    unknown = _UNKNOWN_KEY.search(message)
    keys = [place[1] if place else None, unknown[1] if unknown else None]
    for key in [*keys, "cuda-capabilities" if "cuda-capabilities" in message else None]:
        for number, line in lines:
            if key is not None and re.match(rf"\s*{key}\s*=", line):
                return number
    return lines[0][0] if place and lines else None


def _words(message: str) -> Iterator[str]:
    """What the message quotes; of an option and its value, the value first."""
    for quoted in _QUOTED.finditer(message):
        text = quoted[1] or quoted[2]
        yield text
        yield from reversed(text.split())


def _table(toml: str, name: str | None) -> Iterator[tuple[int, str]]:
    """Numbered lines of a table with its head, or of the whole file."""
    inside = name is None
    for number, line in enumerate(toml.split("\n"), 1):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]", line):
            inside = name is None or head[1] == name
        if inside:
            yield number, line


# --- failed imports ------------------------------------------------------------------------------

_UNDEFINED = re.compile(r"undefined symbol: ([^\s(]{1,500})")
_SCHEMA = re.compile(
    r"doesn't match the expected function schema|<--- HERE"
    r"|\baoti_torch_library_\w+\([^)\n]{0,400}\) API call failed"
    r"|Tried to register (?:an operator|multiple)"
)
_REGISTERED_AT = re.compile(r"registered at (?:source/)?([\w.+@,=/-]{1,300}):(\d{1,7})", re.A)
_REASON = re.compile(r"^ *reason: (.+)$|^(unknown type specifier[^.\n]*)", re.M)


def load_failure(message: str, files: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """What a failed import says of the binding: empty where it is about something else."""
    undefined = _UNDEFINED.search(message)
    if undefined is not None:
        name = _function_name(undefined[1])
        said = f"{undefined[0]} ({name}): declared, but no compiled file defines it so"
        return (_diagnostic("binding_mismatch", said, files, *_declaration(name, files)),)
    if _SCHEMA.search(message) is None:
        return ()
    reason = _REASON.search(message)
    said = next(filter(None, reason.groups())) if reason else _SCHEMA.findall(message)[0]
    at = _REGISTERED_AT.search(message)
    if at is not None and at[1] in files:
        return (_diagnostic("binding_mismatch", said, files, at[1], int(at[2])),)
    return (_diagnostic("binding_mismatch", said, files, *_schema_line(message, files)),)


def _function_name(symbol: str) -> str:
    """`_Z11fill_floatsPflf` or `demo::fill_floats` -> `fill_floats`: the last part, if it can be read."""
    if symbol[:2] != "_Z":
        return symbol.partition("<")[0].rpartition("::")[2] or symbol
    rest = symbol.removeprefix("_ZNK").removeprefix("_ZN").removeprefix("_Z")
    name = symbol
    while (length := re.match(r"\d{1,3}", rest)) is not None:
        size = int(length[0])
        name, rest = rest[length.end() :][:size], rest[length.end() + size :]
    return name or symbol


def _declaration(name: str, files: Mapping[str, str]) -> tuple[str | None, int | None]:
    """Where the binding, or else another source, declares or calls `name`."""
    used = re.compile(rf"\b{re.escape(name)}\s*\(")
    for path in sorted(files, key=lambda p: (not p.startswith("torch-ext/"), p)):
        if path.endswith((".h", ".hpp", ".cuh", ".cpp", ".cc", ".cxx", ".cu")):
            found = used.search(files[path])
            if found is not None:
                return path, files[path].count("\n", 0, found.start()) + 1
    return None, None


def _schema_line(message: str, files: Mapping[str, str]) -> tuple[str | None, int | None]:
    """The line with the schema that torch points into, if one file holds it."""
    lines = message.split("\n")
    marks = [index for index, line in enumerate(lines) if "<--- HERE" in line]
    schema = lines[marks[0] - 1].strip() if marks and marks[0] > 0 else ""
    holders = [path for path, text in files.items() if schema and schema in text]
    if len(holders) != 1:
        return None, None
    return holders[0], files[holders[0]].partition(schema)[0].count("\n") + 1
