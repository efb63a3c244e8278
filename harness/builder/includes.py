"""Finds quoted includes of project files that build.toml does not list.

Only unconditional includes count; what stands under #if may never be compiled.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Final

_MOST_LOOKUPS: Final = 20_000
"""Of a file; one with more (thousands of includes in thousands of directories) is left to the compiler."""
_INCLUDE = re.compile(r"\s*#\s*include\s*([\"<])([^\">\n]+)[\">]")
_DIRECTIVE = re.compile(r"\s*#\s*(if|ifdef|ifndef|else|elif|endif|define)\b\s*(\w*)")
# A comment that never ends runs to the end of the file: matched as one, or each `/*` of a hostile
# file would be searched from again.
_COMMENT = re.compile(r"//[^\n]*|/\*.*?(?:\*/|\Z)", re.S)


def _blank(comment: re.Match[str]) -> str:
    return "\n" * comment[0].count("\n")


def unconditional_includes(text: str) -> Iterator[tuple[int, str, bool]]:
    """(line, path, quoted) of includes outside #if; an include guard does not count as one."""
    lines = _COMMENT.sub(_blank, text).split("\n")
    depth, guard = 0, _guard(lines)
    for number, line in enumerate(lines, 1):
        directive = _DIRECTIVE.match(line)
        if directive is not None:
            if directive[1] in {"if", "ifdef", "ifndef"} and number != guard:
                depth += 1
            elif directive[1] == "endif":
                depth = max(0, depth - 1)
        include = _INCLUDE.match(line)
        if include is not None and depth == 0:
            yield number, include[2], include[1] == '"'


def _guard(lines: Sequence[str]) -> int | None:
    """Line of the #ifndef of an include guard: the first directive, followed by its #define."""
    directives = [(n, m) for n, m in ((n, _DIRECTIVE.match(t)) for n, t in enumerate(lines, 1)) if m]
    if len(directives) < 2:
        return None
    (number, first), (_, second) = directives[:2]
    same = first[1] == "ifndef" and second[1] == "define" and first[2] == second[2]
    return number if same else None


def unlisted_include(
    path: str,
    files: Mapping[str, str],
    staged: Set[str],
    directories: Sequence[str],
) -> tuple[int, str] | None:
    """(line, project path) of the first include in `path` that finds a file outside `staged`."""
    left = _MOST_LOOKUPS
    for line, name, quoted in unconditional_includes(files[path]):
        beside = [posixpath.dirname(path)] if quoted else []
        left -= len(directories)
        if left < 0:
            return None
        for directory in [*beside, *directories, "csrc"]:
            found = posixpath.normpath(posixpath.join(directory, name))
            if found in staged:
                break
            if found in files:
                return line, found
    return None
