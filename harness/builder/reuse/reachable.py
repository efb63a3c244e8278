"""Which files of the build tree the compilation of one unit can depend on.

Owns: that over-approximation, and whether a unit needs the name of its project. Does not own: what a
key is made of (objects.py). Pure.
Invariant: a file outside the answer cannot change the object: every include counts, under #if or not,
in every directory where it could be found; where text alone does not tell, the answer is the whole tree.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from harness.builder.layout import SOURCE, Layout
from harness.builder.units import Unit

NAME_MACRO: Final = "TORCH_EXTENSION_NAME"
# A student could paste the macro's name together; nobody writes EXTENSION for anything else.
_NAMED = re.compile(r"EXTENSION")
_SPLICE = re.compile(r"\\[ \t\f\v]*\r?\n")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DIRECTIVE = re.compile(r"^[ \t\f\v]*(?:#|%:)[ \t\f\v]*(?:include|include_next)\b(.*)$", re.M)
_PLAIN = re.compile(r"[ \t\f\v]*(?:<([^>\n]+)>|\"([^\"\n]+)\")")
# Ways to read a file, or to ask for one, that are no plain #include.
_OPAQUE = re.compile(
    r"\?\?|__has_include|__has_embed|incbin|dependency|^[ \t\f\v]*(?:#|%:)[ \t\f\v]*(?:import|embed)\b"
    r"|^[ \t\f\v]*(?:import|module)\b",
    re.M,
)
# The host's assembler reads files too. PTX in asm is common, so only strings that could say so count.
_ASM = re.compile(r"__asm|\basm\b")
_STRING = re.compile(r'"((?:[^"\\\n]|\\.)*)"')
_ASSEMBLER_FILE = re.compile(r"\.inc|\.in?$|^n?c?(?:bin|lude)|\.macro|\.irp|\\[xu0-7]")
# No header of torch, Python, CUDA or the compiler includes files with these endings.
_NEVER_BY_SYSTEM: Final = frozenset({".cpp", ".cc", ".cxx", ".cu", ".py", ".pyi", ".toml", ".md"})


class Reachable(NamedTuple):
    """What one unit may see of its tree."""

    paths: tuple[str, ...]
    """In the build tree, sorted."""
    named: bool
    """The text mentions the extension's name: the object belongs to one project."""


def reachable(unit: Unit, layout: Layout) -> Reachable:
    """Everything in `layout.tree` that the object of `unit` may depend on."""
    return Search({file.path: file.text for file in layout.tree}, unit).result()


class Search:
    """The search from one unit; also used to follow includes in order (precompiled.py)."""

    def __init__(self, tree: Mapping[str, str], unit: Unit) -> None:
        self.tree = tree
        self._unit = unit
        own = [posixpath.join(SOURCE, d) for d in (*unit.include, "csrc")]
        asked = [flag.rpartition("-I")[2] for flag in unit.flags if "-I" in flag]
        self._directories = tuple(posixpath.normpath(d) for d in (*own, *asked))

    def result(self) -> Reachable:
        """The answer for the unit."""
        start = [f"{SOURCE}/{self._unit.source}", *self._forced(), *self.shadowing()]
        found: set[str] = set()
        pending = [path for path in start if path in self.tree]
        while pending:
            path = pending.pop()
            if path in found:
                continue
            found.add(path)
            included = self._included(path)
            if included is None:
                found = set(self.tree)
                break
            pending += included
        named = any(_NAMED.search(self.tree[path]) for path in found if not _generated(path))
        named = named or any(_NAMED.search(flag) for flag in self._unit.flags)
        return Reachable(tuple(sorted(found)), named)

    def _forced(self) -> Iterator[str]:
        """What `-include` may name: any word of the flags that is a path of the tree."""
        for flag in self._unit.flags:
            yield posixpath.normpath(re.split("[=,]", flag)[-1])

    def shadowing(self) -> dict[str, str]:
        """Files that an include in a system header would find first: path -> the name it would use."""
        return {
            path: path.removeprefix(f"{directory}/")
            for path in self.tree
            if PurePosixPath(path).suffix not in _NEVER_BY_SYSTEM
            for directory in self._directories
            if path.startswith(f"{directory}/")
        }

    def _included(self, path: str) -> list[str] | None:
        """Files that `path` may include; None when the text does not tell."""
        text = _SPLICE.sub("", self.tree[path])
        if _OPAQUE.search(text) or (_ASM.search(text) and _assembles_files(text)):
            return None
        # Twice: a comment may stand inside a directive, and what looks like one inside a string.
        names: set[str] = set()
        for version in (text, _COMMENT.sub(" ", text)):
            for directive in _DIRECTIVE.finditer(version):
                plain = _PLAIN.match(directive[1])
                if plain is not None:
                    names.add(plain[1] or plain[2])
                elif version is not text or not directive[1].lstrip().startswith("/*"):
                    return None
        return [found for name in names for found in self.candidates(path, name)]

    def candidates(self, path: str, name: str) -> Sequence[str]:
        """Where `name`, included by `path`, may lie in the tree; in the order of the search."""
        places = [posixpath.dirname(path), *self._directories, "stubs"]
        tried = (posixpath.normpath(posixpath.join(place, name)) for place in places)
        return tuple(dict.fromkeys(p for p in tried if p in self.tree))


def _assembles_files(text: str) -> bool:
    return any(_ASSEMBLER_FILE.search(literal[1]) for literal in _STRING.finditer(text))


def _generated(path: str) -> bool:
    """registration.h only mentions the macro in a comment."""
    return path == f"{SOURCE}/torch-ext/registration.h"
