"""What a failed build says: the first error of each file, its place, its line and its kind.

A place is one that a tool named, or the line of the project that alone holds the refused instruction; a
Diagnostic never blames a file by guessing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from harness.builder.failure.log import OUT_OF_MEMORY, Step
from harness.builder.failure.tool_errors import ToolError, tool_errors
from harness.records import Diagnostic, DiagnosticKind

DIAGNOSTICS_LIMIT: Final = 24
_MESSAGE_LIMIT: Final = 400
_SOURCE_LIMIT: Final = 200
_NAMES_SHOWN: Final = 6
_TOML_LINES: Final = 1_000
"""Of build.toml, in which a flag is looked for: once for each error of a compiler's driver."""

_MISSING = re.compile(r": No such file or directory$|cannot open source file")
_ARCHITECTURE = re.compile(
    r"not supported on \.target|requires? \.target|not supported for \.target"
    r"|[Uu]nsupported gpu architecture|is not defined for option 'gpu-name'"
    r"|target specific option mismatch|requires PTX ISA"
)
# A project's own #error or static_assert about the architecture.
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
# Headers in which a function that does not fit its operator's schema is found out.
_BINDING_HEADER = re.compile(
    r"torch/include/(?:torch/library\.h|torch/csrc/stable/|torch/headeronly/|ATen/core/boxing/"
    r"|ATen/core/op_registration/|ATen/core/(?:ivalue|function_schema|dispatch/)|c10/util/(?:Metaprog|TypeList))"
)
_REGISTRATION = re.compile(r"\.(?:impl|def|fallback)\s*\(|TORCH_(?:LIBRARY|BOX|FN)|REGISTER_EXTENSION")
_COMPLETE = re.compile(r"[;{}]\s*$|^\s*REGISTER_EXTENSION\(.*\)\s*$")  # that macro needs no semicolon
_REDECLARED = re.compile(r"ambiguating new declaration|conflicting declaration")
_QUOTED = re.compile(r"'([^']+)'")
_FORGOTTEN = re.compile(r"expected |missing terminating|stray |unterminated ")


def diagnose(
    steps: Sequence[Step], files: Mapping[str, str], sources: Mapping[str, str]
) -> tuple[Diagnostic, ...]:
    """The first error of each file, in the order of `steps`.

    `files`: the project's texts by path; `sources`: a step's output -> the file that it compiles.
    """
    found: dict[str | None, Diagnostic] = {}
    for step in steps:
        unit = sources.get(step.output)
        errors = tool_errors(step.text, files.keys())
        for error in errors:
            reading = _Reading(error, files, unit, step.linking)
            if reading.file not in found:
                found[reading.file] = reading.diagnostic()
        if not errors:
            message = "the linker failed without an error line" if step.linking else _SILENT
            found.setdefault(
                unit, Diagnostic(kind="linker" if step.linking else "other", message=message, file=unit)
            )
    return tuple(found.values())[:DIAGNOSTICS_LIMIT]


_SILENT: Final = "the compiler failed without an error line"
_Place = tuple[str | None, int | None, int | None]


class _Reading:
    """One error, seen with the project."""

    def __init__(self, error: ToolError, files: Mapping[str, str], unit: str | None, linking: bool) -> None:
        self._error = error
        self._files = files
        self._linking = linking
        self.file, self._line, self._column = self._place(unit)

    def _place(self, unit: str | None) -> _Place:
        error = self._error
        if error.own is not None:
            return error.own[0], error.own[1] or None, error.own[2] or None
        if error.outside:
            return error.file, error.line, error.column
        if error.tool == "ptxas":
            return self._of_instruction(unit)
        if error.tool == "driver" and (line := self._of_flag()):
            return "build.toml", line, None
        return (None if self._linking else unit), None, None

    def _of_flag(self) -> int | None:
        """The line of build.toml that holds all that a compiler's driver quotes."""
        words = _QUOTED.findall(self._error.text)
        lines = self._files.get("build.toml", "").split("\n", _TOML_LINES)[:_TOML_LINES] if words else []
        return next((n for n, line in enumerate(lines, 1) if all(w in line for w in words)), None)

    def _of_instruction(self, unit: str | None) -> _Place:
        """ptxas names lines of a generated file; the project's line only if one file holds the text."""
        named = _INSTRUCTION.search(self._error.text)
        word = next(filter(None, named.groups()), None) if named else None
        if word is not None:
            holders = [
                path for path, text in self._files.items() if word in text and not path.endswith(".toml")
            ]
            holders = [unit] if unit in holders else holders
            if len(holders) == 1 and holders[0] is not None:
                before = self._files[holders[0]].partition(word)[0]
                return holders[0], before.count("\n") + 1, None
        return unit, None, None

    # --- the record ----------------------------------------------------------------------------

    def diagnostic(self) -> Diagnostic:
        """The record."""
        error = self._error
        text = error.text
        if error.outside and error.file != self.file:
            text = f"{text} (in {error.file}:{error.line})"
        return Diagnostic(
            kind=self._kind(),
            message=one_line(text),
            file=self.file,
            line=self._line,
            column=self._column,
            source=self._source(),
        )

    def _source(self) -> str | None:
        """The project's own text, since nvcc prints it with macros expanded; else what the tool showed."""
        own = source_line(self._files, self.file, self._line)
        if own is None and self._error.own is None and self._error.echo and self._line is not None:
            return _shown(self._error.echo)
        return own

    def _kind(self) -> DiagnosticKind:
        error, text = self._error, self._error.text
        if error.tool in {"driver", "crash", "linker"} and OUT_OF_MEMORY.search(text):
            return "out_of_memory"
        device = error.tool in {"driver", "ptxas"} and _DEVICE_LINK.search(text) is not None
        if error.tool == "linker" or device or (self._linking and error.tool == "driver"):
            return "linker"
        if error.tool in {"driver", "crash"}:
            if _ARCHITECTURE.search(text):
                return "wrong_arch"
            return "flag_refused" if _FLAG.search(text) else "other"
        if _ARCHITECTURE.search(text) or (_GUARD.search(text) and _ARCHITECTURE_WORDS.search(text)):
            return "wrong_arch"
        if error.tool == "ptxas":
            return "syntax" if _PTX_TEXT.search(text) else "other"
        if _MISSING.search(text):
            return "missing_header"
        return "binding_mismatch" if self._in_binding() else "syntax"

    def _in_binding(self) -> bool:
        """The error is about how an operator is registered, or which function implements it."""
        error = self._error
        if error.tool != "front_end" or self.file is None or _FORGOTTEN.match(error.text):
            return False
        if error.outside and error.file is not None:
            return _BINDING_HEADER.match(error.file) is not None and self._registers()
        if _REDECLARED.search(error.text):
            return self.file.startswith("torch-ext/")
        return self._registers()

    def _registers(self) -> bool:
        """The statement at the place registers something."""
        lines = self._files.get(self.file or "", "").split("\n")
        last = self._line or 0
        statement = ""
        for number in range(last, max(0, last - 4), -1):
            line = lines[number - 1] if number <= len(lines) else ""
            if statement and (not line.strip() or _COMPLETE.search(line)):
                break
            statement = f"{line}\n{statement}"
        return _REGISTRATION.search(statement) is not None


# --- builds that a limit stopped -----------------------------------------------------------------


def stopped(kind: DiagnosticKind, message: str, unfinished: Sequence[str]) -> Diagnostic:
    """For a build that ended early; `unfinished`: the files whose objects it had not made."""
    file = unfinished[0] if len(unfinished) == 1 else None
    return Diagnostic(kind=kind, message=one_line(message), file=file)


def unfinished_text(unfinished: Sequence[str]) -> str:
    """Which files were being compiled, or waited for it."""
    if not unfinished:
        return "every file had been compiled"
    more = len(unfinished) - _NAMES_SHOWN
    names = ", ".join(unfinished[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"not finished: {names}"


def unfinished_sources(
    sources: Mapping[str, str], finished: Iterable[str], failed: Iterable[Step]
) -> tuple[str, ...]:
    """Files whose step neither succeeded nor failed for a reason of its own."""
    ended = {*finished, *(step.output for step in failed)}
    return tuple(source for output, source in sources.items() if output not in ended)


# --- text ------------------------------------------------------------------------------------------


def one_line(text: str) -> str:
    """The first line, bounded."""
    line = text.strip().partition("\n")[0].strip()
    return line if len(line) <= _MESSAGE_LIMIT else line[: _MESSAGE_LIMIT - 3] + "..."


def source_line(files: Mapping[str, str], file: str | None, line: int | None) -> str | None:
    """Line `line` (from 1) of a project's file, or None."""
    if file is None or line is None or line < 1:
        return None
    lines = files.get(file, "").split("\n")
    return _shown(lines[line - 1]) if line <= len(lines) else None


def _shown(line: str) -> str:
    line = line.rstrip()
    return line if len(line) <= _SOURCE_LIMIT else line[: _SOURCE_LIMIT - 3] + "..."
