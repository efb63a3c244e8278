"""Finds claims in a skill that contradict what is known of programming Hopper and of kernel-builder.

A line that denies something ("not", "wrong", "refused") is never taken for a claim.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterable
from importlib import resources
from typing import Final

from harness.records import Record
from harness.skills.findings import SkillFinding, error, warning

_FLAGS: Final = re.IGNORECASE | re.MULTILINE
# In prose a line may end between any two words; in a class ([ \t]) a space is a space.
_SPACE = re.compile(r" (?![^\[\]]*\])")
_DENIAL = re.compile(
    r"\b(?:no|not|never|neither|nor|cannot|without|wrong|false|myth|mistake\w*|instead|avoid|unlike|rather|contrary"
    r"|refuse[sd]?|error|errors|fails?|old|older|legacy|obsolete|outdated|circulate\w*)\b|n't\b",
    re.IGNORECASE,
)


class Fact(Record):
    """One fact, and how to recognise a claim that contradicts it."""

    id: str
    claim: str
    """The right wording, a clause."""
    value: str
    source: str
    wrong: tuple[str, ...]
    """Regular expressions, over the whole text; a space stands for the end of a line too."""
    about: str | None = None
    """Must be found in the lines of a match."""
    unless: str | None = None
    """Must not be found there."""
    breaks_the_build: bool = False
    """Code that follows the claim does not build with kernel-builder."""


@functools.cache
def known_facts() -> tuple[Fact, ...]:
    """All of facts.toml."""
    text = (resources.files("harness.skills") / "facts.toml").read_text(encoding="utf-8")
    return tuple(Fact.model_validate(fields) for fields in tomllib.loads(text)["fact"])


def fact_findings(file: str, text: str, *, kernel_builder: bool = True) -> list[SkillFinding]:
    """Each line of `text` that claims what is known to be otherwise, once for each fact.

    What does not build is an error where the text is about kernel-builder, else a warning.
    """
    return _findings(known_facts(), file, text, kernel_builder)


def unbuildable(file: str, text: str, *, kernel_builder: bool = True) -> list[SkillFinding]:
    """Of these findings the ones that say that code does not build."""
    return _findings([f for f in known_facts() if f.breaks_the_build], file, text, kernel_builder)


def _findings(facts: Iterable[Fact], file: str, text: str, kernel_builder: bool) -> list[SkillFinding]:
    found: dict[tuple[str, int], SkillFinding] = {}
    for fact in facts:
        report = error if fact.breaks_the_build and kernel_builder else warning
        for pattern in fact.wrong:
            for match in re.finditer(_SPACE.sub(r"\\s", pattern), text, _FLAGS):
                start = match.start() + len(match[0]) - len(match[0].lstrip())
                lines = _lines(text, start, match.end())
                if _is_claim(fact, lines):
                    line = text.count("\n", 0, start) + 1
                    said = " ".join(text[start : match.end()].split())
                    message = f"`{said}`: {fact.claim} ({fact.value}; {fact.source})"
                    found[fact.claim, line] = report(file, line, message)
    return list(found.values())


def _lines(text: str, start: int, end: int) -> str:
    """The whole lines that a match spans."""
    after = text.find("\n", end)
    return text[text.rfind("\n", 0, start) + 1 : len(text) if after < 0 else after]


def _is_claim(fact: Fact, lines: str) -> bool:
    if _DENIAL.search(lines) or (fact.unless is not None and re.search(fact.unless, lines, _FLAGS)):
        return False
    return fact.about is None or re.search(fact.about, lines, _FLAGS) is not None
