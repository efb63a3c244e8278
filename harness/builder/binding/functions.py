"""Functions that C++ source text declares: names, parameters, results.

A call, an initialiser and a macro's use are no declarations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from harness.builder.binding.tokens import Token

Words = tuple[str, ...]

_DEPTH: Final = 100
_STATEMENT: Final = 1000
"""Tokens of a declaration; what is longer is data."""
_NOT_TYPES: Final = frozenset(
    {
        "return",
        "throw",
        "new",
        "delete",
        "else",
        "case",
        "goto",
        "co_return",
        "co_yield",
        "co_await",
        "operator",
        "using",
        "typedef",
    }
)
_WITH_BRACKETS: Final = frozenset(
    {
        "__attribute__",
        "__declspec",
        "alignas",
        "decltype",
        "__launch_bounds__",
        "noexcept",
        "explicit",
        "requires",
        "sizeof",
        "if",
        "while",
        "for",
        "switch",
        "catch",
    }
)
_SPECIFIERS: Final = frozenset(
    {
        "static",
        "inline",
        "extern",
        "constexpr",
        "consteval",
        "virtual",
        "friend",
        "explicit",
        "__inline__",
        "__forceinline__",
        "__host__",
        "__device__",
        "__global__",
        "public",
        "private",
        "protected",
        ":",
    }
)


class Parameter(NamedTuple):
    """One parameter: its tokens, its name among them, without default value and attributes."""

    words: Words
    line: int


class Function(NamedTuple):
    """One declaration."""

    path: Words
    """Namespaces and classes, then the name."""
    parameters: tuple[Parameter, ...]
    result: Words
    template: Words
    """Names of the template's parameters."""
    line: int


class Declared(NamedTuple):
    """What a text declares."""

    functions: tuple[Function, ...]
    aliases: Mapping[str, Words | None]
    """Other names of types; None for a name that stands for several."""


def declared(tokens: Sequence[Token]) -> Declared:
    """All functions and other names of types, in order."""
    reader = _Reader()
    for token in tokens:
        reader.take(token)
    return Declared(tuple(reader.functions), reader.aliases)


class _Reader:
    """Walks over the tokens with a stack of scopes; one of None hides what is in it."""

    def __init__(self) -> None:
        self.functions: list[Function] = []
        self.aliases: dict[str, Words | None] = {}
        self._scopes: list[Words | None] = []
        self._statement: list[Token] = []
        self._round = 0
        self._branches: list[tuple[list[Words | None], list[Token], int]] = []

    def take(self, token: Token) -> None:
        if token.kind in ("if", "else", "endif"):
            self._branch(token.kind)
        elif self._hidden:
            self._in_body(token.text if token.kind == "mark" else "")
        else:
            self._outside(token)

    @property
    def _hidden(self) -> bool:
        return bool(self._scopes) and self._scopes[-1] is None

    def _branch(self, kind: str) -> None:
        """Every branch begins where the first did: each may open the same brace."""
        if kind == "if" and len(self._branches) < _DEPTH:
            self._branches.append((self._scopes[-_DEPTH:], list(self._statement), self._round))
        elif kind == "else" and self._branches:
            scopes, statement, self._round = self._branches[-1]
            self._scopes, self._statement = list(scopes), list(statement)
        elif kind == "endif" and self._branches:
            self._branches.pop()

    def _in_body(self, mark: str) -> None:
        if mark == "{":
            self._scopes.append(None)
        elif mark == "}":
            self._scopes.pop()

    def _outside(self, token: Token) -> None:
        mark = token.text if token.kind == "mark" else ""
        if mark == "{" and self._round == 0:
            self._open()
        elif mark == "}" and self._round == 0:
            if self._scopes:
                self._scopes.pop()
            self._statement = []
        elif mark == ";" and self._round == 0:
            self._close()
        else:
            self._round = max(0, self._round + {"(": 1, ")": -1}.get(mark, 0))
            if len(self._statement) <= _STATEMENT:
                self._statement.append(token)

    def _open(self) -> None:
        words = [token.text for token in self._statement]
        scope: Words | None = None
        if "namespace" in words[:2]:
            names = words[words.index("namespace") + 1 :]
            scope = tuple(word for word in names if word.isidentifier())
        elif words[:1] == ["extern"] and len(words) == 2:
            scope = ()
        elif not {"(", "=", "enum"} & set(words) and {"struct", "class", "union"} & set(words):
            at = next(n for n, word in enumerate(words) if word in ("struct", "class", "union"))
            scope = tuple(words[at + 1 : at + 2])
        else:
            self._function()
        self._scopes.append(scope)
        self._statement = []

    def _close(self) -> None:
        words = tuple(token.text for token in self._statement)
        if words[:1] == ("using",) and words[2:3] == ("=",):
            self._alias(words[1], words[3:])
        elif words[:1] == ("typedef",) and len(words) > 2:
            self._alias(words[-1], words[1:-1])
        else:
            self._function()
        self._statement = []

    def _alias(self, name: str, words: Words) -> None:
        self.aliases[name] = words if self.aliases.get(name, words) == words else None

    def _function(self) -> None:
        if 0 < len(self._statement) <= _STATEMENT:
            scope = tuple(name for names in self._scopes if names for name in names)
            found = _function(self._statement, scope)
            if found is not None:
                self.functions.append(found)


def _function(statement: Sequence[Token], scope: Words) -> Function | None:
    """The function that a declaration declares, if it does."""
    template, begin = _template(statement)
    for position, after in _groups(statement, begin):
        path, start = _name(statement, position)
        named = path and path[-1] not in _WITH_BRACKETS and path[-1] not in _NOT_TYPES
        if not named or start <= begin or not _ends_type(statement[start - 1]):
            continue
        parameters = tuple(_parameters(statement[position + 1 : after - 1]))
        result = _result(statement[begin:start], statement[after:])
        return Function(scope + path, parameters, result, template, statement[start].line)
    return None


def _template(statement: Sequence[Token]) -> tuple[Words, int]:
    """Names of a template's parameters, and where the declaration goes on."""
    names: list[str] = []
    begin = 0
    while (
        begin + 1 < len(statement)
        and statement[begin].text == "template"
        and statement[begin + 1].text == "<"
    ):
        end = _balanced(statement, begin + 1, "<", ">")
        names = []
        for part in _commas(statement[begin + 2 : end - 1]):
            head = _before([token.text for token in part], "=")
            names.append(head[-1] if head else "")
        begin = end
    return tuple(names), begin


def _groups(statement: Sequence[Token], begin: int) -> Iterator[tuple[int, int]]:
    """Outermost round brackets: the place of each, and of what follows it."""
    position = begin
    while position < len(statement):
        if statement[position].text == "(" and statement[position].kind == "mark":
            after = _balanced(statement, position, "(", ")")
            yield position, after
            position = after
        else:
            position += 1


def _balanced(statement: Sequence[Token], position: int, left: str, right: str) -> int:
    """The place behind the bracket that closes the one at `position`; the end where none does."""
    depth = 0
    for index in range(position, len(statement)):
        if statement[index].kind == "mark":
            depth += {left: 1, right: -1}.get(statement[index].text, 0)
            if depth == 0:
                return index + 1
    return len(statement)


def _name(statement: Sequence[Token], end: int) -> tuple[Words, int]:
    """The qualified name before `end`, and where it begins."""
    names: list[str] = []
    start = end
    while start > 0 and statement[start - 1].kind == "word":
        names.insert(0, statement[start - 1].text)
        start -= 1
        if start == 0 or statement[start - 1].text != "::":
            break
        start -= 1
    return tuple(names), start


def _ends_type(token: Token) -> bool:
    if token.kind == "word":
        return token.text not in _NOT_TYPES
    return token.kind == "mark" and token.text in (">", "*", "&", "]", ")")


def _parameters(inside: Sequence[Token]) -> Iterator[Parameter]:
    parts = list(_commas(inside))
    if [token.text for part in parts for token in part] == ["void"]:
        return
    for part in parts:
        words = tuple(_before([token.text for token in _plain(part)], "="))
        yield Parameter(words, part[0].line if part else 0)


def _commas(inside: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """What stands between the commas outside all brackets."""
    depth, start = 0, 0
    for index, token in enumerate(inside):
        if token.kind != "mark":
            continue
        depth += (token.text in "(<[{") - (token.text in ")>]}")
        if token.text == "," and depth == 0:
            yield inside[start:index]
            start = index + 1
    if inside:
        yield inside[start:]


def _before(words: list[str], mark: str) -> list[str]:
    return words[: words.index(mark)] if mark in words else words


def _plain(tokens: Sequence[Token]) -> Iterator[Token]:
    """Without [[attributes]] and what GCC's take."""
    position = 0
    while position < len(tokens):
        token = tokens[position]
        following = tokens[position + 1].text if position + 1 < len(tokens) else ""
        if token.text == "[" and following == "[":
            position = _balanced(tokens, position, "[", "]")
        elif token.text in _WITH_BRACKETS and following == "(" and token.text != "decltype":
            position = _balanced(tokens, position + 1, "(", ")")
        else:
            yield token
            position += 1


def _result(before: Sequence[Token], behind: Sequence[Token]) -> Words:
    """What it returns: before its name, or behind its parameters."""
    trailing = [token.text for token in _plain(behind)]
    if "->" in trailing:
        return tuple(trailing[trailing.index("->") + 1 :])
    return tuple(token.text for token in _plain(before) if token.text not in _SPECIFIERS)
