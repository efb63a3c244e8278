"""Reads TOML that a student wrote.

Time and memory grow with the size of the text.
"""

from __future__ import annotations

import re
import tomllib
from typing import Any, Final

# tomllib keeps a record for every prefix of a dotted key: 100 kB of `a.a.a...` take gigabytes.
_PARTS: Final = 20  # no key of build.toml has more than four
# At the start of a line, or in an inline table. Possessive throughout: nothing is tried twice.
_PART: Final = r"""[ \t]*+(?:[A-Za-z0-9_-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\."""
_DEEP_KEY = re.compile(rf"(?:^|[{{,])[ \t]*+\[{{0,2}}+(?:{_PART}){{{_PARTS}}}", re.M)


class NoToml(ValueError):
    """The text is no TOML, or none that a build.toml could be."""


def toml_fields(text: str) -> dict[str, Any]:
    """The fields of a file. Raises NoToml, with `(at line N, ...)` where Python's parser says so."""
    text = plain(text)
    deep = _DEEP_KEY.search(text)
    if deep is not None:
        line = text.count("\n", 0, deep.end()) + 1
        raise NoToml(f"a key has more than {_PARTS} parts (at line {line})")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError: an integer of 4,301 digits, too
        said = "values are nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise NoToml(said) from error


def plain(text: str) -> str:
    """Without a byte order mark and with Unix line ends, as upstream's parser takes it."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n")
