"""Marked regions of a document that several programs write; text outside a region is not touched."""

from __future__ import annotations

import re

REGIONS = ("zoo", "zoo_gpu", "gain")
"""Regions of docs/generated/security.md that `make zoo` writes; `make security` writes the rest."""


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin, written by make zoo -->", f"<!-- {name}: end -->"


def region(text: str, name: str) -> str:
    """The text between the marks. Raises ValueError unless both are there, once."""
    begin, end = _marks(name)
    found = re.findall(rf"{re.escape(begin)}\n(.*?){re.escape(end)}", text, re.DOTALL)
    if len(found) != 1:
        raise ValueError(
            f"the document has {len(found)} regions `{name}`, not one: its marks are {begin} {end}"
        )
    return str(found[0])


def with_region(text: str, name: str, body: str) -> str:
    """The document with `body` between the marks. Raises ValueError unless both are there, once."""
    begin, end = _marks(name)
    old = region(text, name)
    return text.replace(f"{begin}\n{old}{end}", f"{begin}\n{body.rstrip()}\n{end}", 1)


def carried_over(new: str, old: str) -> str:
    """`new` with those regions that `old` has. Raises ValueError for one that `new` lacks."""
    for name in REGIONS:
        if _marks(name)[0] in old:
            new = with_region(new, name, region(old, name))
    return new
