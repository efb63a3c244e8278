"""Parses what ninja, compilers, assemblers and linkers printed during a build. All of it is untrusted."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

from harness.builder.layout import SOURCE
from harness.builder.toolchain import Toolchain

TREE: Final = "liftbench-tree"
"""Name of the build tree in the sandbox's scratch directory."""
NO_ERROR_LINE: Final = "the compiler failed without an error line"
Tool = Literal["front_end", "ptxas", "driver", "linker", "crash"]
Place = tuple[str, int, int | None]
"""File, line from 1 (0 if unknown) and column."""

_LINE_LIMIT: Final = 2_000
_LINES_LIMIT: Final = 50_000
_ERRORS_LIMIT: Final = 1_000

_TOOL = (
    r"(?:\S*/)?(?:[\w-]*(?:g\+\+|gcc|c\+\+)[\w.-]*"
    r"|cc1plus|collect2|ld[\w.]*|as|nvcc|nvlink|ptxas|cudafe\+\+|cicc|sh)"
)
_AT = r"(?P<file>[^\s:][^:]*):(?P<line>\d{1,9})"
_GXX = re.compile(
    rf"{_AT}(?::(?P<column>\d{{1,9}}))?: "
    r"(?P<severity>(?i:fatal error|error)|internal compiler error|sorry, unimplemented|warning|note): "
    r"(?P<text>.*)"
)
_NVCC = re.compile(
    r"(?P<file>[^\s(][^(]*)\((?P<line>\d{1,9})\): "
    r"(?P<severity>catastrophic error|internal error|error|warning|remark|note)(?: #[\w-]+)?: (?P<text>.*)"
)
_PTXAS = re.compile(r"ptxas (?:\S+, line \d+; )?(?:error|fatal)\s*: (?P<text>.*)")
_DRIVER = re.compile(
    rf"(?:{_TOOL}: (?:fatal |internal compiler )?error: |nv(?:cc|link) (?:error|fatal)\s*: "
    r"|(?:\S*\.s|\{standard input\}): Fatal error: "
    rf"|{_TOOL}: (?=out of memory|virtual memory)"
    r"|(?=terminate called after throwing an instance of|Segmentation fault|virtual memory))(?P<text>.*)"
)
_LINKER = re.compile(
    r"(?=\S)(?P<before>.{0,500}?)(?P<text>undefined reference to .*|multiple definition of .*"
    r"|hidden symbol .*|relocation \S+ against .*|cannot find -l.*|cannot find \S+: No such .*)"
)
_LD = re.compile(r"(?:\S*/)?ld(?:\.\w+)?: (?!warning|.*: in function )(?P<text>.*)")
# A tool's closing remark; the reason stands elsewhere.
_CLOSING = re.compile(
    r"ld returned \d+ exit status|final link failed|(?:all|some) warnings being treated as errors"
    r"|Ptx assembly aborted due to errors|too many errors"
)
_OBJECT = re.compile(r"\bobj/(?P<file>[\w.+@,=/-]+)/unit\.o\b", re.A)
_IN_OBJECT = re.compile(r"(?:\S*/)?(?:ld(?:\.\w+)?: )?obj/(?P<file>\S+)/unit\.o: in function ")
# Lines that say how the compiler came to a place: includes and instantiations before it, callers after it.
_INCLUDED = re.compile(rf"(?:In file included from| {{3,}}from) {_AT}[:,]")
_REQUIRED = re.compile(
    rf"{_AT}(?::(?P<column>\d{{1,9}}))?: +(?:recursively )?(?:required (?:from|by)|in 'constexpr')"
)
_DURING = re.compile(r"\s.*\bat line (?P<line>\d{1,9})(?: of (?P<file>\S+))?\s*$")
_CALLER = re.compile(r"called from here|in expansion of macro|expanded from|required from")
_NOT_THE_PROJECT = ("torch/", "cuda/", "cuda-math/", "python/", "/usr/")


@dataclass
class ToolError:
    """One error as its tool reported it."""

    tool: Tool
    text: str
    index: int
    file: str | None = None
    line: int | None = None
    column: int | None = None
    own: Place | None = None
    """Place in the project: this one, or the line that included, used or instantiated it."""

    @property
    def outside(self) -> bool:
        """Whether it is in a header of torch, CUDA or the system."""
        return self.file is not None and self.file.startswith(_NOT_THE_PROJECT)


def tool_errors(text: str, project: Set[str]) -> list[ToolError]:
    """All errors in the cleaned output of one step, in order; `project` contains its files' paths."""
    return list(_Reader(project).read(text.split("\n")[:_LINES_LIMIT]))[:_ERRORS_LIMIT]


class _Reader:
    def __init__(self, project: Set[str]) -> None:
        self._project = project
        self._chain: list[Place] = []
        self._required: list[Place] = []
        self._includers: dict[str, Place] = {}
        """Header outside of the project -> the project's line that includes it."""
        self._last: ToolError | None = None
        self._object: str | None = None

    def read(self, lines: list[str]) -> Iterator[ToolError]:
        for index, whole in enumerate(lines):
            line = whole[:_LINE_LIMIT].rstrip("\r")
            if self._context(line):
                continue
            error = self._error(line, index)
            if error is None:
                self._instantiation(line)
            elif not _CLOSING.search(error.text):
                self._last = error
                yield error

    def _context(self, line: str) -> bool:
        """Whether the line says where what follows comes from."""
        if included := _INCLUDED.match(line):
            if line.startswith("In"):
                self._chain = []
            self._chain.append(_place(included))
            return True
        if place := _IN_OBJECT.match(line):
            self._object = place["file"]
            return True
        if _GXX.match(line) is None and (required := _REQUIRED.match(line)):
            self._required.append(_place(required))
            return True
        return False

    def _error(self, line: str, index: int) -> ToolError | None:
        if match := _GXX.match(line) or _NVCC.match(line):
            return self._front_end(match, index)
        if match := _PTXAS.match(line):
            return ToolError("ptxas", match["text"], index)
        if match := _LINKER.match(line) or _LD.match(line):
            before = match.groupdict().get("before")
            found = _OBJECT.search(before) if before is not None else None
            file = found["file"] if found else self._object if before is not None else None
            own = None if file is None else (file, 0, None)
            return ToolError("linker", _OBJECT.sub(r"\g<file>", match["text"]), index, file, own=own)
        if match := _DRIVER.match(line):
            return ToolError("driver", match["text"], index)
        return None

    def _front_end(self, match: re.Match[str], index: int) -> ToolError | None:
        place = _place(match)
        includer = self._first_own(self._chain)
        if includer is not None:
            self._includers[place[0]] = includer
        self._chain = []
        if match["severity"] in {"warning", "remark", "note"}:
            self._note(match, place)
            return None
        required, self._required = self._required, []
        own = self._first_own([place, *required]) or self._includers.get(place[0])
        crash = match["severity"].startswith("internal")
        text = f"{match['severity']}: {match['text']}" if crash else match["text"]
        return ToolError("crash" if crash else "front_end", text, index, *place, own=own)

    def _first_own(self, places: list[Place]) -> Place | None:
        return next((place for place in places if place[0] in self._project), None)

    def _note(self, match: re.Match[str], place: Place) -> None:
        """A note may name the line of the project that led to the error before it."""
        error = self._last
        if match["severity"] != "note":
            self._required = []
            self._last = None
        elif error is None or place[0] not in self._project or not _CALLER.search(match["text"]):
            return
        elif error.own is None or error.own == self._includers.get(error.file or ""):
            error.own = place

    def _instantiation(self, line: str) -> None:
        """nvcc lists instantiations below an error: `at line 3 of kernels/a.cu`."""
        error = self._last
        if error is None or error.tool != "front_end" or error.own is not None:
            return
        if during := _DURING.match(line):
            file = _normal(during["file"]) if during["file"] else error.file
            if file in self._project:
                error.own = (str(file), int(during["line"]), None)


def _place(match: re.Match[str]) -> Place:
    groups = match.groupdict()
    column = groups.get("column")
    return _normal(groups["file"]), int(groups["line"]), int(column) if column else None


def _normal(path: str) -> str:
    """`torch-ext/../kernels/a.h` -> `kernels/a.h`."""
    return posixpath.normpath(path.strip().strip('"')[:500])


_CONTEXT_LINES: Final = 12
_MESSAGE_LIMIT: Final = 3_000
_FAILED = re.compile(r"^FAILED: (?:\[code=(\d+)\] )?(\S+)", re.M)
_STATUS = re.compile(r"^\[\d+/\d+\] ", re.M)
_MEMORY: Final = (
    r"Killed|signal 9\b|virtual memory exhausted|Cannot allocate memory|out of memory|std::bad_alloc"
)
OUT_OF_MEMORY: Final = re.compile(_MEMORY)
_LIMIT: Final = re.compile(
    rf"{_MEMORY}|File size limit exceeded|File too large|No space left on device|Disk quota exceeded"
    r"|Resource temporarily unavailable"
)
_KILLED: Final = re.compile(
    r"\bKilled signal terminated program\b|\bdied due to signal (?:9|15)\b|^Killed$", re.M
)
_KILLED_CODES: Final = frozenset({128 + 9, 128 + 15})


@dataclass(frozen=True)
class Step:
    """A step of the build that failed."""

    output: str
    """The file that it should have made, such as obj/kernels/a.cu/unit.o."""
    code: int | None
    """The tool's exit code; None if this version of ninja does not print it."""
    text: str

    @property
    def linking(self) -> bool:
        return self.output.startswith("lib/")

    @property
    def killed(self) -> bool:
        """Whether a tool seems to have been killed; the project can imitate that."""
        return self.code in _KILLED_CODES or _KILLED.search(self.text) is not None

    @cached_property
    def _errors(self) -> list[ToolError]:
        return tool_errors(self.text, frozenset())

    @property
    def hit_limit(self) -> bool:
        """Whether a limit of the sandbox stopped a tool."""
        return any(e.tool in {"driver", "crash", "linker"} and _LIMIT.search(e.text) for e in self._errors)

    @property
    def message(self) -> str:
        """The first error with the lines that follow it."""
        if self._errors:
            at = self._errors[0].index
            text = "\n".join(self.text.split("\n")[at : at + _CONTEXT_LINES])
        else:
            text = f"{NO_ERROR_LINE}\n{self.text}"
        lines = [line for line in text.splitlines() if not line.startswith("ninja: ")]
        return "\n".join(lines[:_CONTEXT_LINES]).strip()[:_MESSAGE_LIMIT]


def failed_steps(output: str, toolchain: Toolchain, order: Sequence[str] = ()) -> list[Step]:
    """The failed steps of ninja, each once, in the order of `order` (outputs).

    Ninja prints steps as they end, which is a race with several jobs. Steps that are not in `order` count
    only if none of them is: a compiler's message may look like ninja's.
    """
    steps: dict[str, Step] = {}
    found = list(_FAILED.finditer(output))
    for index, failed in enumerate(found):
        block = output[failed.end() : found[index + 1].start() if index + 1 < len(found) else None]
        # The first line after FAILED is the command.
        block = block.partition("\n")[2].partition("\n")[2]
        status = _STATUS.search(block)
        block = block[: status.start()] if status else block
        code = int(failed[1][:9]) if failed[1] else None
        steps.setdefault(failed[2], Step(failed[2], code, clean(block, toolchain)))
    return [steps[name] for name in order if name in steps] or list(steps.values())


def clean(text: str, toolchain: Toolchain) -> str:
    """Remove the scratch directory, and shorten paths of torch, Python and CUDA."""
    text = re.sub(rf"^ninja: Entering directory [^\n]*{TREE}[^\n]*\n", "", text, flags=re.M)
    text = without_folder(text, f"/{TREE}/")
    text = re.sub(rf"(?<![\w./-]){SOURCE}/", "", text)
    names = {"torch": toolchain.torch_root, "python": toolchain.python_include}
    if toolchain.cuda is not None:
        names |= {"cuda": toolchain.cuda.root, "cuda-math": toolchain.cuda.math_include}
    names |= {headers.name: headers.root for headers in toolchain.fetched}
    for name, path in names.items():
        if path is not None:
            text = text.replace(f"{path}/", f"{name}/")
    return text


def without_folder(text: str, mark: str) -> str:
    """Remove, from every word that contains `mark`, everything up to and including it."""
    # No pattern: the part before the mark may be a word of a million characters.
    parts = text.split(mark)
    kept = [part[: 1 + max(part.rfind(c) for c in " \t\r\n\"'=`")] for part in parts[:-1]]
    return "".join([*kept, parts[-1]])


def step_seconds(ninja_log: str) -> dict[str, float]:
    """Wall times of the steps that succeeded, by output, from ninja's log."""
    steps: dict[str, float] = {}
    for line in ninja_log.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[0].isdecimal() and fields[1].isdecimal():
            steps[fields[3]] = max(0, int(fields[1]) - int(fields[0])) / 1000
    return steps


_NO_HEADER = re.compile(
    r"(?:[^\s:][^:\n]*:\d+(?::\d+)?: fatal error: )?([\w./+-]+): No such file or directory\s*$"
)


def missing_header(message: str) -> str | None:
    """The header that was not found, if the first line of `message` says so."""
    found = _NO_HEADER.match(message.partition("\n")[0][:_MESSAGE_LIMIT])
    return found[1] if found else None
