"""Prints the size and shape of the code base and exits 1 where a bound is exceeded: `make size`."""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import quantiles

ROOT = Path(__file__).resolve().parent.parent
SHIPPED = ("harness", "sandboxes")
LAZY = "harness/cli/main.py"
"""Imports each command when it is invoked, so its imports inside functions are not counted."""
EMULATOR = "harness/device/emulated"
GENERATED = ("decisions", "generated")
"""Folders below docs/ that are not hand-written pages."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Bound:
    """One printed figure; `most` and `least` are the limits, None where it is only printed."""

    name: str
    value: float
    most: float | None = None
    least: float | None = None

    @property
    def broken(self) -> bool:
        """Whether the value is outside its limits."""
        over = self.most is not None and self.value > self.most
        return over or (self.least is not None and self.value < self.least)

    def __str__(self) -> str:
        limit = "" if self.most is None else f"at most {self.most:,g}"
        limit = limit if self.least is None else f"at least {self.least:,g}"
        mark = "  <- exceeded" if self.broken else ""
        return f"{self.name:<46} {self.value:>9,g}  {limit}{mark}".rstrip()


@dataclass(frozen=True)
class Module:
    """One Python file of the shipped packages."""

    path: Path

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text()

    @property
    def name(self) -> str:
        """Path below the root of the repository."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def dotted(self) -> str:
        """Name in an import statement."""
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax tree."""
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Every function and method, nested ones included."""
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, Function))

    @property
    def lines(self) -> int:
        """Comments and blank lines included."""
        return len(self.text.splitlines())

    @property
    def inner_imports(self) -> list[int]:
        """Lines of the imports inside functions."""
        found = {
            n.lineno
            for f in self.functions
            for n in ast.walk(f)
            if isinstance(n, ast.Import | ast.ImportFrom)
        }
        return sorted(found)

    @property
    def comments(self) -> int:
        """Lines that have a comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return sum(token.type == tokenize.COMMENT for token in tokens)


def shipped() -> list[Module]:
    """All modules of the shipped packages; not the data that a wheel carries."""
    paths = (path for top in SHIPPED for path in sorted((ROOT / top).rglob("*.py")))
    return [Module(path) for path in paths if "_data" not in path.parts]


def length(function: Function) -> int:
    """Lines from `def` to the end, docstring included."""
    return (function.end_lineno or function.lineno) - function.lineno + 1


def annotated(function: Function) -> bool:
    """Whether the return value and every parameter but self and cls have a type."""
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
    typed = all(one.annotation is not None for one in every if one.arg not in ("self", "cls"))
    return typed and function.returns is not None


def _python_lines(folder: str) -> tuple[int, int]:
    """(lines, files) of the Python below a folder."""
    texts = [path.read_text() for path in (ROOT / folder).rglob("*.py")]
    return sum(len(text.splitlines()) for text in texts), len(texts)


def _emulator_lines() -> int:
    sources = (p for p in (ROOT / EMULATOR).rglob("*") if p.suffix in {".py", ".txt", ".cpp", ".h"})
    return sum(len(path.read_text().splitlines()) for path in sources)


def _pages() -> list[Path]:
    docs = ROOT / "docs"
    return [path for path in docs.rglob("*.md") if path.relative_to(docs).parts[0] not in GENERATED]


def _words(path: Path) -> int:
    return len(path.read_text().split())


def figures() -> Iterator[Bound]:
    """Every figure, in the order in which it is printed."""
    modules = shipped()
    functions = [function for module in modules for function in module.functions]
    sizes = [length(function) for function in functions]
    cuts = quantiles(sizes, n=20)
    lines = sum(module.lines for module in modules)
    inner = sum(len(module.inner_imports) for module in modules if module.name != LAZY)
    comments = sum(module.comments for module in modules)
    tests, test_files = _python_lines("tests")
    tools, tool_files = _python_lines("tools")
    pages = _pages()
    yield Bound("lines of harness + sandboxes", lines, most=50_000)
    yield Bound("files of harness + sandboxes", len(modules), most=285)
    yield Bound("lines of the emulated GPU, C++ and tables included", _emulator_lines(), most=5_650)
    yield Bound("mean lines per module", round(lines / len(modules)))
    yield Bound("modules at the root of harness", len(root_modules(modules)), most=6)
    yield Bound("function lines, median", cuts[9])
    yield Bound("function lines, 95th percentile", cuts[18], most=30)
    yield Bound("function lines, maximum", max(sizes), most=70)
    yield Bound("annotated functions, %", 100 * sum(map(annotated, functions)) / len(functions), least=100)
    yield Bound("imports inside functions", inner, most=15)
    yield Bound("comments per 100 lines", round(100 * comments / lines, 1))
    yield Bound("lines of tests", tests, most=43_000)
    yield Bound("files of tests", test_files)
    yield Bound("lines of tools", tools)
    yield Bound("files of tools", tool_files)
    yield Bound("hand-written docs pages", len(pages), most=16)
    yield Bound("words of the longest docs page", max(map(_words, pages)), most=1_500)
    yield Bound("words of all docs pages", sum(map(_words, pages)))
    yield Bound("words of README.md", _words(ROOT / "README.md"), most=900)


def root_modules(modules: list[Module]) -> list[str]:
    """Modules that lie in harness/ itself."""
    return [
        one.name for one in modules if one.path.parent == ROOT / "harness" and one.path.stem != "__init__"
    ]


def main() -> int:
    """Print the figures; 1 where one is outside its limits."""
    found = list(figures())
    print(*found, sep="\n")
    return int(any(bound.broken for bound in found))


if __name__ == "__main__":
    sys.exit(main())
