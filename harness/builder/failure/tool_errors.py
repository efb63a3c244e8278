"""Errors in what compilers, assemblers and linkers printed.

Notes, warnings and closing remarks are never errors.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from typing import Final, Literal

Tool = Literal["front_end", "ptxas", "assembler", "driver", "linker", "crash"]

_LINE_LIMIT: Final = 2_000
_LINES_LIMIT: Final = 50_000
_ERRORS_LIMIT: Final = 1_000

_TOOL = (
    r"(?:\S*/)?(?:[\w-]*(?:g\+\+|gcc|c\+\+)[\w.-]*"
    r"|cc1plus|collect2|ld[\w.]*|as|nvcc|nvlink|ptxas|cudafe\+\+|cicc|sh)"
)
_GXX = re.compile(
    r"(?P<file>[^\s:][^:]*):(?P<line>\d{1,9})(?::(?P<column>\d{1,9}))?: "
    r"(?P<severity>fatal error|internal compiler error|error|sorry, unimplemented|warning|note): (?P<text>.*)"
)
_EDG = re.compile(
    r"(?P<file>[^\s(][^(]*)\((?P<line>\d{1,9})\): "
    r"(?P<severity>catastrophic error|internal error|error|warning|remark|note)(?: #[\w-]+)?: (?P<text>.*)"
)
_PTXAS = re.compile(r"ptxas (?:\S+, line \d+; )?(?:error|fatal)\s*: (?P<text>.*)")
_ASSEMBLER = re.compile(r"(?P<file>[^\s:][^:]*):(?P<line>\d{1,9}): (?:Error|Fatal error): (?P<text>.*)")
_DRIVER = re.compile(
    rf"(?:{_TOOL}: (?:fatal |internal compiler )?error: |nv(?:cc|link) (?:error|fatal)\s*: "
    r"|(?:\S*\.s|\{standard input\}): Fatal error: "
    rf"|{_TOOL}: (?=out of memory|virtual memory))(?P<text>.*)"
)
_CRASH = re.compile(
    r"(?P<text>(?:terminate called after throwing an instance of|Segmentation fault|virtual memory).*)"
)
_LINKER = re.compile(
    r"(?=\S)(?P<before>.{0,500}?)(?P<text>undefined reference to .*|multiple definition of .*"
    r"|hidden symbol .*|relocation \S+ against .*|cannot find -l.*|cannot find \S+: No such .*)"
)
_LD = re.compile(r"(?:\S*/)?ld(?:\.\w+)?: (?!warning|.*: in function )(?P<text>.*)")
_IN_OBJECT = re.compile(r"(?:\S*/)?(?:ld(?:\.\w+)?: )?obj/(?P<file>\S+)/unit\.o: in function ")
# What a tool says when it gives up; the reason stands elsewhere.
_CLOSING = re.compile(
    r"ld returned \d+ exit status|final link failed|(?:all|some) warnings being treated as errors"
    r"|Ptx assembly aborted due to errors|too many errors"
)
_INCLUDED = re.compile(r"(?:In file included from| {3,}from) (?P<file>[^\s:][^:]*):(?P<line>\d{1,9})[:,]")
_REQUIRED = re.compile(
    r"(?P<file>[^\s:][^:]*):(?P<line>\d{1,9})(?::(?P<column>\d{1,9}))?: +"
    r"(?:recursively )?(?:required (?:from|by)|in 'constexpr')"
)
_DURING = re.compile(r"\s.*\bat line (?P<line>\d{1,9})(?: of (?P<file>\S+))?\s*$")
_LATER = re.compile(r"called from here|in expansion of macro|expanded from|required from")
_ECHO = re.compile(r" *\d+ \| (?P<text>.*)")
_OBJECT = re.compile(r"\bobj/(?P<file>[\w.+@,=/-]+)/unit\.o\b", re.A)
_OURS = ("torch/", "cuda/", "cuda-math/", "python/", "/usr/")


@dataclass
class ToolError:
    """One error as its tool reported it; `file` is where the tool saw it."""

    tool: Tool
    text: str
    """The tool's words, without the position."""
    index: int
    """Its line in the text, from 0."""
    file: str | None = None
    line: int | None = None
    column: int | None = None
    own: tuple[str, int, int | None] | None = None
    """Place in the project (file, line, column): this one, or who included, used or instantiated it."""
    echo: str | None = None
    """The source line as the tool printed it."""

    @property
    def outside(self) -> bool:
        """Seen in a header of torch's, CUDA's or the system's."""
        return self.file is not None and self.file.startswith(_OURS)


def tool_errors(text: str, project: Set[str]) -> list[ToolError]:
    """All errors in the cleaned output of one step, in order; `project`: its files' paths."""
    return list(_Reader(project).read(text.split("\n")[:_LINES_LIMIT]))[:_ERRORS_LIMIT]


class _Reader:
    """Walks over the lines, and remembers what was said about where headers come from."""

    def __init__(self, project: Set[str]) -> None:
        self._project = project
        self._chain: list[tuple[str, int, int | None]] = []
        self._required: list[tuple[str, int, int | None]] = []
        self._includers: dict[str, tuple[str, int, int | None]] = {}
        self._last: ToolError | None = None
        self._object: str | None = None

    def read(self, lines: list[str]) -> Iterator[ToolError]:
        for index, whole in enumerate(lines):
            line = whole[:_LINE_LIMIT].rstrip("\r")
            if self._context(line):
                continue
            error = self._error(line, index)
            if error is None:
                self._after(line)
            elif not _CLOSING.search(error.text):
                self._last = error
                yield error

    def _place(self, match: re.Match[str]) -> tuple[str, int, int | None]:
        groups = match.groupdict()
        column = groups.get("column")
        return _normal(groups["file"]), int(groups["line"]), int(column) if column else None

    def _first_own(self, places: list[tuple[str, int, int | None]]) -> tuple[str, int, int | None] | None:
        return next((place for place in places if place[0] in self._project), None)

    # --- before an error -----------------------------------------------------------------------

    def _context(self, line: str) -> bool:
        """Whether the line says where what follows comes from."""
        if included := _INCLUDED.match(line):
            if line.startswith("In"):
                self._chain = []
            self._chain.append(self._place(included))
            return True
        if place := _IN_OBJECT.match(line):
            self._object = place["file"]
            return True
        if _GXX.match(line) is None and (required := _REQUIRED.match(line)):
            self._required.append(self._place(required))
            return True
        return False

    # --- the error itself ----------------------------------------------------------------------

    def _error(self, line: str, index: int) -> ToolError | None:
        for pattern in (_GXX, _EDG):
            if match := pattern.match(line):
                return self._front_end(match, index)
        if match := _PTXAS.match(line):
            return ToolError("ptxas", match["text"], index)
        if match := _ASSEMBLER.match(line):
            place = self._place(match)
            own = place if place[0] in self._project else None
            return ToolError("assembler", match["text"], index, place[0], place[1], own=own)
        if match := _LINKER.match(line):
            found = _OBJECT.search(match["before"])
            return self._link_error(match["text"], index, found["file"] if found else self._object)
        if match := _LD.match(line):
            return self._link_error(match["text"], index, None)
        if match := _DRIVER.match(line):
            return ToolError("driver", match["text"], index)
        if match := _CRASH.match(line):
            return ToolError("crash", match["text"], index)
        return None

    @staticmethod
    def _link_error(text: str, index: int, file: str | None) -> ToolError:
        own = None if file is None else (file, 0, None)
        return ToolError("linker", _OBJECT.sub(r"\g<file>", text), index, file, own=own)

    def _front_end(self, match: re.Match[str], index: int) -> ToolError | None:
        place = self._place(match)
        if self._chain:
            includer = self._first_own(self._chain)
            if includer is not None:
                self._includers[place[0]] = includer
            self._chain = []
        if match["severity"] in {"warning", "remark", "note"}:
            self._used_by(match, place)
            return None
        required, self._required = self._required, []
        own = self._first_own([place, *required]) or self._includers.get(place[0])
        crash = match["severity"].startswith("internal")
        text = f"{match['severity']}: {match['text']}" if crash else match["text"]
        return ToolError("crash" if crash else "front_end", text, index, *place, own=own)

    def _used_by(self, match: re.Match[str], place: tuple[str, int, int | None]) -> None:
        """A note may tell which line of the project ran into the error before it."""
        error = self._last
        if match["severity"] != "note":
            self._required = []
            self._last = None
        elif error is None or place[0] not in self._project or not _LATER.search(match["text"]):
            return
        elif error.own is None or error.own == self._includers.get(error.file or ""):
            error.own = place

    # --- after it ------------------------------------------------------------------------------

    def _after(self, line: str) -> None:
        """The source line that g++ and nvcc print below, and nvcc's list of instantiations."""
        error = self._last
        if error is None or error.tool != "front_end":
            return
        if error.echo is None:
            echo = _ECHO.fullmatch(line)
            error.echo = echo["text"] if echo else line.removeprefix("  ") if line.startswith("  ") else ""
        elif error.own is None and (during := _DURING.match(line)):
            file = _normal(during["file"]) if during["file"] else error.file
            if file in self._project:
                error.own = (str(file), int(during["line"]), None)


def _normal(path: str) -> str:
    """`torch-ext/../kernels/a.h` -> `kernels/a.h`."""
    return posixpath.normpath(path.strip().strip('"')[:500])
