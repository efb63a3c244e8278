"""Parses PTX modules (PTX ISA 9.0, chapters 4, 5 and 11): variables, functions, statements, lines."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field

SIZES = {
    "pred": 1, "b8": 1, "u8": 1, "s8": 1, "b16": 2, "u16": 2, "s16": 2, "f16": 2, "bf16": 2, "b32": 4,
    "u32": 4, "s32": 4, "f32": 4, "tf32": 4, "f16x2": 4, "bf16x2": 4, "b64": 8, "u64": 8, "s64": 8, "f64": 8,
    "b128": 16, "f32x2": 8, "e4m3": 1, "e5m2": 1, "e4m3x2": 2, "e5m2x2": 2,
}  # fmt: skip
"""Bytes of every fundamental and packed type (5.2)."""
_SPACE = r"global|const|shared|local|param"

_NAME = r"[A-Za-z_$%][\w$]*"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_ITEM = re.compile(r'(?:[^;{}"]|"(?:[^"\\]|\\.)*")*')
_BODY = re.compile(
    rf"""\s*(?:
      (?P<loc>\.loc\s+(?P<file>\d+)\s+(?P<row>\d+)(?:[^\n]*inlined_at\s+(?P<into>\d+)\s+(?P<at>\d+))?[^\n]*)
    | (?P<open>\{{) | (?P<close>\}}) | (?P<empty>;)
    | (?P<label>{_NAME})\s*:(?!:)
    | (?P<statement>(?:"(?:[^"\\]|\\.)*"|\{{[^{{}};]*\}}|[^;{{}}"])+);
    )""",
    re.VERBOSE,
)
_GUARD = re.compile(r"@(!?)\s*([\w$%]+)\s+")
_VARIABLE = re.compile(
    rf"(?P<attributes>.*?)\.(?P<space>{_SPACE})\b.*?"
    rf"\.(?:(?P<vector>v[24])\s*\.)?(?P<type>[a-z]+\d*)\s+(?P<names>{_NAME}[^=]*)(?:=(?P<initial>.*))?$",
    re.DOTALL,
)
_PARAMETER = re.compile(
    rf"\.param\s*(?:\.align\s+(?P<align>\d+)\s*)?\.(?P<type>[a-z]+\d*)"
    rf"(?:\s*\.ptr[^%$\w]*(?:\.?(?:{_SPACE}|align\s+\d+)\s*)*)?\s+(?P<name>{_NAME})"
    r"\s*(?:\[(?P<count>\d*)\])?$"
)
_FUNCTION = re.compile(
    rf"\.(?P<kind>entry|func)\b\s*(?:\((?P<results>[^)]*)\))?\s*(?P<name>{_NAME})\s*"
    r"(?:\((?P<parameters>[^)]*)\))?(?P<attributes>.*)$",
    re.DOTALL,
)


class CannotEmulate(Exception):
    """A kernel uses something that the emulated GPU does not implement.

    `instruction` is the whole text of the statement, `line` its line in the PTX.
    """

    def __init__(self, instruction: str, kernel: str = "", line: int = 0) -> None:
        self.instruction, self.kernel, self.line = instruction, kernel, line
        where = f" in {kernel} (line {line} of its PTX)" if kernel else ""
        super().__init__(f"the emulated GPU does not implement `{instruction}`{where}")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a state space (5.1): size and alignment in bytes."""

    name: str
    space: str
    type: str
    size: int
    align: int
    initial: str | None = None
    external: bool = False


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of a body.

    `kind` is `label` (`text` is its name), `directive` or `instruction`. `line` is the line in the PTX,
    `file` and `row` the place in the CUDA source that `.loc` names (or 0). `blocks` are numbers of the blocks
    in braces that it stands in, outermost first; 0 is the body.
    """

    kind: str
    text: str
    line: int
    file: int
    row: int
    blocks: tuple[int, ...]

    @property
    def guard(self) -> tuple[bool, str] | None:
        """(negated, predicate register) of `@p` or `@!p` (6.3)."""
        found = _GUARD.match(self.text)
        return (found[1] == "!", found[2]) if found else None

    @property
    def mnemonic(self) -> str:
        """Opcode with all modifiers, such as `ld.global.nc.v4.u32`."""
        return _GUARD.sub("", self.text, count=1).partition(" ")[0]

    @property
    def operands(self) -> list[str]:
        """Operands, cut at commas outside of brackets and braces."""
        return split(_GUARD.sub("", self.text, count=1).partition(" ")[2])


@dataclass(slots=True)
class Function:
    """An `.entry` or `.func`: parameters in order, and the body, which is parsed when it is first needed."""

    name: str
    kind: str
    results: list[Variable]
    parameters: list[Variable]
    attributes: str
    body: list[Statement] | None = field(repr=False)

    def dimensions(self, directive: str) -> tuple[int, int, int] | None:
        """The three numbers of `.maxntid`, `.reqntid` or `.reqnctapercluster` (11.4); 1 where left out."""
        found = re.search(rf"\.{directive}\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", self.attributes)
        return (int(found[1]), int(found[2] or 1), int(found[3] or 1)) if found else None


class Module:
    """One PTX module. `files` maps the numbers of `.file` to paths."""

    def __init__(self, text: str) -> None:
        self.files = {int(number): path for number, path in _FILE.findall(text)}
        self.variables: dict[str, Variable] = {}
        self.functions: dict[str, Function] = {}
        self._text = _blank(re.split(r"\n\t?\.section", text, maxsplit=1)[0])
        self._line_starts = [0] + [found.end() for found in re.finditer("\n", self._text)]
        self._parse()

    def _parse(self) -> None:
        at, text = 0, self._text
        while at < len(text):
            head = _ITEM.match(text, at)
            assert head is not None
            end = head.end()
            stop = text[end] if end < len(text) else ";"
            if re.search(r"\.(entry|func)\b", head[0]):
                after = _closing(text, end) if stop == "{" else end + 1
                self._function(head[0], end, after if stop == "{" else None)
            else:
                after = text.find(";", end) + 1 or len(text) if stop == "{" else end + 1
                for one in variables(" ".join(text[at : after - 1].split())):
                    self.variables[one.name] = one
            at = after

    def _function(self, head: str, start: int, end: int | None) -> None:
        found = _FUNCTION.search(head)
        if found is None:
            raise CannotEmulate(" ".join(head.split()))
        name = found["name"]
        if end is None and name in self.functions:
            return
        body = None if end is None else self._statements(start + 1, end - 1)
        results, given = (_parameters(found[which] or "") for which in ("results", "parameters"))
        self.functions[name] = Function(name, found["kind"], results, given, found["attributes"], body)

    def _statements(self, at: int, end: int) -> list[Statement]:
        out: list[Statement] = []
        place, opened = (0, 0), 0
        blocks: tuple[int, ...] = (0,)
        while (found := _BODY.match(self._text, at, end)) is not None:
            at, kind = found.end(), found.lastgroup or ""
            if found["loc"]:
                place = (int(found["file"]), int(found["row"]))
                if found["into"] and "/include/" in self.files.get(place[0], ""):  # a header of the toolkit
                    place = (int(found["into"]), int(found["at"]))
            elif kind == "open":
                opened += 1
                blocks = (*blocks, opened)
            elif kind == "close":
                blocks = blocks[:-1]
            elif kind != "empty":
                text = " ".join(found[kind].split())
                if kind == "statement":
                    kind = "directive" if text.startswith(".") else "instruction"
                line = bisect_right(self._line_starts, found.start(found.lastgroup or 0))
                out.append(Statement(kind, text, line, *place, blocks))
        if self._text[at:end].strip():
            raise CannotEmulate(" ".join(self._text[at : at + 80].split()))
        return out


def variables(text: str) -> list[Variable]:
    """The variables that one declaration declares; none for directives that declare nothing."""
    if not re.search(rf"\.({_SPACE})\b", text):
        return []
    found = _VARIABLE.match(text)
    if found is None or found["type"] not in SIZES:
        raise CannotEmulate(text)
    unit = SIZES[found["type"]] * int((found["vector"] or "v1")[1:])
    aligned = re.search(r"\.align\s+(\d+)", text)
    align = int(aligned[1]) if aligned else unit
    initial, external = found["initial"] and found["initial"].strip(), ".extern" in found["attributes"]
    out = []
    for declared in split(found["names"]):
        name = re.match(_NAME, declared)
        if name is None:
            raise CannotEmulate(text)
        size = unit
        for extent in re.findall(r"\[\s*(\d*)\s*\]", declared):
            size *= int(extent) if extent else len(split((initial or "").strip(" {}")))
        out.append(Variable(name[0], found["space"], found["type"], size, align, initial, external))
    return out


def bits(type: str) -> str:
    """The untyped bits of a type's width."""
    return type if type == "pred" else f"b{8 * SIZES[type]}"


def elements(operand: str) -> list[str]:
    """The registers of `{a, b}`, or the one that stands alone."""
    return [one.strip() for one in operand[1:-1].split(",")] if operand.startswith("{") else [operand]


def split(text: str) -> list[str]:
    """Cuts at commas outside of brackets, braces and parentheses."""
    out, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        if sign in "{[(":
            depth += 1
        elif sign in "}])":
            depth -= 1
        elif sign == "," and depth == 0:
            out.append(text[start:at].strip())
            start = at + 1
    last = text[start:].strip()
    return [*out, last] if last else out


def _parameters(text: str) -> list[Variable]:
    out = []
    for one in split(" ".join(text.split())):
        found = _PARAMETER.match(one)
        if found is None or found["type"] not in SIZES:
            raise CannotEmulate(one)
        unit = SIZES[found["type"]]
        size = unit * int(found["count"] or 1)
        out.append(Variable(found["name"], "param", found["type"], size, int(found["align"] or unit)))
    return out


def _blank(text: str) -> str:
    """Text without comments and without directives about debugging, with the same lines."""
    text = _COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    return re.sub(r"^\s*\.(?:version|target|address_size|file|pragma)\b[^\n]*$", "", text, flags=re.M)


def _closing(text: str, at: int) -> int:
    """Position after the brace that closes the one at `at`."""
    depth = 0
    for found in re.compile(r"[{}]").finditer(text, at):
        depth += 1 if found[0] == "{" else -1
        if depth == 0:
            return found.end()
    raise CannotEmulate(text[at : at + 80])
