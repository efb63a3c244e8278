"""Diagnostics of a failed build: kind, file, line and advice.

A file is named only if a tool names it, or if it alone contains what the tool quotes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harness.builder.build_toml import key_lines
from harness.builder.compiler_output import NO_ERROR_LINE, OUT_OF_MEMORY, Step, ToolError, tool_errors
from harness.builder.symbol_classes import last_part
from harness.outcome import Cause
from harness.records import Diagnostic, DiagnosticKind, Finding, Target
from harness.text import shorten

DIAGNOSTICS_LIMIT: Final = 24
_MESSAGE_LIMIT: Final = 400
_SOURCE_LIMIT: Final = 200
_TOML: Final = "build.toml"
_TOML_LINES: Final = 1_000
_MISSING = re.compile(r": No such file or directory$|cannot open source file")
_ARCHITECTURE = re.compile(
    r"not supported on \.target|requires? \.target|not supported for \.target"
    r"|[Uu]nsupported gpu architecture|is not defined for option 'gpu-name'"
    r"|target specific option mismatch|requires PTX ISA"
)
# An #error or static_assert of the project about the architecture.
_GUARD = re.compile(r"static assertion failed|static_assert|#error")
_ARCHITECTURE_WORDS = re.compile(
    r"\bsm_?\d\d|\bcompute_\d\d|__CUDA_ARCH__|compute capability|\barchitectures?\b|\bAVX|\bAMX", re.I
)
_FLAG = re.compile(r"unrecognized (?:command-line option|argument)|bad value .* for|Unknown option")
_DEVICE_LINK = re.compile(r"Unresolved extern|[Uu]ndefined reference|[Mm]ultiple definition")
_PTX_TEXT = re.compile(
    r"known instruction|Unknown modifier|[Pp]arsing error|syntax error|Unexpected instruction"
)
_INSTRUCTION = re.compile(r"(?:Instruction|Feature|instruction:?) '([\w.:]+)'|modifier '([\w.:]+)'")
# Headers whose errors mean that a function does not fit its operator's schema.
_BINDING_HEADER = re.compile(
    r"torch/include/(?:torch/library\.h|torch/csrc/stable/|torch/headeronly/|ATen/core/boxing/"
    r"|ATen/core/op_registration/|ATen/core/(?:ivalue|function_schema|dispatch/)|c10/util/(?:Metaprog|TypeList))"
)
_REGISTRATION = re.compile(r"\.(?:impl|def|fallback)\s*\(|TORCH_(?:LIBRARY|BOX|FN)|REGISTER_EXTENSION")
_COMPLETE = re.compile(r"[;{}]\s*$|^\s*REGISTER_EXTENSION\(.*\)\s*$")  # that macro needs no semicolon
_REDECLARED = re.compile(r"ambiguating new declaration|conflicting declaration")
_FORGOTTEN = re.compile(r"expected |missing terminating|stray |unterminated ")


def diagnose(
    steps: Sequence[Step], files: Mapping[str, str], sources: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    """The first error of each file, in the order of `steps`.

    `files`: the project's texts by path; `sources`: output of a step -> the file that it compiles.
    """
    found: dict[str | None, Diagnostic] = {}
    for step in steps:
        unit = sources.get(step.output)
        errors = tool_errors(step.text, files.keys())
        for error in errors:
            file, line, column = _place(error, files, unit, step.linking)
            if file in found:
                continue
            elsewhere = f" (in {error.file}:{error.line})" if error.outside and error.file != file else ""
            found[file] = Diagnostic(
                kind=_kind(error, file, line, files, step.linking),
                message=one_line(error.text + elsewhere),
                file=file,
                line=line,
                column=column,
                source=source_line(files, file, line),
            )
        if not errors:
            message = "the linker failed without an error line" if step.linking else NO_ERROR_LINE
            kind: DiagnosticKind = "linker" if step.linking else "other"
            found.setdefault(unit, Diagnostic(kind=kind, message=message, file=unit))
    return tuple(found.values())[:DIAGNOSTICS_LIMIT]


def _place(
    error: ToolError, files: Mapping[str, str], unit: str | None, linking: bool
) -> tuple[str | None, int | None, int | None]:
    if error.own is not None:
        return error.own[0], error.own[1] or None, error.own[2] or None
    if error.outside:
        return error.file, error.line, error.column
    if error.tool == "ptxas":
        return (*_instruction_place(error.text, files, unit), None)
    if error.tool == "driver":
        words = re.findall(r"'([^']+)'", error.text)
        lines = files.get(_TOML, "").split("\n", _TOML_LINES)[:_TOML_LINES] if words else []
        line = next((n for n, text in enumerate(lines, 1) if all(w in text for w in words)), None)
        if line is not None:
            return _TOML, line, None
    return (None if linking else unit), None, None


def _instruction_place(
    message: str, files: Mapping[str, str], unit: str | None
) -> tuple[str | None, int | None]:
    """ptxas names lines of a generated file: the line of the project that alone contains the instruction."""
    named = _INSTRUCTION.search(message)
    word = named[1] or named[2] if named else None
    if word is not None:
        holders = [path for path, text in files.items() if word in text and not path.endswith(".toml")]
        file = unit if unit in holders else holders[0] if len(holders) == 1 else None
        if file is not None:
            return file, files[file].partition(word)[0].count("\n") + 1
    return unit, None


def _kind(
    error: ToolError, file: str | None, line: int | None, files: Mapping[str, str], linking: bool
) -> DiagnosticKind:
    tool, text = error.tool, error.text
    if tool in {"driver", "crash", "linker"} and OUT_OF_MEMORY.search(text):
        return "out_of_memory"
    device = tool in {"driver", "ptxas"} and _DEVICE_LINK.search(text) is not None
    if tool == "linker" or device or (linking and tool == "driver"):
        return "linker"
    if _ARCHITECTURE.search(text):
        return "wrong_arch"
    if tool in {"driver", "crash"}:
        return "flag_refused" if _FLAG.search(text) else "other"
    if _GUARD.search(text) and _ARCHITECTURE_WORDS.search(text):
        return "wrong_arch"
    if tool == "ptxas":
        return "syntax" if _PTX_TEXT.search(text) else "other"
    if _MISSING.search(text):
        return "missing_header"
    return "binding_mismatch" if _in_binding(error, file, line, files) else "syntax"


def _in_binding(error: ToolError, file: str | None, line: int | None, files: Mapping[str, str]) -> bool:
    """Whether the error is about the registration of an operator, or the function that implements it."""
    if error.tool != "front_end" or file is None or _FORGOTTEN.match(error.text):
        return False
    if error.outside and error.file is not None and not _BINDING_HEADER.match(error.file):
        return False
    if not error.outside and _REDECLARED.search(error.text):
        return file.startswith("torch-ext/")
    lines = files.get(file, "").split("\n")
    last = line or 0
    statement = ""
    for number in range(last, max(0, last - 4), -1):
        text = lines[number - 1] if number <= len(lines) else ""
        if statement and (not text.strip() or _COMPLETE.search(text)):
            break
        statement = f"{text}\n{statement}"
    return _REGISTRATION.search(statement) is not None


def header_advice(header: str, files: Mapping[str, str], target: Target, torch_root: Path | None) -> str:
    """What to do about a header that was not found; `files` is the whole project."""
    name = header.rpartition("/")[2]
    same = sorted(path for path in files if path.rpartition("/")[2] == name)
    if same:
        return (
            f"{same[0]} is in the project, but kernel-builder copies listed files only: is it listed in a "
            "`src` of build.toml, and its folder in `include`?"
        )
    if re.match(r"(cutlass|cute)/", header):
        return 'CUTLASS is a dependency: name it in the kernel\'s `depends`, such as "cutlass_3_6"'
    cuda = r"cuda|cooperative_groups|cub/|thrust/|mma\.h|nvtx|(ATen|c10)/cuda/|torch/csrc/.*shim_cuda"
    if target == "cpu" and re.match(cuda, header):
        return 'the cpu target has no CUDA headers: only a kernel with `backend = "cuda"` may include them'
    elsewhere: list[str] = []
    if torch_root is not None and re.fullmatch(r"[\w.+-]+", name):
        root = torch_root / "include"
        elsewhere = [path.relative_to(root).as_posix() for path in root.rglob(name)]
        elsewhere.sort(key=lambda path: (-difflib.SequenceMatcher(None, header, path).ratio(), path))
    if elsewhere:
        return f"torch has no {header}; it has {', '.join(f'<{path}>' for path in elsewhere[:3])}"
    return "no file of that name is in the project, in torch, in CUDA or in the C++ library"


def one_line(text: str) -> str:
    """The first line, with a limited length."""
    return shorten(text.strip().partition("\n")[0].strip(), _MESSAGE_LIMIT)


def source_line(files: Mapping[str, str], file: str | None, line: int | None) -> str | None:
    """Line `line` (from 1) of a project's file, if it exists."""
    if file is None or line is None or line < 1:
        return None
    lines = files.get(file, "").split("\n")
    return shorten(lines[line - 1].rstrip(), _SOURCE_LIMIT) if line <= len(lines) else None


_KINDS: Final[dict[Cause, DiagnosticKind]] = {
    Cause.BAD_BUILD_TOML: "build_toml",
    Cause.BAD_LAYOUT: "layout",
    Cause.NO_BACKEND: "build_toml",
    Cause.REFUSED_FLAG: "flag_refused",
}
_FILE_LINE = re.compile(r"([\w.+@,=/-]+):(\d{1,7}): ", re.A)
_TOML_LINE = re.compile(r"line (\d{1,7}): ")
_PARSER_PLACE = re.compile(r"at line (\d{1,7})(?:, column (\d{1,7}))?")
_TABLE = re.compile(r"(?:\b(src|include|cxx-flags|cuda-flags|cuda-capabilities) of )?\[([\w.-]+)\]")
_UNKNOWN_KEY = re.compile(r"[Uu]nknown field [`'\"]?([\w-]+)")
_QUOTED = re.compile(r"\"([^\"\n]{1,400})\"|'([^'\n]{1,400})'")


def refusal(finding: Finding, files: Mapping[str, str]) -> Diagnostic:
    """The diagnostic of a project that was refused before any compiler ran."""
    message = finding.message.partition("\n")[0].removeprefix("build.toml is not valid: ")
    named = _FILE_LINE.match(message)
    if named is not None and named[1] in files:
        syntax = re.match(r"(?:Syntax|Indentation|Tab)Error: ", message[named.end() :])
        kind: DiagnosticKind = "syntax" if syntax else "layout"
        return _diagnostic(kind, message[named.end() :], files, named[1], int(named[2]))
    kind = "wrong_arch" if "runs on sm_90" in message else _KINDS.get(finding.cause, "other")
    line, column = _toml_line(message, files.get(_TOML, "")), None
    if advised := _TOML_LINE.match(message):
        message, line = message[advised.end() :], int(advised[1])
    elif at := _PARSER_PLACE.search(message):
        message, line, column = message[: at.start()].rstrip(" (") or message, int(at[1]), at[2]
    return _diagnostic(kind, message, files, _TOML if _TOML in files else None, line, column)


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


def _toml_line(message: str, toml: str) -> int | None:
    """The line, from the named table on, with what the message quotes; else that of its key or table."""
    tables = {".".join(map(str, path)): line for path, line in key_lines(toml).items()}
    place, unknown = _TABLE.search(message), _UNKNOWN_KEY.search(message)
    head = tables.get(place[2]) if place else 1
    if head is None:
        return None
    below = list(enumerate(toml.split("\n"), 1))[head - 1 :]
    quotes = [a or b for a, b in _QUOTED.findall(message)]
    words = [word for quote in quotes for word in (quote, *reversed(quote.split()))]  # values before options
    quoted = (n for word in words for n, line in below if f'"{word}"' in line or f"'{word}'" in line)
    keys = [place[1] if place else None, unknown[1] if unknown else None]
    keys += ["cuda-capabilities"] if "cuda-capabilities" in message else []
    keyed = (n for key in keys if key for n, line in below if re.match(rf"\s*{key}\s*=", line))
    return next(quoted, None) or next(keyed, None) or (head if place else None)


_UNDEFINED = re.compile(r"undefined symbol: ([^\s(]{1,500})")
_SCHEMA = re.compile(
    r"doesn't match the expected function schema|<--- HERE"
    r"|\baoti_torch_library_\w+\([^)\n]{0,400}\) API call failed"
    r"|Tried to register (?:an operator|multiple)"
)
_REGISTERED_AT = re.compile(r"registered at (?:source/)?([\w.+@,=/-]{1,300}):(\d{1,7})", re.A)
_REASON = re.compile(r"^ *reason: (.+)$|^(unknown type specifier[^.\n]*)", re.M)


def load_failure(message: str, files: Mapping[str, str]) -> tuple[Diagnostic, ...]:
    """What a failed import says about the binding; empty if it is about something else."""
    undefined = _UNDEFINED.search(message)
    if undefined is not None:
        symbol = undefined[1].rstrip(":")
        name = last_part(symbol.partition("<")[0]) or symbol
        text = f"undefined symbol: {symbol} ({name}): declared, but no compiled file defines it so"
        return (_diagnostic("binding_mismatch", text, files, *_declaration(name, files)),)
    if _SCHEMA.search(message) is None:
        return ()
    reason = _REASON.search(message)
    text = reason[1] or reason[2] if reason else _SCHEMA.findall(message)[0]
    at = _REGISTERED_AT.search(message)
    if at is not None and at[1] in files:
        return (_diagnostic("binding_mismatch", text, files, at[1], int(at[2])),)
    return (_diagnostic("binding_mismatch", text, files, *_schema_line(message, files)),)


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
    """The line with the schema that torch points into, if exactly one file contains it."""
    lines = message.split("\n")
    marks = [index for index, line in enumerate(lines) if "<--- HERE" in line]
    schema = lines[marks[0] - 1].strip() if marks and marks[0] > 0 else ""
    holders = [path for path, text in files.items() if schema and schema in text]
    if len(holders) != 1:
        return None, None
    return holders[0], files[holders[0]].partition(schema)[0].count("\n") + 1
