"""How much of a project stands, token for token, in our expert projects, which are public.

What the student reads in the task's prompt counts nowhere; nor does what experts of many families have in
common. The time is linear in the source, whose size is limited where projects come in.

Comments are left out on both sides: most rows of an expert are in them, and who copies writes others. Of the
experts, build.toml and the binding under torch-ext/ are left out too; of the project build.toml alone: a
kernel can stand under torch-ext/, and the rows of an honest binding only make its share smaller.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from harness.records import Origin, Project, Provenance
from harness.skills.ngrams import (
    FAMILIES,
    Row,
    Tokens,
    expert_files,
    longest,
    prompt_rows,
    tells,
    tokens_of,
)
from harness.suite.catalogue import LoadedTask, all_tasks

_TEXT = re.compile(
    r"""("(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])')|//[^\n]*+|/\*.*?(?:\*/|\Z)""",
    re.DOTALL,
)
"""A string or character of C++, which is kept, or a comment. What never ends is taken all the same: each
quote of a hostile file would be searched from again."""
_File = tuple[str, str]
"""Of an expert: task id, path in its project."""


@dataclass(frozen=True)
class _Experts:
    """All experts' rows that can be evidence."""

    texts: Mapping[_File, Tokens]
    places: Mapping[Row, Sequence[tuple[_File, int]]]
    """Where each row begins."""
    idioms: frozenset[Row]
    """Rows that many families have: no evidence."""


def provenance(project: Project, loaded: LoadedTask) -> Provenance:
    """What the project has in common with the experts of all shipped tasks."""
    experts, known = _experts(), prompt_rows(loaded)
    own: set[Row] = set()
    found: dict[_File, set[Row]] = {}
    starts: dict[tuple[_File, str], list[tuple[int, int]]] = {}
    texts = {file.path: _code(file.text) for file in project.files if file.path != "build.toml"}
    for path, tokens in texts.items():
        for index, row in enumerate(tokens.rows()):
            places = experts.places.get(row, ())
            if row in experts.idioms or row in known or not (places or tells(row)):
                continue
            own.add(row)
            for file, source_index in places:
                found.setdefault(file, set()).add(row)
                starts.setdefault((file, path), []).append((index, source_index))
    most = max(map(len, found.values()), default=0)
    origins = [
        _origin(file, most, {path: at for (one, path), at in starts.items() if one == file}, texts, experts)
        for file, rows in found.items()
        if len(rows) == most
    ]
    # Experts share some files: where equally much is in common, the task's own is named.
    origins.sort(key=lambda one: (-one.longest, one.task != loaded.task.id, one.task, one.file))
    common = len(set().union(*found.values()))
    return Provenance(rows=len(own), common=common, origin=origins[0] if origins else None)


def _origin(
    file: _File,
    rows: int,
    starts: Mapping[str, Sequence[tuple[int, int]]],
    texts: Mapping[str, Tokens],
    experts: _Experts,
) -> Origin:
    """starts: by the project's file."""
    theirs = experts.texts[file]
    stretches = {path: longest(found, texts[path].tokens, theirs.tokens) for path, found in starts.items()}
    path = max(stretches, key=lambda name: stretches[name].tokens)
    stretch = stretches[path]
    return Origin(
        task=file[0],
        file=file[1],
        rows=rows,
        longest=stretch.tokens,
        source_line=theirs.lines[stretch.source_start],
        project_file=path,
        project_line=texts[path].lines[stretch.start],
    )


def _code(text: str) -> Tokens:
    """A source without its comments; lines keep their numbers."""
    return tokens_of(_TEXT.sub(lambda found: found[1] or "\n" * found[0].count("\n"), text))


@cache
def _experts() -> _Experts:
    """Read once for each process: about a second, and 15 MiB."""
    texts: dict[_File, Tokens] = {}
    places: dict[Row, list[tuple[_File, int]]] = {}
    families: dict[Row, set[str]] = {}
    for loaded in all_tasks():
        for path, text in expert_files(loaded.task):
            file, read = (loaded.task.id, path), _code(text)
            tokens = Tokens([sys.intern(token) for token in read.tokens], read.lines)
            texts[file] = tokens
            for index, row in enumerate(tokens.rows()):
                if tells(row):
                    places.setdefault(row, []).append((file, index))
                    families.setdefault(row, set()).add(loaded.task.family)
    idioms = frozenset(row for row, having in families.items() if len(having) >= FAMILIES)
    return _Experts(texts, {row: place for row, place in places.items() if row not in idioms}, idioms)
