"""Warns of functions bound with TORCH_BOX that receive other numbers than were passed.

It warns only of what no reading of the source allows; where several declarations could be meant, all must
be wrong.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from harness.builder.binding.functions import Function, Words, declared
from harness.builder.binding.tokens import Token, included, tokens
from harness.builder.binding.values import (
    Schema,
    Value,
    cpp_value,
    harm_to_parameter,
    harm_to_result,
    read_schema,
    schema_value,
    to_write,
)
from harness.records import BINDING_WARNING

_MACRO: Final = "TORCH_BOX"
_SUFFIXES: Final = (".cpp", ".cc", ".cxx", ".c++", ".cu", ".h", ".hpp", ".hxx", ".hh", ".cuh", ".inc")
_SHOWN: Final = 8
"""Warnings of one project."""
_TEXT: Final = 1 << 20
"""Characters of C++; a project with more is not read."""
_HEADERS: Final = 64
_USES: Final = 200
_CANDIDATES: Final = 50


class _Use(NamedTuple):
    """`TORCH_BOX(&path<arguments>)`, and the operator that it implements, if that stands before it."""

    path: Words
    arguments: tuple[Words, ...]
    operator: str | None


class _Harm(NamedTuple):
    """One parameter, or the result, of one declaration."""

    line: int
    words: Words
    harm: str
    schema: str | None
    better: str


def boxed_warnings(files: Mapping[str, str]) -> tuple[str, ...]:
    """One line for each wrong parameter or result: `binding: file:line: ...`; `files`: the whole project."""
    sources = {path: text for path, text in files.items() if path.endswith(_SUFFIXES)}
    if not any(_MACRO in text for text in sources.values()) or sum(map(len, sources.values())) > _TEXT:
        return ()
    project = _Sources(sources)
    uses = dict.fromkeys((path, use) for path in sorted(sources) for use in project.uses(path))
    found: dict[str, None] = {}
    for path, use in list(uses)[:_USES]:
        found |= dict.fromkeys(project.warnings(path, use))
    shown = list(found)[:_SHOWN]
    more = len(found) - len(shown)
    return (*shown, *([f"{BINDING_WARNING}{more} more of this kind"] if more else []))


class _Sources:
    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._tokens = {path: tokens(text) for path, text in files.items()}
        self._declared = {path: declared(found) for path, found in self._tokens.items()}
        self._named: dict[str, dict[str, list[Function]]] = {path: {} for path in files}
        """Of each file its functions by the last part of their names."""
        for path, found in self._declared.items():
            for function in found.functions:
                self._named[path].setdefault(function.path[-1], []).append(function)
        self._seen: dict[str, list[str]] = {}
        self._by_name: dict[str, list[str]] = {}
        """Paths by their last part."""
        for path in files:
            self._by_name.setdefault(posixpath.basename(path), []).append(path)

    @cached_property
    def _schemas(self) -> dict[str, Schema | None]:
        """By name; None where it is defined in several ways."""
        found: dict[str, Schema | None] = {}
        for text in (text for path in sorted(self._tokens) for text in _strings(self._tokens[path])):
            schema = read_schema(text)
            if schema is not None:
                found[schema.name] = schema if found.get(schema.name, schema) == schema else None
        return found

    def uses(self, path: str) -> Iterator[_Use]:
        """Every TORCH_BOX of a file that names a function."""
        found = self._tokens[path]
        for index, token in enumerate(found):
            if token.text == _MACRO and token.kind == "word":
                use = _use([t.text for t in found[index + 1 : index + 100]], found[max(0, index - 4) : index])
                if use is not None:
                    yield use

    def warnings(self, path: str, use: _Use) -> Iterator[str]:
        """Of the function that `path` means by `use`."""
        schema = None if use.operator is None else self._schemas.get(use.operator)
        meant = [
            (place, function)
            for place in self._visible(path)
            for function in self._named[place].get(use.path[-1], ())
            if function.path[-len(use.path) :] == use.path and self._fits(function, schema, path)
        ]
        harms = [(place, self._harms(function, schema, use, path)) for place, function in meant[:_CANDIDATES]]
        # Where it is defined, if that is here: a definition follows its declarations.
        harms.sort(key=lambda harm: harm[0] != path)
        last = max((n for n, harm in enumerate(harms) if harm[0] == path), default=0)
        for slot in sorted({slot for _, found in harms for slot in found}):
            if all(slot in found for _, found in harms):
                place, found = harms[last]
                yield _said(place, use.path[-1], slot, found[slot])

    def _visible(self, path: str) -> list[str]:
        """The file and the project's headers that it includes."""
        if path not in self._seen:
            self._seen[path] = self._reached(path)
        return self._seen[path]

    def _reached(self, path: str) -> list[str]:
        seen = [path]
        for place in seen:
            for name in included(self._files[place]):
                near = posixpath.normpath(posixpath.join(posixpath.dirname(place), name))
                bare = posixpath.normpath(name).lstrip("./")
                for other in self._by_name.get(posixpath.basename(bare), ()):
                    if (other in (near, bare) or other.endswith(f"/{bare}")) and other not in seen:
                        seen.append(other)
            if len(seen) > _HEADERS:
                break
        return seen

    def _fits(self, function: Function, schema: Schema | None, path: str) -> bool:
        """Whether it can be the operator's: as many parameters, and tensors where the schema has them."""
        if schema is None:
            return True
        if len(schema.parameters) != len(function.parameters):
            return False
        pairs = zip(schema.parameters, function.parameters, strict=True)
        return not any(
            kind.startswith("Tensor") and ("*" in p.words or self._value(p.words, function, None, path))
            for kind, p in pairs
        )

    def _harms(self, function: Function, schema: Schema | None, use: _Use, path: str) -> dict[int, _Harm]:
        """By place of the parameter; -1 is the result."""
        found: dict[int, _Harm] = {}
        kinds = (None,) * len(function.parameters) if schema is None else schema.parameters
        for slot, (parameter, kind) in enumerate(zip(function.parameters, kinds, strict=True)):
            cpp = self._value(parameter.words, function, use, path)
            wanted = None if kind is None else schema_value(kind)
            if cpp is None or (kind is not None and wanted is None):
                continue
            harm = harm_to_parameter(wanted, cpp)
            if harm is not None:
                found[slot] = _Harm(parameter.line, parameter.words, harm, kind, to_write(wanted))
        cpp = self._value(function.result, function, use, path)
        harm = None if cpp is None else harm_to_result(None if schema is None else schema.result, cpp)
        if harm is not None:
            kind = None if schema is None else schema.result
            wanted = None if kind is None else schema_value(kind)
            found[-1] = _Harm(function.line, function.result, harm, kind, to_write(wanted))
        return found

    def _value(self, words: Words, function: Function, use: _Use | None, path: str) -> Value | None:
        def named(name: str) -> Words | None:
            if name in function.template:
                place = function.template.index(name)
                arguments = () if use is None else use.arguments
                return arguments[place] if place < len(arguments) else None
            found = {self._declared[p].aliases[name] for p in visible if name in self._declared[p].aliases}
            return found.pop() if len(found) == 1 else None

        visible = self._visible(path)
        return cpp_value(words, named)


def _strings(found: Sequence[Token]) -> Iterator[str]:
    """String literals; neighbours are one."""
    whole: list[str] = []
    for token in found:
        if token.kind == "string":
            whole.append(token.text)
        elif whole:
            yield "".join(whole)
            whole = []


def _use(inside: Sequence[str], before: Sequence[Token]) -> _Use | None:
    """Read `(&ns::name<float>)`, and `impl("operator",` before it."""
    raw = [word for word in inside if word not in ("&", "(")]
    path: list[str] = []
    while raw and (raw[0] == "::" or raw[0].isidentifier()):
        word = raw.pop(0)
        if word != "::":
            path.append(word)
    arguments: tuple[Words, ...] = ()
    if raw[:1] == ["<"] and ">" in raw:
        arguments = _arguments(raw[1 : raw.index(">")])
        raw = raw[raw.index(">") + 1 :]
    if not path or raw[:1] != [")"]:
        return None
    named = len(before) == 4 and [t.text for t in before[:2]] == ["impl", "("] and before[3].text == ","
    operator = before[2].text.rpartition("::")[2] if named and before[2].kind == "string" else None
    return _Use(tuple(path), arguments, operator)


def _arguments(words: Sequence[str]) -> tuple[Words, ...]:
    parts: list[list[str]] = [[]]
    for word in words:
        if word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return tuple(tuple(part) for part in parts)


def _said(place: str, function: str, slot: int, harm: _Harm) -> str:
    """The warning in one line."""
    shown = _joined(harm.words)
    schema = "" if harm.schema is None else f", `{harm.schema}` in the schema,"
    what = "result" if slot < 0 else f"parameter {slot + 1}"
    return (
        f"{BINDING_WARNING}{place}:{harm.line}: {what} of `{function}`{schema} is `{shown}`: {harm.harm}. "
        f"TORCH_BOX converts nothing: write {harm.better}, in every declaration, and convert inside"
    )


def _joined(words: Words) -> str:
    """Tokens as one writes them."""
    text = " ".join(words)
    for mark in ("::", "<", ">", "&"):
        text = text.replace(f" {mark}", mark)
    return text.replace(":: ", "::").replace("< ", "<")[:120]
